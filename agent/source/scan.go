package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// errUndecided says that what was found may be gone with the next look: a broker
// writes while we read.
var errUndecided = errors.New("look again")

// scan lists the directory and holds it against what the tail stands on.
func (t *tail) scan(ctx context.Context, now time.Time) error {
	segs, err := t.list()
	if err != nil {
		return err
	}
	if len(segs) == 0 {
		if t.base != wire.NoOffset {
			t.turnOver(noPlace, "the segments are gone", now)
		}
		t.resetSize()
		return t.empty()
	}
	if wrong, err := t.misguessed(segs); err != nil {
		return err
	} else if wrong {
		t.forgetSize(now)
	}
	if t.size == 0 {
		if err := t.guessSize(segs, now); err != nil || t.size == 0 {
			return err
		}
	}
	why, limit := "a log was found", wire.NoOffset
	if t.base != wire.NoOffset {
		if why, err = t.disturbed(segs, now); err != nil {
			return err
		}
	}
	if why == "" && t.cutByWord(now) {
		why, limit = "the broker says that it ends there", t.recanted.word
	}
	if why != "" {
		p, err := t.find(ctx, segs, limit)
		if errors.Is(err, fs.ErrNotExist) { // deleted since it was listed
			t.rescan = true
			return errUndecided
		}
		if err != nil {
			return err
		}
		t.turnOver(p, why, now)
		if t.base != wire.NoOffset {
			t.log.Info("found the end of the source's log", "min", t.min, "end", t.at, "segmentSize", t.size, "because", why)
		}
	} else {
		t.min = min(segs[0].Base, t.base)
		t.keepProof(now)
	}
	if err := t.judge(segs, now); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errUndecided
}

// list returns the segments. Old ones may be deleted while the directory is read,
// which can look like a hole: a hole is believed when two listings agree.
func (t *tail) list() ([]commitlog.Segment, error) {
	segs, err := t.listOnce()
	for range 16 {
		if err != nil || adjacent(segs, t.size) {
			break
		}
		before := segs
		if segs, err = t.listOnce(); slices.EqualFunc(before, segs, sameName) {
			break
		}
	}
	return segs, err
}

func (t *tail) listOnce() ([]commitlog.Segment, error) {
	segs, err := commitlog.List(t.opt.CommitLogDir)
	var foreign *commitlog.ForeignFileError
	if errors.As(err, &foreign) {
		// A broker that runs does not mind; it will when it boots.
		if !t.foreign {
			t.foreign = true
			t.log.Warn("the source's commit log directory holds something that is no segment", "error", err)
		}
		err = nil
	}
	return segs, err
}

func sameName(a, b commitlog.Segment) bool { return a.Base == b.Base }

func adjacent(segs []commitlog.Segment, size wire.ByteSize) bool {
	for i := 1; i < len(segs); i++ {
		if size != 0 && segs[i].Base != segs[i-1].Base.Add(size) {
			return false
		}
	}
	return true
}

// empty says whether it is well that there is no segment.
func (t *tail) empty() error {
	info, err := os.Stat(t.opt.CommitLogDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state.Problemf(state.IOError, "source_missing",
			"start the broker, or give the directory it writes to as --dir (or --commitlog-dir)", err,
			"there is no commit log at %s", t.opt.CommitLogDir)
	case err != nil:
		return err
	case !info.IsDir():
		return &commitlog.ForeignFileError{Path: t.opt.CommitLogDir, Reason: "no directory"}
	}
	return nil
}

// disturbed says what has happened to the files below the tail that brokers do
// not do while they run; "" if nothing has.
func (t *tail) disturbed(segs []commitlog.Segment, now time.Time) (string, error) {
	if t.seg != nil {
		i := slices.IndexFunc(segs, func(s commitlog.Segment) bool { return s.Base == t.base })
		if i < 0 {
			base := t.base
			if err := t.outlive(segs[0].Base, now); err != nil {
				return "", err
			}
			if t.base > base {
				return t.disturbed(segs, now)
			}
			return "the last segment was deleted", nil
		}
		if segs[i].Size != t.size {
			return "the last segment has another length", nil
		}
		info, err := os.Stat(segs[i].Path)
		if errors.Is(err, fs.ErrNotExist) {
			return "the last segment was deleted", nil
		}
		if err != nil {
			return "", err
		}
		if !os.SameFile(info, t.seg.info) {
			return "the last segment was replaced", nil
		}
	}
	if t.seg == nil && segs[0].Base > t.base {
		return "a segment was deleted before it was read", nil
	}
	if t.changedBelow() {
		return "the last record changed", nil
	}
	// Where the proofs have expired with their segments, nothing is wrong.
	verdict, err := t.proofs.hold(t.opt.CommitLogDir, t.size)
	if err == nil && verdict == Differs {
		return "the last records changed", nil
	}
	return "", err
}

// outlive goes on behind a segment that expired while the tail was still in it,
// when first is the oldest one left. What it held can be read until it is closed.
func (t *tail) outlive(first wire.PhyOffset, now time.Time) error {
	if first <= t.base {
		return nil
	}
	base := t.base
	for more := true; more && t.base == base; {
		var err error
		if more, err = t.advance(now); err != nil {
			return err
		}
	}
	if t.base > base || first != t.seg.End {
		return nil
	}
	if what, _ := glance(t.seg.data[t.at.Sub(t.base):], t.at, t.seg.End); what == blank {
		return t.nextSegment(now) // the broker is done with a segment that it deletes
	}
	return nil
}

// turnOver puts the tail where the log was found to end now. Where anything that
// was confirmed is not what it was, the incarnation goes up, before Ends tell.
func (t *tail) turnOver(p place, why string, now time.Time) {
	old, known := t.at, t.base != wire.NoOffset || t.proofs.known()
	t.closeSegments()
	t.forget()
	t.stuck, t.suspect = stuck{}, wire.NoOffset
	t.min, t.base, t.at, t.seg = p.min, p.base, p.at, p.seg
	t.prev, t.prevSize, t.stale = p.prev, p.prevSize, p.stale
	changed := false
	if known {
		verdict, err := t.proofs.hold(t.opt.CommitLogDir, t.size)
		changed = verdict != Equal || err != nil
		if !changed && t.base != wire.NoOffset && t.at < old {
			// What only the broker's word had confirmed is confirmed by it again.
			err := commitlog.Guard(func() error { _, err := t.advance(now); return err })
			changed = err != nil
		}
		changed = changed || t.at < old
	}
	if changed {
		incarnation := t.src.incarnation.Add(1)
		t.log.Warn("the source's log is not what it was", "because", why, "end", old, "endNow", t.at, "incarnation", incarnation)
	}
	t.proofs.drop()
	t.firstProof(now)
}

// firstProof keeps something to know the log by: the last record, or the first
// one of the segment before.
func (t *tail) firstProof(now time.Time) {
	if t.base == wire.NoOffset {
		return
	}
	if t.prev != wire.NoOffset {
		if err := commitlog.Guard(func() error { t.keepProof(now); return nil }); err != nil {
			t.proofs.drop()
		}
		return
	}
	before := t.base.Add(-t.size)
	if before < t.min {
		return
	}
	seg, err := t.open(before)
	if seg == nil {
		if err != nil {
			t.log.Debug("the segment before the last one cannot be read", "error", err)
		}
		return
	}
	err = commitlog.Guard(func() error {
		if what, size := glance(seg.data, before, seg.End); what == record {
			t.proofs.take(before, seg.data[:min(size, maxProof)], now)
		}
		return nil
	})
	if err = errors.Join(err, seg.Close()); err != nil {
		t.proofs.drop()
	}
}
