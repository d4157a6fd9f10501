package replica

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// maxBase leaves room for more bytes than any log will ever have: offsets near
// the largest one come from a confused peer.
const maxBase wire.PhyOffset = 1 << 62

// Begin sets where an empty store starts. base must be the start of a segment.
// Nothing is created before the first byte is appended; until then Begin may be
// called again.
func (s *Store) Begin(base wire.PhyOffset) error {
	if err := s.usable(); err != nil {
		return err
	}
	if !s.Empty() {
		return fmt.Errorf("begin at %d: the store already starts at %d: %w", base, s.min.Load(), ErrNotAdjacent)
	}
	if base < 0 || base > maxBase || base != base.SegmentBase(s.opt.SegmentSize) {
		return fmt.Errorf("begin at %d: not the start of a segment of %s: %w", base, s.opt.SegmentSize, ErrNotAdjacent)
	}
	s.setEnds(base)
	s.unsynced = emptyDigest(base)
	s.mu.Lock()
	s.spoken = s.unsynced
	s.state.Start = base
	s.mu.Unlock()
	return nil
}

// Append writes bufs, one behind the other, at the written end, which must be
// at. Bytes that cross the end of a segment are split. The elements of bufs are
// used up; their bytes are not changed and may be reused after the call.
//
// After an error the written end tells how much was taken; the same bytes can
// be offered again from there. What a failed write may have left behind the
// written end is overwritten by that, or erased by DropUnverified and Close.
func (s *Store) Append(at wire.PhyOffset, bufs [][]byte) error {
	if err := s.usable(); err != nil {
		return err
	}
	if written := wire.PhyOffset(s.written.Load()); at != written || at < 0 {
		return fmt.Errorf("append at %d, the log ends at %d: %w", at, written, ErrNotAdjacent)
	}
	for {
		// No segment is born for no bytes.
		for len(bufs) > 0 && len(bufs[0]) == 0 {
			bufs = bufs[1:]
		}
		if len(bufs) == 0 {
			s.expecting.Store(false)
			return nil
		}
		seg, err := s.tail(at)
		if err != nil {
			return err
		}
		now, later := split(bufs, seg.end.Sub(at))
		reach := at.Add(length(now))
		n, err := seg.file.writev(now, int64(at.Sub(seg.base)))
		at = at.Add(wire.ByteSize(n))
		s.written.Store(int64(at))
		if err != nil {
			s.touched = max(s.touched, reach)
			return fmt.Errorf("append at %d: %w", at, err)
		}
		if at >= s.touched {
			s.touched = wire.NoOffset
		}
		bufs = later
	}
}

func length(bufs [][]byte) wire.ByteSize {
	var n wire.ByteSize
	for _, b := range bufs {
		n += wire.ByteSize(len(b))
	}
	return n
}

// split divides bufs into what fits into room and the rest. It cuts one element
// in two where it must, and then allocates; that happens once a segment.
func split(bufs [][]byte, room wire.ByteSize) (now, later [][]byte) {
	for i, b := range bufs {
		if n := wire.ByteSize(len(b)); n <= room {
			room -= n
			continue
		}
		now = append(append([][]byte{}, bufs[:i]...), b[:room])
		later = append([][]byte{b[room:]}, bufs[i+1:]...)
		return now, later
	}
	return bufs, nil
}

// tail returns the segment that holds o, which is the written end; it bears
// that segment where o is the end of the log.
func (s *Store) tail(o wire.PhyOffset) (*segment, error) {
	if seg := s.segmentAt(o); seg != nil {
		return seg, nil
	}
	s.layout.Lock()
	defer s.layout.Unlock()
	base := o.SegmentBase(s.opt.SegmentSize)
	path := filepath.Join(s.logDir, commitlog.Name(base))
	if s.knows(base) { // born before, but could not be mapped
		file, err := s.opt.disk.open(path)
		if err != nil {
			return nil, fmt.Errorf("open new segment: %w", err)
		}
		return s.attach(base, file)
	}
	file, err := s.opt.disk.create(path, s.opt.SegmentSize)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s appeared while the store was held: %w", path, ErrDisturbed)
	}
	if err != nil {
		return nil, fmt.Errorf("new segment %s: %w", commitlog.Name(base), err)
	}
	s.mu.Lock()
	s.bases = append(s.bases, base)
	s.newDir = true
	s.mu.Unlock()
	return s.attach(base, file)
}

func (s *Store) knows(base wire.PhyOffset) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.bases, base)
}

// Verify checks the messages between the verified end and limit, which must not
// be beyond the written end, and moves the verified end over every whole one.
// It returns a *commitlog.CorruptError where bytes cannot be part of a log; the
// verified end then stays in front of them, for good.
func (s *Store) Verify(limit wire.PhyOffset) error {
	if err := s.usable(); err != nil {
		return err
	}
	if written := wire.PhyOffset(s.written.Load()); limit > written {
		return fmt.Errorf("verify up to %d, the log ends at %d: %w", limit, written, ErrNotAdjacent)
	}
	before := s.verified.Load()
	err := commitlog.Guard(func() error {
		for wire.PhyOffset(s.verified.Load()) < limit {
			more, err := s.verifySegment(limit)
			if err != nil || !more {
				return err
			}
		}
		return nil
	})
	s.record = commitlog.Record{} // it points into a map that may be closed
	if s.verified.Load() != before {
		s.listeners.Wake()
		wake.Send(s.nudge)
	}
	return err
}

// verifySegment walks within one segment. more says that the walk reached the
// segment's end and can go on in the next one.
func (s *Store) verifySegment(limit wire.PhyOffset) (more bool, err error) {
	at := wire.PhyOffset(s.verified.Load())
	seg := s.segmentAt(at)
	if seg == nil {
		return false, fmt.Errorf("verify at %d: no segment holds it: %w", at, ErrDisturbed)
	}
	window := seg.view.Bytes()[:min(limit, seg.end).Sub(seg.base)]
	w := walk{at: at, base: seg.base, end: seg.end, window: window, rec: &s.record}
	if s.opt.Ack == AckMemory {
		s.mu.Lock() // so that DropBefore does not look between the two
		s.unsynced.remembered(wire.PhyOffset(s.saved.Load()))
		s.spoken = s.unsynced
		s.spoken.latest.end = everything
		s.mu.Unlock()
		defer func() { s.publish(s.unsynced) }()
		s.sum = s.unsynced.latest // which is not touched before all of this step is done
		w.digest = &s.sum
	}
	err = w.run()
	if err == nil && w.at == seg.end {
		// Before its end is passed: whatever fails here is done again.
		stored := w.lastStored
		if w.messages == 0 {
			stored = commitlog.Millis(s.lastStored.Load())
		}
		if err := setSegmentTime(seg.path, stored); err != nil {
			return false, err
		}
	}
	if w.at > at && s.opt.Ack == AckMemory {
		if err := s.mark.write(tailDigest{old: s.unsynced.old, latest: s.sum}); err != nil {
			return false, err
		}
		s.unsynced.latest = s.sum
	}
	s.messages.Add(w.messages)
	s.doubt(w.doubtful)
	s.passed(w.at, w.last, w.lastStored, w.messages > 0)
	return err == nil && w.at == seg.end, err
}

// setSegmentTime gives a full segment the time of its last message, which is
// when the source wrote it: brokers expire segments by their time stamps. A
// time that no file can have is left alone.
func setSegmentTime(path string, stored commitlog.Millis) error {
	if stored <= 0 || stored > math.MaxInt64/commitlog.Millis(time.Millisecond) {
		return nil
	}
	info, err := os.Lstat(path)
	if err == nil && !info.ModTime().Equal(stored.Time()) {
		err = os.Chtimes(path, stored.Time(), stored.Time())
	}
	if err != nil {
		return fmt.Errorf("set time of full segment: %w", err)
	}
	return nil
}

// passed moves the verified end to at, and with it what is known of the last
// message, in one step: Run takes both together.
func (s *Store) passed(at, last wire.PhyOffset, stored commitlog.Millis, message bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if message {
		s.lastMessage.Store(int64(last))
		s.lastStored.Store(int64(stored))
	}
	s.verified.Store(int64(at))
}
