package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// Intact checks that nobody else has changed the store: the segments are the
// ones we made, the boot contract stands, the lock is still the one that others
// would find, and no broker has left traces (a broker that finds the store
// locked has already changed it by then). The error matches ErrDisturbed, unless
// it could not be found out.
func (s *Store) Intact() error {
	s.layout.Lock()
	defer s.layout.Unlock()
	if traces := brokerTraces(s.opt.Dir); len(traces) > 0 {
		return fmt.Errorf("%s: %v appeared: %w", s.opt.Dir, traces, ErrDisturbed)
	}
	if _, err := os.Lstat(filepath.Join(s.opt.Dir, abortName)); err != nil {
		return fmt.Errorf("abort marker: %w: %w", err, ErrDisturbed)
	}
	if err := s.lock.check(); err != nil {
		return err
	}
	bases, err := s.listBases()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(bases, s.bases) {
		return fmt.Errorf("%s: segments appeared or vanished: %w", s.logDir, ErrDisturbed)
	}
	for _, seg := range s.open {
		// A copy that was renamed over a segment would look the same by name and
		// length, while what we append went into the old file.
		if err := sameFile(seg.path, seg.id); err != nil {
			return err
		}
	}
	return nil
}

// listBases lists the segments, which must all be of full length.
func (s *Store) listBases() ([]wire.PhyOffset, error) {
	segments, err := commitlog.List(s.logDir)
	var foreign *commitlog.ForeignFileError
	if errors.As(err, &foreign) {
		return nil, fmt.Errorf("%w: %w", err, ErrDisturbed)
	}
	if err != nil {
		return nil, err
	}
	bases := make([]wire.PhyOffset, 0, len(segments))
	for _, seg := range segments {
		if seg.Size != s.opt.SegmentSize {
			return nil, fmt.Errorf("%s is %d bytes long: %w", seg.Path, seg.Size, ErrDisturbed)
		}
		bases = append(bases, seg.Base)
	}
	return bases, nil
}
