package replica

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// cut makes end the end of the log: later segments go, and what is left of its
// own segment is zeroed and synced (I8). With keep the bytes are kept below
// .haagent/salvage; without it they are one unfinished message at most.
func (s *Store) cut(segments []commitlog.Segment, end wire.PhyOffset, keep bool) error {
	var later []commitlog.Segment
	var own *commitlog.Segment
	for i, seg := range segments {
		switch {
		case seg.Base > end || (seg.Base == end && i > 0):
			later = append(later, seg)
		case end < seg.End():
			own = &segments[i]
		}
	}
	if keep {
		if own != nil {
			if err := s.salvageTail(*own, end); err != nil {
				return err
			}
		}
		if err := s.salvageSegments(later); err != nil {
			return err
		}
	} else if err := removeSegments(later); err != nil {
		return err
	}
	s.bases = s.bases[:len(s.bases)-len(later)]
	if len(later) > 0 {
		if err := s.opt.disk.syncDir(s.logDir); err != nil {
			return s.fail(fmt.Errorf("%w: %w", ErrFlush, err))
		}
	}
	if own == nil {
		return nil
	}
	file, err := s.opt.disk.open(own.Path)
	if err != nil {
		return err
	}
	err = file.zero(int64(end.Sub(own.Base)), int64(own.End().Sub(end)))
	if err == nil {
		// What fails here may be messages before the end, which the last process
		// had no time to sync: the next one must not believe in them.
		if err = file.datasync(); err != nil {
			err = s.fail(fmt.Errorf("%w: %w", ErrFlush, err))
		}
	}
	return errors.Join(err, file.Close())
}

// removeSegments deletes segments from the end of the log, newest first: at
// every instant the rest is adjacent (I6).
func removeSegments(segments []commitlog.Segment) error {
	for i := len(segments) - 1; i >= 0; i-- {
		if err := os.Remove(segments[i].Path); err != nil {
			return err
		}
	}
	return nil
}

// DropUnverified erases what was written behind the verified end: part of a
// message whose rest did not come. It is called before every new stream, so
// that bytes of two sources never meet within a message.
func (s *Store) DropUnverified() error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.Empty() || s.written.Load() == s.verified.Load() && s.touched == wire.NoOffset {
		return nil
	}
	return s.eraseTail()
}

// eraseTail zeroes what may be there behind the verified end, and removes
// segments that hold nothing else, newest first.
func (s *Store) eraseTail() error {
	s.layout.Lock()
	defer s.layout.Unlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	verified := wire.PhyOffset(s.verified.Load())
	reach := max(wire.PhyOffset(s.written.Load()), s.touched)
	s.mu.Lock()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	for i := len(open) - 1; i >= 0 && open[i].end > verified; i-- {
		seg := open[i]
		from := max(verified, seg.base)
		if n := min(reach, seg.end).Sub(from); n > 0 {
			if err := seg.file.zero(int64(from.Sub(seg.base)), int64(n)); err != nil {
				return fmt.Errorf("erase unverified bytes: %w", err)
			}
			if err := seg.file.datasync(); err != nil {
				return s.fail(fmt.Errorf("erase unverified bytes: %w: %w", ErrFlush, err))
			}
		}
		if seg.base > verified {
			if err := s.removeNewest(seg); err != nil {
				return err
			}
		}
		s.written.Store(min(s.written.Load(), int64(from)))
	}
	s.touched = wire.NoOffset
	return nil
}

// removeNewest takes the last segment out of the log. The caller holds layout
// and syncing.
func (s *Store) removeNewest(seg *segment) error {
	if err := os.Remove(seg.path); err != nil {
		return fmt.Errorf("remove segment of unverified bytes: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = s.open[:len(s.open)-1]
	s.bases = s.bases[:len(s.bases)-1]
	s.newDir = true
	return seg.close()
}
