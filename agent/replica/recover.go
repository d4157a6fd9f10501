package replica

import (
	"errors"
	"fmt"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// recover finds the end of the log after whatever happened to the last process,
// cuts off what is not part of it, and opens the tail.
func (s *Store) recover() error {
	segments, err := s.segments()
	if err != nil {
		return err
	}
	if len(segments) == 0 {
		// Where the log was is forgotten with it: the source decides anew.
		s.state.Start, s.state.VerifiedEnd, s.state.LastMessage = wire.NoOffset, wire.NoOffset, wire.NoOffset
		return s.saveState()
	}
	from := s.state.LastMessage
	if s.opt.Verify || from < segments[0].Base || from >= segments[len(segments)-1].End() {
		from = wire.NoOffset
	}
	end, damage, err := s.scan(from)
	if err == nil && damage && end == from && from != wire.NoOffset {
		end, damage, err = s.scan(wire.NoOffset)
	}
	if err != nil {
		return fmt.Errorf("find the end of the log: %w", err)
	}
	if err := s.cut(segments, end, damage); err != nil {
		return fmt.Errorf("cut the log back to %d: %w", end, err)
	}
	s.setEnds(end)
	s.min.Store(int64(segments[0].Base))
	s.flushed.Store(int64(segments[0].Base)) // until synced below
	if err := s.openTail(segments, end); err != nil {
		return err
	}
	return s.flush()
}

// segments lists the log, and sets aside what lies behind a hole in it: a
// broker would delete it at boot.
func (s *Store) segments() ([]commitlog.Segment, error) {
	for {
		segments, err := commitlog.List(s.logDir)
		if err != nil {
			return nil, err
		}
		err = commitlog.CheckSegments(segments, s.opt.SegmentSize)
		var hole *commitlog.HoleError
		if !errors.As(err, &hole) {
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrSegmentSize, err)
			}
			for _, seg := range segments {
				s.bases = append(s.bases, seg.Base)
			}
			return segments, nil
		}
		var behind []commitlog.Segment
		for _, seg := range segments {
			if seg.Base >= hole.Before {
				behind = append(behind, seg)
			}
		}
		if err := s.salvageSegments(behind); err != nil {
			return nil, err
		}
	}
}

// scan walks from a message boundary to the end of the log. damage says that
// there is something other than one unfinished message behind that end.
func (s *Store) scan(from wire.PhyOffset) (end wire.PhyOffset, damage bool, err error) {
	sc, err := commitlog.NewScanner(s.logDir, s.opt.SegmentSize, from)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, sc.Close()) }()
	limit := wire.PhyOffset(1<<63 - 1)
	if s.opt.OnlySynced && s.state.VerifiedEnd != wire.NoOffset {
		limit = s.state.VerifiedEnd
	}
	end = sc.Offset()
	for end < limit && sc.Next() {
		rec := sc.Record()
		s.passed(rec.End(), rec.PhyOffset, rec.StoreTimestamp, true)
		end = sc.Offset()
	}
	if end >= limit {
		return end, false, nil
	}
	end = sc.Offset()
	var corrupt *commitlog.CorruptError
	var hole *commitlog.HoleError
	switch why := sc.Err(); {
	case errors.Is(why, commitlog.ErrNotYet):
		return end, false, nil
	case errors.As(why, &corrupt), errors.As(why, &hole):
		return end, true, nil
	default:
		return end, false, why
	}
}

// openTail opens the segment that holds end and every one before it that may
// not have been synced when the last process ended.
func (s *Store) openTail(segments []commitlog.Segment, end wire.PhyOffset) error {
	for i, seg := range segments {
		tail := seg.End() >= end
		if i > 0 && seg.Base >= end {
			break
		}
		if !tail && seg.End() <= s.state.VerifiedEnd {
			continue
		}
		file, err := s.opt.disk.open(seg.Path)
		if err != nil {
			return fmt.Errorf("open tail segment: %w", err)
		}
		if _, err := s.attach(seg.Base, file); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newDir = true // whatever a killed process linked in
	return nil
}
