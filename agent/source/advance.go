package source

import (
	"errors"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// stuck is the place where the log does not go on, although there is something.
type stuck struct {
	at    wire.PhyOffset
	since time.Time // when it was first seen; zero: the log is not stuck
	tried time.Time // when it was last tried to parse it
	err   error     // what the parser said; nil: the head is wrong already
	// followed says that a record has begun where the bad one ends, so that it is
	// damage and not on its way.
	followed bool

	searched, behind bool // whether records were looked for behind it, and found
}

// retry returns how long not to parse the same bad bytes again: the longer they
// have been bad the longer, so that a torn record costs nothing in the end.
func (s *stuck) retry(now time.Time) time.Duration {
	return min(now.Sub(s.since)/10, maxRetry)
}

// advance moves Confirmed over everything that is complete, and looks at what
// is behind it. It reports whether there is more to be had at once.
func (t *tail) advance(now time.Time) (more bool, err error) {
	if t.changedBelow() {
		t.rescan = true
		return false, nil
	}
	for from, n := t.at, 0; n < batch && t.at.Sub(from) < batchSize; n++ {
		if t.seg == nil {
			if t.seg, err = t.open(t.base); t.seg == nil {
				return false, err
			}
		}
		what, size := glance(t.seg.data[t.at.Sub(t.base):], t.at, t.seg.End)
		if t.last.size != 0 && (what != record || size != t.last.size) {
			t.forget()
		}
		passed := false
		switch what {
		case nothing:
			t.stuck = stuck{}
		case partly:
			t.stand(now, nil, false)
		case blank:
			passed, err = t.passBlank(now)
		case record:
			passed = t.passRecord(now, size)
		}
		if !passed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// changedBelow takes a quick look at the record before Confirmed: whether it
// still begins as it did. Its other bytes are compared at each listing.
func (t *tail) changedBelow() bool {
	return t.prev != wire.NoOffset && t.seg != nil &&
		wire.ByteSize(commitlog.LoadSize(t.seg.data[t.prev.Sub(t.base):])) != t.prevSize
}

// passRecord confirms the record at t.at if it is complete, otherwise it looks at
// what there is of it.
func (t *tail) passRecord(now time.Time, size wire.ByteSize) bool {
	end := t.at.Add(size)
	followed := t.followed(end)
	complete := followed || t.src.granted() >= end
	if !complete && !t.stale.isNew(t.at, t.seg.data[t.at.Sub(t.base):]) {
		t.forget()
		return false
	}
	if !complete && t.last.size != 0 && now.Sub(t.last.checked) < t.last.recheck(t.opt.Settle) {
		return false
	}
	// Who asks wants to know what is there now.
	if len(t.awaiting) == 0 && t.stuck.at == t.at && !t.stuck.since.IsZero() && now.Sub(t.stuck.tried) < t.stuck.retry(now) {
		return false
	}
	// The next size was loaded before, in acquire order: if it is there, all of this
	// record is.
	if err := commitlog.Parse(t.seg.data[t.at.Sub(t.base):], t.at, t.seg.End, &t.rec); err != nil {
		if t.last.size != 0 {
			t.forget()
		}
		t.stand(now, err, followed)
		return false
	}
	if complete && !t.checked && !t.unchanged() {
		return false
	}
	t.stuck = stuck{}
	t.src.lastStored.Store(int64(t.rec.StoreTimestamp))
	if !complete || t.last.settled {
		unsettled, moved := t.last.saw(&t.rec, t.seed, t.opt.Settle, now)
		if unsettled {
			t.resettled++
		}
		if moved && !t.last.settled {
			t.active, t.naps = now, 0
		}
	}
	if complete {
		t.confirm(size)
	}
	return complete
}

// followed reports whether a record has begun at end, so that the broker is done
// with what lies before it.
func (t *tail) followed(end wire.PhyOffset) bool {
	window := t.seg.data[end.Sub(t.base):]
	switch what, _ := glance(window, end, t.seg.End); what {
	case record:
		return t.stale.isNew(end, window) || t.outgrown()
	case blank:
		if end >= t.stale.end || t.outgrown() {
			return true
		}
		begun, err := t.nextBegun()
		return begun && err == nil
	}
	return false
}

// outgrown reports whether the log has gone on behind the old records that were
// in its way, so that the broker has written over all of them.
func (t *tail) outgrown() bool {
	if t.stale.end >= t.seg.End {
		return false
	}
	what, _ := glance(t.seg.data[t.stale.end.Sub(t.base):], t.stale.end, t.seg.End)
	if what != record && what != blank {
		return false
	}
	t.stale = stale{}
	return true
}

// confirm moves Confirmed over the record of the given size.
func (t *tail) confirm(size wire.ByteSize) {
	t.prev, t.prevSize = t.at, size
	t.at = t.at.Add(size)
	t.last = pending{}
}

// forget takes back the record behind Confirmed: it is not there any more, or
// is another one.
func (t *tail) forget() {
	if t.last.settled {
		t.resettled++
	}
	t.last = pending{}
}

// stand notes that the bytes at t.at are no record (yet).
func (t *tail) stand(now time.Time, err error, followed bool) {
	if t.stuck.since.IsZero() || t.stuck.at != t.at {
		t.stuck = stuck{at: t.at, since: now}
		t.active, t.naps = now, 0 // something is on its way
	}
	t.stuck.tried, t.stuck.err, t.stuck.followed = now, err, followed
}

// passBlank goes on in the next segment, if its first record has begun or the
// broker says that its log is there: then the garbage behind the BLANK is
// complete too.
func (t *tail) passBlank(now time.Time) (bool, error) {
	t.stuck = stuck{}
	begun, err := t.nextBegun()
	if err != nil || !begun && t.src.granted() < t.seg.End {
		return false, err
	}
	if !t.unchanged() {
		return false, nil
	}
	return true, t.nextSegment(now)
}

// nextBegun reports whether the first record of the next segment has begun.
func (t *tail) nextBegun() (bool, error) {
	end := t.seg.End
	if t.next == nil {
		next, err := t.open(end)
		if next == nil {
			return false, err
		}
		t.next = next
	}
	switch what, _ := glance(t.next.data, end, t.next.End); what {
	case record:
		return t.at >= t.stale.end || storedAt(t.next.data) > t.stale.time, nil
	case blank:
		return true, nil
	}
	return false, nil
}

// nextSegment moves Confirmed to the end of the segment, and goes on behind it.
func (t *tail) nextSegment(now time.Time) error {
	t.keepProof(now)
	end := t.seg.End
	err := t.seg.Close()
	t.seg, t.next = t.next, nil
	t.base, t.at = end, end
	t.prev, t.stale = wire.NoOffset, stale{}
	return err
}

// open opens the segment at base; nil where there is none yet.
func (t *tail) open(base wire.PhyOffset) (*Segment, error) {
	seg, err := openSegment(t.opt.CommitLogDir, base, t.size)
	if errors.Is(err, ErrNoSegment) {
		return nil, nil
	}
	return seg, err
}
