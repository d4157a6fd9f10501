package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// place is where the tail of a log was found.
type place struct {
	min      wire.PhyOffset // start of the first segment; NoOffset: there is no log
	base     wire.PhyOffset // of the segment that at lies in
	at       wire.PhyOffset // everything below is complete
	prev     wire.PhyOffset // the last record below at, in the same segment; NoOffset: none
	prevSize wire.ByteSize
	seg      *Segment // at base
	stale    stale
	limit    wire.PhyOffset // the log ends here or before; NoOffset: where it seems to
}

// stale is where records lie behind the end of the log when its tail is found: a
// power cut lost what was before them. A broker that recovers ends its log before
// them and writes over them, without erasing them first:
//
//	record record | lost | old record old record old record | 0 0 0
//	record record new record | old record old record        | 0 0 0
//
// In the last line an old record seems to follow the newest one, and proves nothing.
type stale struct {
	from wire.PhyOffset   // where the log ended
	end  wire.PhyOffset   // behind the last old record; 0: there are none
	time commitlog.Millis // when the newest of them was stored
	head [storedEnd]byte  // what lay at from
	over time.Time        // when it was first seen to be another record; zero: it is not
}

// storedEnd is behind the STORETIMESTAMP of a record from an IPv4 host.
const storedEnd = 64

// overwritten reports whether a record lies at the end of the log that was not
// there when it was found, and is taken for an old one for its time. It needs a
// clock that went back.
func (s *stale) overwritten(data []byte, base, end wire.PhyOffset) bool {
	if s.end == 0 || end.Sub(s.from) < storedEnd {
		return false
	}
	window := data[s.from.Sub(base):]
	what, _ := glance(window, s.from, end)
	return what == record && !s.isNew(s.from, window) && !bytes.Equal(window[:storedEnd], s.head[:])
}

// isNew reports whether the record at offset at, which window starts with, is none
// of the old ones.
func (s *stale) isNew(at wire.PhyOffset, window []byte) bool {
	return at < s.from || at >= s.end || storedAt(window) > s.time
}

var noPlace = place{min: wire.NoOffset, base: wire.NoOffset, at: wire.NoOffset, prev: wire.NoOffset, limit: wire.NoOffset}

// walkStride is how far a walk goes before it looks whether it is still wanted.
const walkStride = 64 * wire.MiB

// find looks for the tail in the newest segment that has data. Everything in
// older ones is complete, because something follows it. The log ends where the
// row of segments is broken: at a missing one, one of another length, or one
// that does not begin with a record although a later one does. It does not reach
// beyond limit, unless that is NoOffset.
func (t *tail) find(ctx context.Context, segs []commitlog.Segment, limit wire.PhyOffset) (place, error) {
	p := noPlace
	for i, s := range segs {
		if i > 0 && limit != wire.NoOffset && s.Base > limit {
			break
		}
		if s.Size != t.size || s.Base.SegmentBase(t.size) != s.Base || i > 0 && s.Base != segs[i-1].End() {
			break
		}
		what, err := peek(s)
		if err != nil {
			return noPlace, err
		}
		if i == 0 {
			p.min, p.base, p.at = s.Base, s.Base, s.Base
		}
		if what != record && what != blank {
			break
		}
		p.base, p.at = s.Base, s.Base
	}
	if p.base == wire.NoOffset {
		return p, nil
	}
	seg, err := openSegment(t.opt.CommitLogDir, p.base, t.size)
	if err != nil {
		return noPlace, err
	}
	p.seg, p.limit = seg, limit
	if err := commitlog.Guard(func() error {
		err := p.walk(ctx)
		for err == nil && p.findStale() {
			err = p.walk(ctx)
		}
		return err
	}); err != nil {
		return noPlace, errors.Join(err, seg.Close())
	}
	seg.releasePages()
	return p, nil
}

// walk goes from head to head through the segment, to the last record that
// nothing follows, or to the BLANK.
func (p *place) walk(ctx context.Context) error {
	look := p.at
	what, size := glance(p.seg.data[p.at.Sub(p.base):], p.at, p.seg.End)
	for what == record {
		end := p.at.Add(size)
		if p.limit != wire.NoOffset && end > p.limit {
			return nil
		}
		next, nextSize := glance(p.seg.data[end.Sub(p.base):], end, p.seg.End)
		if next != record && next != blank {
			return nil
		}
		p.prev, p.prevSize = p.at, size
		p.at, what, size = end, next, nextSize
		if p.at.Sub(look) > walkStride {
			look = p.at
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("look for the end of the log: %w", err)
			}
		}
	}
	return nil
}

// findStale looks for records behind the place where the log ends. It reports
// whether the log has gone on meanwhile, so that what was found is none of these.
func (p *place) findStale() (again bool) {
	from := p.at
	switch what, size := glance(p.seg.data[p.at.Sub(p.base):], p.at, p.seg.End); what {
	case blank:
		return false
	case record:
		if p.limit == wire.NoOffset || p.at.Add(size) <= p.limit {
			from = p.at.Add(size)
		}
	}
	p.stale = stale{from: from}
	copy(p.stale.head[:], p.seg.data[from.Sub(p.base):])
	until := min(p.seg.End, from.Add(maxSearch))
	for at := from; at < until; {
		found := p.seg.search(at, until)
		if found == wire.NoOffset {
			break
		}
		window := p.seg.data[found.Sub(p.base):]
		_, size := glance(window, found, p.seg.End)
		at = found.Add(size)
		p.stale.end, p.stale.time = at, max(p.stale.time, storedAt(window))
		until = min(p.seg.End, at.Add(maxSearch))
	}
	if p.stale.end != 0 { // a BLANK behind old records is as old
		if what, _ := glance(p.seg.data[p.stale.end.Sub(p.base):], p.stale.end, p.seg.End); what == blank {
			p.stale.end = p.seg.End
		}
	}
	if p.stale.end == 0 || p.limit != wire.NoOffset {
		return false
	}
	// A broker at work writes in order: what is new behind follows what is new here.
	what, _ := glance(p.seg.data[from.Sub(p.base):], from, p.seg.End)
	return what == record || what == blank
}

// peek says what the segment begins with, reading the file.
func peek(s commitlog.Segment) (glimpse, error) {
	f, err := os.Open(s.Path)
	if err != nil {
		return nothing, fmt.Errorf("look into segment: %w", err)
	}
	defer f.Close()
	var head [glanceLen]byte
	n, err := f.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nothing, fmt.Errorf("look into segment: %w", err)
	}
	what, _ := glance(head[:n], s.Base, s.End())
	return what, nil
}
