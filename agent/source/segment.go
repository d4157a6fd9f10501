//go:build unix

package source

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// ErrNoSegment says that no segment holds an offset: it was deleted, is not
// there yet, or is missing.
var ErrNoSegment = errors.New("no segment holds this offset")

// Segment is an open segment file of its full length. It stays readable when the
// file is deleted, until Close; that gives its space back.
type Segment struct {
	Base wire.PhyOffset // of its first byte
	End  wire.PhyOffset // behind its last byte
	// File is a descriptor of its own, for sendfile. Its position is the
	// Segment's user's.
	File *os.File

	info os.FileInfo
	data []byte
}

// OpenSegment opens the segment that holds offset at, ErrNoSegment where there is
// none. How far it is filled is what Ends say.
func (s *Source) OpenSegment(at wire.PhyOffset) (*Segment, error) {
	size := s.SegmentSize()
	if size == 0 || at < 0 || at > math.MaxInt64-wire.PhyOffset(size) {
		return nil, fmt.Errorf("open segment for offset %d: %w", at, ErrNoSegment)
	}
	seg, err := openSegment(s.opt.CommitLogDir, at.SegmentBase(size), size)
	if err != nil {
		return nil, fmt.Errorf("open segment for offset %d: %w", at, err)
	}
	return seg, nil
}

// openSegment opens and maps the segment at base. It returns ErrNoSegment where
// there is no file, or an empty one: a broker is just creating it.
func openSegment(dir string, base wire.PhyOffset, size wire.ByteSize) (*Segment, error) {
	path := filepath.Join(dir, commitlog.Name(base))
	// O_NONBLOCK keeps a FIFO of that name from holding us up.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("%w: %w", ErrNoSegment, &os.PathError{Op: "open", Path: path, Err: err})
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	seg := &Segment{Base: base, End: base.Add(size), File: os.NewFile(uintptr(fd), path)}
	if err := seg.mapFile(size); err != nil {
		return nil, errors.Join(err, seg.Close())
	}
	return seg, nil
}

func (g *Segment) mapFile(size wire.ByteSize) error {
	info, err := g.File.Stat()
	if err != nil {
		return fmt.Errorf("map segment: %w", err)
	}
	switch path := g.File.Name(); {
	case !info.Mode().IsRegular():
		return &commitlog.ForeignFileError{Path: path, Reason: fmt.Sprintf("a %v instead of a regular file", info.Mode().Type())}
	case info.Size() == 0:
		return fmt.Errorf("%w: %s is empty", ErrNoSegment, path)
	case info.Size() != int64(size):
		return &commitlog.LengthError{Path: path, Size: wire.ByteSize(info.Size()), Want: size}
	case size > math.MaxInt:
		return fmt.Errorf("map segment %s: %d bytes do not fit into the address space", path, size)
	}
	g.info = info
	g.data, err = unix.Mmap(int(g.File.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return &os.PathError{Op: "mmap", Path: g.File.Name(), Err: err}
	}
	return nil
}

// Bytes returns the whole segment, mapped and read-only: storing into it ends the
// process. Read it under [commitlog.Guard], because it faults where the file was
// cut short. It is gone after Close.
func (g *Segment) Bytes() []byte { return g.data }

// releasePages takes the segment's pages out of this process; they stay in the
// page cache.
func (g *Segment) releasePages() {
	// It is advice: where it is not taken, nothing is lost.
	_ = unix.Madvise(g.data, unix.MADV_DONTNEED)
}

// Close closes the file and its map. Closing it again does nothing.
func (g *Segment) Close() error {
	var err error
	if g.data != nil {
		if err = unix.Munmap(g.data); err != nil {
			err = &os.PathError{Op: "munmap", Path: g.File.Name(), Err: err}
		}
		g.data = nil
	}
	if g.File != nil {
		err = errors.Join(err, g.File.Close())
		g.File = nil
	}
	return err
}
