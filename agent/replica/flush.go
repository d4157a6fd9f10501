package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// Intervals of the flusher.
const (
	// lazyFlush bounds how much an AckMemory replica loses with its machine; it
	// is the default of a broker's own flush interval.
	lazyFlush = 500 * time.Millisecond
	// stateInterval bounds how much of the log is walked after a kill.
	stateInterval = 2 * time.Second
)

// Run keeps the flushed end close behind the verified end until ctx ends: at
// once with AckDisk, where all messages that arrive during one fdatasync share
// the next, and twice a second with AckMemory. It returns an error matching
// ErrFlush when a sync fails; the store must then be abandoned and opened anew
// with OnlySynced, because the kernel may have dropped the failed pages. After
// any other error (state.json could not be written) Run may be called again.
func (s *Store) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var stateWritten time.Time
	wake.Send(s.nudge) // the last Run may have left something undone
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.nudge:
		}
		if s.opt.Ack == AckMemory {
			timer.Reset(lazyFlush)
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
		}
		if err := s.sync(); err != nil {
			return err
		}
		if now := s.opt.Now(); now.Sub(stateWritten) >= stateInterval {
			if err := s.saveState(); err != nil {
				return err
			}
			stateWritten = now
		}
	}
}

// sync makes everything verified durable and moves the flushed end.
func (s *Store) sync() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	s.mu.Lock()
	verified, lastMessage := wire.PhyOffset(s.verified.Load()), wire.PhyOffset(s.lastMessage.Load())
	var dirty []*segment
	for _, seg := range s.open {
		if seg.base < verified {
			dirty = append(dirty, seg)
		}
	}
	newDir := s.newDir
	s.newDir = false
	s.mu.Unlock()
	if int64(verified) == s.flushed.Load() && !newDir {
		return nil
	}
	for _, seg := range dirty {
		began := time.Now()
		err := seg.file.datasync()
		s.opt.Fsync.Observe(time.Since(began))
		if err != nil {
			return s.fail(fmt.Errorf("segment at %d: %w: %w", seg.base, ErrFlush, err))
		}
	}
	if newDir {
		if err := s.opt.disk.syncDir(s.logDir); err != nil {
			return s.fail(fmt.Errorf("%w: %w", ErrFlush, err))
		}
	}
	s.mu.Lock()
	s.state.VerifiedEnd, s.state.LastMessage = verified, lastMessage
	doubtful, provisional := s.doubtful(verified), s.state.Provisional
	if !s.expecting.Load() && s.written.Load() == int64(verified) {
		s.state.Provisional = false // all that was is confirmed by now, or gone
	}
	s.mu.Unlock()
	if doubtful {
		if err := s.saveState(); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.state.Provisional = s.state.Provisional || provisional // as on disk
			return err
		}
	}
	s.mu.Lock()
	s.flushed.Store(int64(verified))
	s.mu.Unlock()
	s.listeners.Wake()
	return s.closeFlushed(verified)
}

// doubtful reports whether the next process would not believe all of the log up
// to verified, synced as it is, unless the state says so: then it must say so
// before that is acked. After a crash of the machine a BLANK proves nothing about
// what follows it, nor does a message with zeros where text belongs; and behind
// provisional bytes no message does. The caller holds mu.
func (s *Store) doubtful(verified wire.PhyOffset) bool {
	flushed, size := wire.PhyOffset(s.flushed.Load()), s.opt.SegmentSize
	return verified.SegmentBase(size) > flushed.SegmentBase(size) || s.doubts > flushed || s.state.Provisional
}

// doubt notes a message that ends at end and looks like one with lost pages.
func (s *Store) doubt(end wire.PhyOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts = max(s.doubts, end)
}

// closeFlushed gives back the descriptors of segments that are done with.
func (s *Store) closeFlushed(flushed wire.PhyOffset) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for len(s.open) > 1 && s.open[0].end <= flushed {
		errs = append(errs, s.open[0].close())
		s.open = s.open[1:]
	}
	return errors.Join(errs...)
}

// fail notes that a sync failed, for good: the kernel drops the pages that it
// could not write, and the next sync succeeds without them. The note in the
// state is for the next process; the same disk may refuse it too.
func (s *Store) fail(err error) error {
	s.mu.Lock()
	if s.failed == nil {
		s.failed = err
	}
	s.state.Unsynced = true
	s.mu.Unlock()
	return errors.Join(err, s.saveState())
}

func (s *Store) saveState() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	if err := writeState(s.opt.Dir, state); err != nil {
		return err
	}
	s.saved.Store(int64(state.VerifiedEnd))
	return nil
}

// flush is sync and saveState, for those who run while Run does not.
func (s *Store) flush() error {
	if err := s.sync(); err != nil {
		return err
	}
	return s.saveState()
}

// AdoptEpoch raises the replica's epoch to that of the source that it follows,
// and writes that down: from then on an older master is not followed any more.
func (s *Store) AdoptEpoch(epoch int64) error {
	if err := s.usable(); err != nil {
		return err
	}
	return note(s, &s.state.Epoch, max(epoch, s.State().Epoch))
}

// ExpectProvisional is called before bytes are appended that the source has not
// confirmed, and notes it for the next process. It writes unless bytes of that
// kind are there already.
func (s *Store) ExpectProvisional() error {
	if err := s.usable(); err != nil {
		return err
	}
	s.expecting.Store(true)
	return note(s, &s.state.Provisional, true)
}

// note sets one field of the state, and writes the state where that changed it.
// After an error the field is as it was, and as on disk, so that it is tried again.
func note[T comparable](s *Store, field *T, value T) error {
	s.mu.Lock()
	before := *field
	*field = value
	s.mu.Unlock()
	if before == value {
		return nil
	}
	err := s.saveState()
	if err != nil {
		s.mu.Lock()
		*field = before
		s.mu.Unlock()
	}
	return err
}
