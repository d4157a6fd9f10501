//go:build unix

package commitlog

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/wire"
)

// View is a read-only memory map of one segment file, as long as the file was
// when it was opened. It shows what the broker stores into its own map at once.
// It stays readable when the file is deleted; when the file is cut short, reading
// behind its new end faults, so read it under [Guard].
//
// A View may be read by several goroutines; none may read it after Close.
type View struct {
	path string
	data []byte
}

// OpenView maps the segment file at path, which must be a regular file and no
// symbolic link.
func OpenView(path string) (*View, error) {
	// O_NONBLOCK keeps a FIFO of that name from holding us up.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	v, err := mapFile(f)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		return nil, fmt.Errorf("map segment: %w", closeErr)
	}
	return v, err
}

func mapFile(f *os.File) (*View, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("map segment: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, &ForeignFileError{Path: f.Name(), Reason: fmt.Sprintf("a %v instead of a regular file", info.Mode().Type())}
	}
	v := &View{path: f.Name()}
	if info.Size() == 0 {
		return v, nil // there is no map of nothing
	}
	if info.Size() > math.MaxInt {
		return nil, fmt.Errorf("map segment %s: %d bytes do not fit into the address space", f.Name(), info.Size())
	}
	v.data, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return v, nil
}

// Path returns the path that the view was opened with.
func (v *View) Path() string { return v.path }

// Size returns the length of the view.
func (v *View) Size() wire.ByteSize { return wire.ByteSize(len(v.data)) }

// Bytes returns the mapped bytes. They are read-only: storing into them ends the
// process. They are gone after Close.
func (v *View) Bytes() []byte { return v.data }

// AdviseSequential tells the kernel that the view will be read once, in order.
func (v *View) AdviseSequential() error { return v.advise(unix.MADV_SEQUENTIAL) }

// AdviseRandom tells the kernel to read nothing ahead of what is read.
func (v *View) AdviseRandom() error { return v.advise(unix.MADV_RANDOM) }

// AdviseWillNeed tells the kernel to read the view ahead.
func (v *View) AdviseWillNeed() error { return v.advise(unix.MADV_WILLNEED) }

// AdviseDone takes the pages of the view out of this process. They stay in the
// page cache, and come back when they are read again.
func (v *View) AdviseDone() error { return v.advise(unix.MADV_DONTNEED) }

func (v *View) advise(advice int) error {
	if len(v.data) == 0 {
		return nil
	}
	if err := unix.Madvise(v.data, advice); err != nil {
		return &os.PathError{Op: "madvise", Path: v.path, Err: err}
	}
	return nil
}

// Close unmaps the view. Closing it again does nothing.
func (v *View) Close() error {
	data := v.data
	v.data = nil
	if len(data) == 0 {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return &os.PathError{Op: "munmap", Path: v.path, Err: err}
	}
	return nil
}
