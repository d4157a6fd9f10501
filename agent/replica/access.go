package replica

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// DifferenceError says that a source and the replica hold different bytes.
type DifferenceError struct {
	PhyOffset wire.PhyOffset // of the first one that differs
}

// Error implements error.
func (e *DifferenceError) Error() string {
	return fmt.Sprintf("source and replica differ at offset %d", e.PhyOffset)
}

// ReadAt reads the replica's own bytes from offset at on, over the ends of
// segments. It fails where the verified end comes before p is full.
func (s *Store) ReadAt(p []byte, at wire.PhyOffset) error {
	verified, start := wire.PhyOffset(s.verified.Load()), wire.PhyOffset(s.min.Load())
	if at < start || at.Add(wire.ByteSize(len(p))) > verified {
		return fmt.Errorf("read %d bytes at %d: the replica holds [%d, %d)", len(p), at, start, verified)
	}
	for len(p) > 0 {
		base := at.SegmentBase(s.opt.SegmentSize)
		n := min(wire.ByteSize(len(p)), base.Add(s.opt.SegmentSize).Sub(at))
		if err := readSegment(filepath.Join(s.logDir, commitlog.Name(base)), p[:n], int64(at.Sub(base))); err != nil {
			return fmt.Errorf("read at %d: %w", at, err)
		}
		p, at = p[n:], at.Add(n)
	}
	return nil
}

func readSegment(path string, p []byte, off int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = f.ReadAt(p, off)
	return errors.Join(err, f.Close())
}

// Compare holds what a source sent for offset at against the replica's own
// verified bytes. It returns a *DifferenceError where they are not the same.
func (s *Store) Compare(at wire.PhyOffset, p []byte) error {
	own := make([]byte, min(len(p), 64<<10))
	for len(p) > 0 {
		n := min(len(p), len(own))
		if err := s.ReadAt(own[:n], at); err != nil {
			return err
		}
		if !bytes.Equal(own[:n], p[:n]) {
			for i := range n {
				if own[i] != p[i] {
					return &DifferenceError{PhyOffset: at.Add(wire.ByteSize(i))}
				}
			}
		}
		p, at = p[n:], at.Add(wire.ByteSize(n))
	}
	return nil
}

// Message returns the whole message that starts at the boundary at, which is
// what a source is asked for to prove that it is the same log.
func (s *Store) Message(at wire.PhyOffset) ([]byte, error) {
	var size [4]byte
	if err := s.ReadAt(size[:], at); err != nil {
		return nil, err
	}
	n := wire.ByteSize(int32(uint32(size[0])<<24 | uint32(size[1])<<16 | uint32(size[2])<<8 | uint32(size[3])))
	if n < commitlog.MinRecord || n > commitlog.MaxRecord {
		return nil, fmt.Errorf("no message starts at %d: its size would be %d", at, n)
	}
	b := make([]byte, n)
	return b, s.ReadAt(b, at)
}

// LastMessage returns where the last verified message starts, wire.NoOffset
// where there is none.
func (s *Store) LastMessage() wire.PhyOffset { return wire.PhyOffset(s.lastMessage.Load()) }

// DropBefore removes the segments that lie wholly before offset, oldest first,
// but never the last one (retention). It returns how many went.
func (s *Store) DropBefore(offset wire.PhyOffset) (int, error) {
	s.layout.Lock()
	defer s.layout.Unlock()
	dropped := 0
	for {
		s.mu.Lock()
		if len(s.bases) < 2 || s.bases[1] > offset || s.bases[1] > wire.PhyOffset(s.flushed.Load()) {
			s.mu.Unlock()
			return dropped, nil
		}
		base, next := s.bases[0], s.bases[1]
		s.bases = s.bases[1:]
		s.newDir = true
		s.min.Store(int64(next))
		s.mu.Unlock()
		if err := os.Remove(filepath.Join(s.logDir, commitlog.Name(base))); err != nil {
			return dropped, fmt.Errorf("drop old segment: %w", err)
		}
		dropped++
	}
}

// Intact checks that nobody else has changed the store: the segments are the
// ones we made, the boot contract stands, and no broker has left traces (a
// broker that finds the store locked has already changed it by then). The error
// matches ErrDisturbed.
func (s *Store) Intact() error {
	s.layout.Lock()
	defer s.layout.Unlock()
	if traces := brokerTraces(s.opt.Dir); len(traces) > 0 {
		return fmt.Errorf("%s: %v appeared: %w", s.opt.Dir, traces, ErrDisturbed)
	}
	if _, err := os.Lstat(filepath.Join(s.opt.Dir, abortName)); err != nil {
		return fmt.Errorf("abort marker: %w: %w", err, ErrDisturbed)
	}
	segments, err := commitlog.List(s.logDir)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrDisturbed)
	}
	bases := make([]wire.PhyOffset, 0, len(segments))
	for _, seg := range segments {
		if seg.Size != s.opt.SegmentSize {
			return fmt.Errorf("%s is %d bytes long: %w", seg.Path, seg.Size, ErrDisturbed)
		}
		bases = append(bases, seg.Base)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(bases, s.bases) {
		return fmt.Errorf("%s: segments appeared or vanished: %w", s.logDir, ErrDisturbed)
	}
	return nil
}

// MissHistory notes that the source had older messages than the replica could
// ask for.
func (s *Store) MissHistory(before wire.PhyOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.HistoryFrom = before
}

// Promote hands the replica to a broker: what is behind the last whole message
// is zeroed, everything is synced, the epoch goes up, and the lock is released
// last. The store is closed afterwards.
func (s *Store) Promote() (State, error) {
	if err := s.settle(); err != nil {
		return State{}, err
	}
	s.mu.Lock()
	s.state.Promoted = true
	s.state.Epoch++
	state := s.state
	s.mu.Unlock()
	if err := s.assertBootContract(); err != nil {
		return State{}, err
	}
	if err := writeState(s.opt.Dir, state); err != nil {
		return State{}, err
	}
	return state, errors.Join(s.closeSegments(), s.lock.Release())
}
