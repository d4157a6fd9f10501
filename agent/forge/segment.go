//go:build unix

package forge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// segment is one file, mapped for writing.
type segment struct {
	base wire.PhyOffset
	data []byte
}

// createSegment makes the segment file at base as a broker does: under its final
// name, and then as long as all others. One that is there already is left alone.
func createSegment(dir string, base wire.PhyOffset, size wire.ByteSize) error {
	path := filepath.Join(dir, commitlog.Name(base))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	err = f.Truncate(int64(size))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	return nil
}

// openSegment maps the segment file at base.
func openSegment(dir string, base wire.PhyOffset, size wire.ByteSize) (*segment, error) {
	path := filepath.Join(dir, commitlog.Name(base))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() != int64(size) {
		err = &commitlog.LengthError{Path: path, Size: wire.ByteSize(info.Size()), Want: size}
	}
	var data []byte
	if err == nil {
		data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = errors.Join(closeErr, unix.Munmap(data))
	}
	if err != nil {
		return nil, fmt.Errorf("map segment %s: %w", path, err)
	}
	return &segment{base: base, data: data}, nil
}

// store copies b to offset at. On a full disk the copy faults, and the error says so.
func (s *segment) store(at wire.PhyOffset, b []byte) error {
	err := commitlog.Guard(func() error {
		copy(s.data[at.Sub(s.base):], b)
		return nil
	})
	if err != nil {
		return fmt.Errorf("store %d bytes at offset %d: %w", len(b), at, err)
	}
	return nil
}

func (s *segment) sync() error {
	if err := unix.Msync(s.data, unix.MS_SYNC); err != nil {
		return fmt.Errorf("sync segment %s: %w", commitlog.Name(s.base), err)
	}
	return nil
}

func (s *segment) close() error {
	data := s.data
	s.data = nil
	if data == nil {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmap segment %s: %w", commitlog.Name(s.base), err)
	}
	return nil
}
