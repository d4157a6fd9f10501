package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
	if err := s.holds(at, wire.ByteSize(len(p))); err != nil {
		return err
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

// holds returns an error unless [at, at+n) is verified and still there.
func (s *Store) holds(at wire.PhyOffset, n wire.ByteSize) error {
	verified, start := wire.PhyOffset(s.verified.Load()), wire.PhyOffset(s.min.Load())
	if at < start || at > verified || n > verified.Sub(at) {
		return fmt.Errorf("read %d bytes at %d: the replica holds [%d, %d)", n, at, start, verified)
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
	n := wire.ByteSize(int32(binary.BigEndian.Uint32(size[:])))
	if n < commitlog.MinRecord || n > commitlog.MaxRecord {
		return nil, fmt.Errorf("no message starts at %d: its size would be %d", at, n)
	}
	if err := s.holds(at, n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if err := s.ReadAt(b, at); err != nil {
		return nil, err
	}
	return b, nil
}

// LastMessage returns where the last verified message starts, wire.NoOffset
// where there is none, or none any more.
func (s *Store) LastMessage() wire.PhyOffset {
	if last := s.lastMessage.Load(); last >= s.min.Load() {
		return wire.PhyOffset(last)
	}
	return wire.NoOffset
}

// MessageBefore returns the last verified message that ends at or before at; ok says
// whether there is one that can be found. It reads the segment from its beginning.
func (s *Store) MessageBefore(ctx context.Context, at wire.PhyOffset) (start, end wire.PhyOffset, ok bool) {
	at = min(at, wire.PhyOffset(s.verified.Load()))
	first := wire.PhyOffset(s.min.Load())
	for base := at.SegmentBase(s.opt.SegmentSize); base >= first && base >= 0; base = base.Add(-s.opt.SegmentSize) {
		if start, end, ok = s.lastBefore(ctx, base, at); ok || ctx.Err() != nil {
			break
		}
	}
	return start, end, ok
}

// lastBefore is MessageBefore from the segment at base on.
func (s *Store) lastBefore(ctx context.Context, base, at wire.PhyOffset) (start, end wire.PhyOffset, ok bool) {
	sc, err := commitlog.NewScanner(s.logDir, s.opt.SegmentSize, base)
	if err != nil {
		return 0, 0, false
	}
	defer func() { ok = sc.Close() == nil && ok }()
	for ctx.Err() == nil && sc.Next() && sc.Record().End() <= at {
		start, end, ok = sc.Record().PhyOffset, sc.Record().End(), true
	}
	return start, end, ok
}

// DropBefore removes the segments that lie wholly before offset, oldest first,
// but never the last one, nor one whose end is not synced, nor one that the next
// process needs to believe what was acked (retention). It returns how many went.
func (s *Store) DropBefore(offset wire.PhyOffset) (int, error) {
	s.layout.Lock()
	defer s.layout.Unlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	saved := false
	for dropped := 0; ; {
		s.mu.Lock()
		if len(s.bases) < 2 || s.bases[1] > min(offset, wire.PhyOffset(s.flushed.Load())) || saved && s.bases[1] > s.vouched() {
			s.mu.Unlock()
			return dropped, nil
		}
		base, next := s.bases[0], s.bases[1]
		s.mu.Unlock()
		if !saved {
			// What is known to be synced must not lie before what there is.
			if err := s.saveState(); err != nil {
				return 0, err
			}
			saved = true
			continue
		}
		if err := s.dropOldest(base, next); err != nil {
			return dropped, fmt.Errorf("drop old segment: %w", err)
		}
		dropped++
	}
}

// vouched returns how far the next process can do without the log: what the mark
// sums up must stay. The caller holds mu.
func (s *Store) vouched() wire.PhyOffset {
	if s.opt.Ack == AckDisk {
		return everything
	}
	return s.spoken.needs(wire.PhyOffset(s.saved.Load()))
}

// dropOldest removes the segment at base, which next follows. Readers are told
// before it goes. The directory is synced each time, because a crash must not
// leave an older segment where a younger one has gone. The caller holds layout.
func (s *Store) dropOldest(base, next wire.PhyOffset) error {
	s.min.Store(int64(next))
	switch err := os.Remove(filepath.Join(s.logDir, commitlog.Name(base))); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", err, ErrDisturbed)
	case err != nil:
		s.min.Store(int64(base))
		return err
	}
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	s.bases = s.bases[1:]
	var err error
	if len(s.open) > 0 && s.open[0].base == base { // kept open because nothing was synced since
		err = s.open[0].close()
		s.open = s.open[1:]
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("close dropped segment: %w", err)
	}
	if err := s.opt.disk.syncDir(s.logDir); err != nil {
		return s.fail(fmt.Errorf("%w: %w", ErrFlush, err))
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
// last. The store is closed afterwards. A store that is not Intact is refused:
// it must be opened again first. After any error but that of the last step the
// store is as it was, and may be promoted again.
func (s *Store) Promote() (State, error) {
	if err := s.usable(); err != nil {
		return State{}, err
	}
	if err := s.Intact(); err != nil {
		return State{}, err
	}
	if err := s.settle(); err != nil {
		return State{}, err
	}
	if err := s.assertBootContract(); err != nil {
		return State{}, err
	}
	state := s.State()
	state.Promoted = true
	state.Epoch++
	s.saving.Lock()
	err := writeState(s.opt.Dir, state)
	s.saving.Unlock()
	if err != nil {
		return State{}, err
	}
	s.mu.Lock()
	s.state = state
	s.mu.Unlock()
	return state, errors.Join(s.closeSegments(), s.lock.Release())
}
