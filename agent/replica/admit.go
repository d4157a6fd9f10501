package replica

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// admit decides whether the directory may be replicated into, and asserts the
// boot contract. It changes nothing unless it may.
func (s *Store) admit() error {
	dir := s.opt.Dir
	kind, err := Classify(dir, s.logDir)
	if err != nil {
		return err
	}
	switch kind {
	case KindStore:
		return fmt.Errorf("%s: %w", s.logDir, ErrForeignStore)
	case KindNotStore:
		return fmt.Errorf("%s: %w", dir, ErrNotStore)
	case KindReplica:
		if s.state, err = ReadState(dir); err != nil {
			return err
		}
		if s.state.Promoted {
			return fmt.Errorf("%s: %w", dir, ErrPromoted)
		}
		if s.state.SegmentSize != s.opt.SegmentSize {
			return fmt.Errorf("%s holds segments of %s, the source has %s: %w", s.logDir, s.state.SegmentSize, s.opt.SegmentSize, ErrSegmentSize)
		}
	default:
		s.state = State{Format: stateFormat, SegmentSize: s.opt.SegmentSize, Start: wire.NoOffset, VerifiedEnd: wire.NoOffset, LastMessage: wire.NoOffset}
	}
	s.state.CommitLogDir = ""
	if s.logDir != CommitLogDir(dir) {
		if s.state.CommitLogDir, err = filepath.Abs(s.logDir); err != nil {
			return fmt.Errorf("find the commit log: %w", err)
		}
	}
	if s.boot, err = bootID(); err != nil {
		return err
	}
	if s.opt.Cluster != "" || s.opt.BrokerName != "" {
		s.state.Cluster, s.state.BrokerName = s.opt.Cluster, s.opt.BrokerName
	}
	if traces := brokerTraces(dir); len(traces) > 0 {
		segments, err := commitlog.List(s.logDir)
		if err != nil {
			return err
		}
		if len(segments) > 0 && !s.opt.Disturbed {
			return fmt.Errorf("%s has %v: %w", dir, traces, ErrBrokerWrote)
		}
		if err := setAside(dir, s.opt.Now(), traces...); err != nil {
			return err
		}
	}
	if err := s.assertBootContract(); err != nil {
		return err
	}
	return removeLeftovers(filepath.Join(AgentDir(dir), "tmp"))
}

// assertBootContract makes sure that a broker which boots on the directory, now
// or after a crash, rebuilds its queues from the log.
func (s *Store) assertBootContract() error {
	for _, dir := range []string{s.logDir, AgentDir(s.opt.Dir)} {
		if err := makeDir(dir); err != nil {
			return fmt.Errorf("prepare store: %w", err)
		}
	}
	abort := filepath.Join(s.opt.Dir, abortName)
	f, err := os.OpenFile(abort, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("leave abort marker: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("leave abort marker: %w", err)
	}
	return syncDir(s.opt.Dir)
}
