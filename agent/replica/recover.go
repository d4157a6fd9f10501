package replica

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

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
	if err := s.recall(segments); err != nil {
		return err
	}
	if len(segments) == 0 {
		// Where the log was is forgotten with it: the source decides anew.
		s.state.Start, s.state.VerifiedEnd, s.state.LastMessage = wire.NoOffset, wire.NoOffset, wire.NoOffset
		s.state.HistoryFrom, s.state.Unsynced, s.state.Provisional, s.state.Boot = 0, false, false, s.boot
		return errors.Join(s.mark.write(emptyDigest(wire.NoOffset)), s.saveState())
	}
	limit, suspect := s.believable(segments[0].Base)
	if s.opt.Rewind > 0 {
		limit, suspect = min(limit, max(s.opt.Rewind, segments[0].Base)), true
		s.had = s.known
		s.known = min(s.known, limit)
	}
	end, damage, err := s.findEnd(segments, limit)
	if err != nil {
		return fmt.Errorf("find the end of the log: %w", err)
	}
	// First what is remembered, then the bytes: no position on disk is ever
	// beyond the log.
	if last := wire.PhyOffset(s.lastMessage.Load()); end < s.state.VerifiedEnd {
		s.state.VerifiedEnd, s.state.LastMessage = end, last
		if err := s.saveState(); err != nil {
			return err
		}
	}
	if err := s.cut(segments, end, damage || suspect); err != nil {
		return fmt.Errorf("cut the log back to %d: %w", end, err)
	}
	if err := s.markEnd(segments[0].Base, end); err != nil {
		return err
	}
	s.rewound = max(0, s.had.Sub(end))
	s.setEnds(end)
	s.min.Store(int64(segments[0].Base))
	s.flushed.Store(int64(segments[0].Base)) // until synced below
	if s.state.Start == wire.NoOffset {
		s.state.Start = segments[0].Base
	}
	s.state.Unsynced, s.state.Provisional, s.state.Boot = false, false, s.boot
	if err := s.openTail(segments, end); err != nil {
		return err
	}
	return s.flush()
}

// recall finds out how far the log is known to have been verified and whole.
func (s *Store) recall(segments []commitlog.Segment) (err error) {
	if s.mark, err = openMark(s.opt.Dir); err != nil {
		return err
	}
	said, ok, err := s.mark.read()
	s.known = s.state.VerifiedEnd
	if err != nil || !ok || len(segments) == 0 || s.state.Boot != s.boot {
		return err
	}
	if first := said.old.since; first < 0 || first > max(segments[0].Base, s.state.VerifiedEnd) {
		return nil // of a log that was cut back since
	}
	if s.marked, err = s.fits(said); s.marked {
		s.known, s.unsynced = max(s.known, said.latest.end), said
	}
	return err
}

// everything is the limit of a walk that has none.
const everything wire.PhyOffset = math.MaxInt64

// markEnd sets the mark of the verified end anew. With AckDisk there is none: it
// would be written for nothing. What was not synced before the last process ended
// has not been synced since.
func (s *Store) markEnd(start, end wire.PhyOffset) error {
	if s.opt.Ack == AckDisk {
		return s.mark.write(emptyDigest(wire.NoOffset))
	}
	if s.marked && s.unsynced.latest.end == end {
		s.publish(s.unsynced)
		return nil // it says so, and was summed up a moment ago
	}
	since := max(start, s.unsynced.old.since)
	if !s.marked {
		since = max(start, s.state.VerifiedEnd)
	}
	s.unsynced = emptyDigest(min(since, end))
	var err error
	if s.unsynced.latest, err = s.digestOf(min(since, end), end); err != nil {
		return err
	}
	s.publish(s.unsynced)
	return s.mark.write(s.unsynced)
}

// believable returns where the walk has to stop. Provisional messages may be
// whole, and the source may have changed them since: where there may be any, only
// what is known to be verified counts. Where a sync has failed only what is known
// to be synced counts, because what the page cache shows behind it may never get to
// the disk. Otherwise whole messages are believed, since neither the state nor the
// mark need be the latest: the disk may have lost what was not synced.
// suspect says that what is cut off may be wanted.
func (s *Store) believable(start wire.PhyOffset) (limit wire.PhyOffset, suspect bool) {
	switch {
	case s.opt.OnlySynced || s.state.Unsynced:
		return max(s.state.VerifiedEnd, start), true
	case s.state.Provisional:
		return max(s.known, start), !s.marked
	}
	return everything, false
}

// findEnd walks from the last message that is known, or from the first one
// where that is asked for or the known one is not to be found.
func (s *Store) findEnd(segments []commitlog.Segment, limit wire.PhyOffset) (end wire.PhyOffset, damage bool, err error) {
	from := s.state.LastMessage
	if s.opt.Rewind > 0 && from >= limit { // it is to be cut off
		return s.scan(wire.NoOffset, limit)
	}
	if s.opt.Verify || s.opt.Disturbed || from < segments[0].Base || from >= segments[len(segments)-1].End() {
		return s.scan(wire.NoOffset, limit)
	}
	end, damage, err = s.scan(from, limit)
	if err == nil && end == from {
		return s.scan(wire.NoOffset, limit)
	}
	return end, damage, err
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
		if err := s.opt.disk.syncDir(s.logDir); err != nil {
			return nil, s.fail(fmt.Errorf("%w: %w", ErrFlush, err))
		}
	}
}

// scan walks from a message boundary to the end of the log, or to limit. damage
// says that there is something other than one unfinished message behind the end.
func (s *Store) scan(from, limit wire.PhyOffset) (end wire.PhyOffset, damage bool, err error) {
	sc, err := commitlog.NewScanner(s.logDir, s.opt.SegmentSize, from)
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, sc.Close()) }()
	full := fullSegments{store: s, base: wire.NoOffset}
	end = sc.Offset()
	var last message // not passed yet: what follows decides
	for last.next(end) < limit && sc.Next() {
		end = s.accept(last, end)
		last, err = look(sc.Record())
		if err != nil {
			return 0, false, err
		}
		if err := full.reached(min(last.at, limit)); err != nil {
			return 0, false, err
		}
		if last.end > limit {
			if s.opt.Rewind > 0 && last.at > limit { // behind a BLANK that differs
				return end, false, nil
			}
			return min(last.at, limit), false, nil
		}
		if last.end > s.known && (!last.wellFormed || last.at > max(end, s.known)) {
			return s.least(end, last), true, nil
		}
		full.base, full.stored = last.at.SegmentBase(s.opt.SegmentSize), last.stored
	}
	if last.next(end) >= limit {
		return s.accept(last, end), false, nil
	}
	if sc.Offset() == last.end && last.end > s.known && !last.closed {
		return s.least(end, last), false, nil
	}
	end = s.accept(last, end)
	// Where the walk went over a BLANK and found no message, the bytes behind the
	// BLANK may not have come.
	if sc.Offset() <= s.known {
		end = sc.Offset()
	}
	if err := full.reached(end); err != nil {
		return 0, false, err
	}
	damage, err = judge(sc.Err())
	return end, damage, err
}

// least is the end of the log where last is not believed: behind the message
// before it, or behind a BLANK after that where this much is known.
func (s *Store) least(end wire.PhyOffset, last message) wire.PhyOffset {
	return max(end, min(s.known, last.at))
}

// message is what a walk keeps of a record.
type message struct {
	at, end wire.PhyOffset
	stored  commitlog.Millis
	// Body and lengths are checked, but zeros in topic or properties may be bytes
	// that never came: pages that were lost with the machine, or, at the end of a
	// record with nothing behind it, the rest of an interrupted write.
	wellFormed bool // there are none
	closed     bool // nor at the very end, at least
}

// look takes from a record what is needed of it later.
func look(rec *commitlog.Record) (message, error) {
	m := message{at: rec.PhyOffset, end: rec.End(), stored: rec.StoreTimestamp}
	err := commitlog.Guard(func() error {
		m.wellFormed = rec.WellFormed()
		m.closed = m.wellFormed || rec.Bytes()[rec.Size-1] != 0
		return nil
	})
	return m, err
}

// next returns the end of the message, or end where there is none.
func (m message) next(end wire.PhyOffset) wire.PhyOffset { return max(m.end, end) }

// accept passes a message, if there is one, and returns the end of the log.
func (s *Store) accept(m message, end wire.PhyOffset) wire.PhyOffset {
	if m.end <= end {
		return end
	}
	s.passed(m.end, m.at, m.stored, true)
	return m.end
}

// judge says whether a walk ended at damage rather than at an unfinished message.
func judge(why error) (damage bool, err error) {
	var corrupt *commitlog.CorruptError
	var hole *commitlog.HoleError
	switch {
	case errors.Is(why, commitlog.ErrNotYet):
		return false, nil
	case errors.As(why, &corrupt), errors.As(why, &hole):
		return true, nil
	}
	return false, why
}

// fullSegments gives the segments that a walk has passed their times, which a
// process that was killed may not have got to.
type fullSegments struct {
	store  *Store
	base   wire.PhyOffset // of the segment of the last message, else NoOffset
	stored commitlog.Millis
}

// reached is called with each offset that the walk has come to.
func (f *fullSegments) reached(at wire.PhyOffset) error {
	if f.base == wire.NoOffset || at < f.base.Add(f.store.opt.SegmentSize) {
		return nil
	}
	return setSegmentTime(filepath.Join(f.store.logDir, commitlog.Name(f.base)), f.stored)
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
