package source

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

const (
	// secondLook is how soon a finding that may be the broker at work is looked
	// at again.
	secondLook = 50 * time.Millisecond
	// damagedAfter is how long bytes must be no record before they are called
	// damage instead of a record on its way.
	damagedAfter = 5 * time.Second
)

// judge says why the log cannot go on where the tail stands, nil where it can.
func (t *tail) judge(segs []commitlog.Segment, now time.Time) error {
	if t.base == wire.NoOffset {
		return commitlog.CheckSegments(segs[:1], t.size)
	}
	later := wire.NoOffset // start of the first segment behind the tail that has data
	for i, s := range segs {
		switch {
		case s.Base <= t.base:
			if i > 0 && s.Base != segs[i-1].Base.Add(t.size) {
				return t.hole(segs[i-1].Base.Add(t.size), s.Base)
			}
			if s.Base < t.base && s.Size != t.size {
				return &commitlog.LengthError{Path: s.Path, Size: s.Size, Want: t.size}
			}
		case later == wire.NoOffset:
			what, err := peek(s)
			if err != nil {
				return err
			}
			if what == record || what == blank {
				later = s.Base
			}
			if s.Size != t.size && s.Size != 0 {
				return t.doubt(now, &commitlog.LengthError{Path: s.Path, Size: s.Size, Want: t.size})
			}
		}
	}
	end := t.base.Add(t.size)
	if t.seg == nil {
		end = t.base
	}
	switch {
	case later > end:
		return t.doubt(now, t.hole(end, later))
	case later == end:
		return t.doubt(now, t.damage())
	case !t.stuck.since.IsZero() && now.Sub(t.stuck.since) >= damagedAfter && (t.stuck.followed || t.recordsBehind()):
		return t.damage()
	}
	t.suspect = wire.NoOffset
	if err := t.clockBack(now); err != nil {
		return err
	}
	return t.behindBroker(now)
}

// clockBack returns a problem where the broker has for long written over old
// records, and what it writes cannot be told from them: it seems to be older.
func (t *tail) clockBack(now time.Time) error {
	if t.seg == nil || t.at > t.stale.from || !t.stale.overwritten(t.seg.data, t.base, t.seg.End) {
		t.stale.over = time.Time{}
		return nil
	}
	if t.stale.over.IsZero() {
		t.stale.over = now
	}
	if now.Sub(t.stale.over) < damagedAfter {
		return nil
	}
	return state.Problemf(state.IOError, "source_clock_back",
		"correct the clock of the broker's machine, and give the broker as --broker so that it can be asked", nil,
		"the broker writes over old records at %d and its clock has gone back: it is served up to there until the broker has written beyond %d", t.stale.from, t.stale.end)
}

// behind is a place where the broker says that there is more.
type behind struct {
	at    wire.PhyOffset
	since time.Time
}

// behindBroker returns a problem where the broker has said for long that its log
// goes on, and the files do not show it.
func (t *tail) behindBroker(now time.Time) error {
	end := t.src.granted()
	if visible := t.at.Add(t.last.size); end <= visible {
		t.behind = behind{}
		return nil
	}
	if t.behind.since.IsZero() || t.behind.at != t.at {
		t.behind = behind{at: t.at, since: now}
	}
	if now.Sub(t.behind.since) < damagedAfter {
		return nil
	}
	return state.Problemf(state.Incompatible, "source_behind_broker",
		"check that "+t.opt.CommitLogDir+" is where the broker at --broker writes its log", nil,
		"the broker's log reaches to %d, its files to %d", end, t.at)
}

// doubt returns err if the tail stood at the same place the last time. A broker
// goes on while a directory is being listed, so one look proves nothing.
func (t *tail) doubt(now time.Time, err error) error {
	if t.suspect == t.at {
		return err
	}
	t.suspect = t.at
	t.scanned = now.Add(secondLook - t.opt.Rescan)
	return errUndecided
}

func (t *tail) hole(after, before wire.PhyOffset) error {
	return &commitlog.HoleError{After: after, Before: before}
}

// damage says what is wrong with the bytes at the tail, behind which there is more.
func (t *tail) damage() error {
	var err *commitlog.CorruptError
	if errors.As(t.stuck.err, &err) {
		return err
	}
	return &commitlog.CorruptError{PhyOffset: t.at, Reason: "no record begins here, but the log goes on behind it", Err: commitlog.ErrBadLength}
}

// recordsBehind reports whether a record can be found behind the bad place.
func (t *tail) recordsBehind() bool {
	if t.seg == nil {
		return false
	}
	if !t.stuck.searched {
		t.stuck.behind = t.seg.search(t.at.Add(4), min(t.seg.End, t.at.Add(maxSearch))) != wire.NoOffset
		t.stuck.searched = true
	}
	return t.stuck.behind
}

// judgeError turns what stands in the way into a problem that an operator can do
// something about.
func (t *tail) judgeError(err error) error {
	if err == nil || state.AsProblem(err) != nil {
		return err
	}
	return t.problemOf(err)
}

func (t *tail) problemOf(err error) error {
	var (
		length  *commitlog.LengthError
		align   *commitlog.AlignError
		hole    *commitlog.HoleError
		corrupt *commitlog.CorruptError
		fault   *commitlog.FaultError
	)
	switch dir := t.opt.CommitLogDir; {
	case errors.As(err, &hole):
		return state.Problemf(state.Gap, "source_hole",
			"bring the missing segments back into "+dir+", or let the broker start a new log; replicas keep what they have", err,
			"segments from %s to %s are missing: the log is served up to %d", commitlog.Name(hole.After), commitlog.Name(hole.Before), hole.After)
	case errors.As(err, &length) && t.opt.SegmentSize != 0 && length.Size > 0 && length.Size%wire.KiB == 0 && t.base == wire.NoOffset,
		errors.As(err, &align):
		return state.Problemf(state.Incompatible, "source_segment_size",
			"give the broker's mappedFileSizeCommitLog as --segment-size, or leave it out", err,
			"the segments in %s are not %v long", dir, t.size)
	case errors.As(err, &length) && length.Size > length.Want:
		return state.Problemf(state.Incompatible, "source_segment_size",
			"take what is no segment of this log out of "+dir+", or give the broker's mappedFileSizeCommitLog as --segment-size", err,
			"not all segments are equally long: %s has %d bytes instead of %d", length.Path, length.Size, length.Want)
	case errors.As(err, &length):
		return state.Problemf(state.IOError, "source_cut_short",
			"do not touch the files of "+dir+": stop the broker, and restore the segment or let the broker recover", err,
			"a segment was cut short: %s has %d bytes instead of %d", length.Path, length.Size, length.Want)
	case errors.As(err, &fault):
		return state.Problemf(state.IOError, "source_fault",
			"look for disk errors in the kernel's log, and whether something cuts files short in "+dir, err,
			"a segment of %s cannot be read at %d", dir, t.at)
	case errors.As(err, &corrupt):
		return state.Problemf(state.IOError, "source_corrupt",
			fmt.Sprintf("run haagent verify %s; a broker that recovers cuts its log off there", t.opt.Dir), err,
			"the log is damaged at %d: it is served up to there", corrupt.PhyOffset)
	case errors.Is(err, fs.ErrPermission):
		return state.Problemf(state.IOError, "source_unreadable",
			"run the agent as the user of the broker, or let it read "+dir, err, "the commit log must not be read")
	}
	return state.Problemf(state.IOError, "source_unreadable", "check "+t.opt.CommitLogDir, err, "the commit log cannot be read")
}

// tell passes on what stands in the way, once.
func (t *tail) tell() {
	err := t.scanErr
	if err == nil {
		err = t.lookErr
	}
	if t.told && sameText(err, t.problem) {
		return
	}
	t.told, t.problem = true, err
	if p := state.AsProblem(err); p != nil {
		t.log.Warn("the source's log cannot go on", "state", string(p.State), "code", p.Code, "reason", p.Reason, "try", p.Try, "error", p.Err)
	}
	t.opt.OnState(err)
}

func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
