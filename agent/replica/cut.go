package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// cut makes end the end of the log: later segments go, and what is left of its
// own segment is zeroed and synced (I8). Where the bytes are more than one
// unfinished message they are kept below .haagent/salvage.
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
	if own != nil && keep {
		if err := s.salvageTail(*own, end); err != nil {
			return err
		}
	}
	if keep {
		if err := s.salvageSegments(later); err != nil {
			return err
		}
	} else {
		// Newest first: at every instant the rest is adjacent (I6).
		for i := len(later) - 1; i >= 0; i-- {
			if err := os.Remove(later[i].Path); err != nil {
				return err
			}
		}
	}
	for range later {
		s.bases = s.bases[:len(s.bases)-1]
	}
	if len(later) > 0 {
		if err := s.opt.disk.syncDir(s.logDir); err != nil {
			return err
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
		err = file.datasync()
	}
	return errors.Join(err, file.Close())
}

// salvageSegments moves whole segments out of the log, newest first.
func (s *Store) salvageSegments(segments []commitlog.Segment) error {
	if len(segments) == 0 {
		return nil
	}
	target, err := freshDir(filepath.Join(AgentDir(s.opt.Dir), "salvage"), s.opt.Now())
	if err != nil {
		return fmt.Errorf("make room for salvage: %w", err)
	}
	for i := len(segments) - 1; i >= 0; i-- {
		to := filepath.Join(target, filepath.Base(segments[i].Path))
		if err := os.Rename(segments[i].Path, to); err != nil {
			return fmt.Errorf("salvage segment: %w", err)
		}
	}
	return errors.Join(syncDir(target), s.opt.disk.syncDir(s.logDir))
}

// salvageTail copies the bytes of seg from end to the last one that is not zero.
func (s *Store) salvageTail(seg commitlog.Segment, end wire.PhyOffset) (err error) {
	target, err := freshDir(filepath.Join(AgentDir(s.opt.Dir), "salvage"), s.opt.Now())
	if err != nil {
		return fmt.Errorf("make room for salvage: %w", err)
	}
	view, err := commitlog.OpenView(seg.Path)
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	f, err := os.OpenFile(filepath.Join(target, "from-"+commitlog.Name(end)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return commitlog.Guard(func() error {
		rest := view.Bytes()[end.Sub(seg.Base):]
		rest = bytes.TrimRight(rest, "\x00")
		if _, err := io.Copy(f, bytes.NewReader(rest)); err != nil {
			return fmt.Errorf("salvage: %w", err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("salvage: %w", err)
		}
		return syncDir(target)
	})
}

// DropUnverified erases what was written behind the verified end: part of a
// message whose rest did not come. It is called before every new stream, so
// that bytes of two sources never meet within a message.
func (s *Store) DropUnverified() error {
	if s.Empty() || s.written.Load() == s.verified.Load() {
		return nil
	}
	return s.eraseTail()
}

// eraseTail zeroes [verified, written), and removes segments that hold nothing
// but such bytes, newest first.
func (s *Store) eraseTail() error {
	s.layout.Lock()
	defer s.layout.Unlock()
	verified, written := wire.PhyOffset(s.verified.Load()), wire.PhyOffset(s.written.Load())
	s.mu.Lock()
	open := append([]*segment{}, s.open...)
	s.mu.Unlock()
	for i := len(open) - 1; i >= 0 && verified < written; i-- {
		seg := open[i]
		if seg.base >= written || seg.end <= verified {
			continue
		}
		from := max(verified, seg.base)
		if err := seg.file.zero(int64(from.Sub(seg.base)), int64(min(written, seg.end).Sub(from))); err != nil {
			return fmt.Errorf("erase unverified bytes: %w", err)
		}
		if err := seg.file.datasync(); err != nil {
			return fmt.Errorf("erase unverified bytes: %w: %w", ErrFlush, err)
		}
		if seg.base > verified {
			if err := s.removeNewest(seg); err != nil {
				return err
			}
		}
		written = from
		s.written.Store(int64(from))
	}
	return nil
}

// removeNewest takes the last segment out of the log. The caller holds layout.
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
