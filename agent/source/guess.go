package source

import (
	"os"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

const (
	// guessAfter is how long the one file that there is must have had its length.
	guessAfter = 100 * time.Millisecond
	// guessUnit divides the length of every segment that a size is guessed from.
	guessUnit = 4 * wire.KiB
)

// guess is a segment size that the files show, where none is configured. One file
// alone may be a copy that is being made, so it is believed when it did not grow.
type guess struct {
	size  wire.ByteSize // 0: there is none in question
	since time.Time     // when it was first seen
	open  bool          // whether one more listing is likely to answer it
	from  os.FileInfo   // the first segment that the size in use was guessed from
}

// guessSize takes the segment size from the files. It returns errUndecided where
// they must be looked at once more; t.size is 0 where nothing can be said.
func (t *tail) guessSize(segs []commitlog.Segment, now time.Time) error {
	size, err := commitlog.GuessSegmentSize(segs)
	if err != nil || size == 0 {
		t.guess = guess{}
		return err
	}
	if len(segs) == 1 || segs[1].Size == 0 {
		if t.guess.size != size {
			grows := t.guess.size != 0
			t.guess = guess{size: size, since: now, open: !grows}
		}
		if now.Sub(t.guess.since) < guessAfter {
			return errUndecided
		}
		t.guess.open = false
		if size%guessUnit != 0 {
			return state.Problemf(state.Incompatible, "source_segment_size",
				"wait until it is whole, or give the broker's mappedFileSizeCommitLog as --segment-size", nil,
				"how long segments are cannot be told from the only one in %s, which has %d bytes", t.opt.CommitLogDir, size)
		}
	}
	info, err := os.Stat(segs[0].Path)
	if err != nil {
		return err
	}
	t.guess = guess{from: info}
	t.size = size
	t.src.size.Store(int64(size))
	return nil
}

// misguessed reports whether the files show that the size in use was guessed
// wrong: all have another length, and were not just cut short.
func (t *tail) misguessed(segs []commitlog.Segment) (bool, error) {
	if t.opt.SegmentSize != 0 || t.size == 0 || segs[0].Size == t.size {
		return false, nil
	}
	size, _ := commitlog.GuessSegmentSize(segs)
	if size == 0 { // where they differ they are judged one by one
		return false, nil
	}
	if size > t.size || len(segs) > 1 && segs[1].Size == size {
		return true, nil
	}
	info, err := os.Stat(segs[0].Path)
	return err == nil && !os.SameFile(info, t.guess.from), err
}

// forgetSize makes the size be guessed anew. Whoever knew the old one must ask
// again.
func (t *tail) forgetSize(now time.Time) {
	if t.base != wire.NoOffset {
		t.turnOver(noPlace, "the segments have another length", now)
	} else {
		t.src.incarnation.Add(1)
	}
	t.resetSize()
}

// resetSize forgets a size that was guessed, when the log is none any more.
func (t *tail) resetSize() {
	t.guess, t.size = guess{}, t.opt.SegmentSize
}
