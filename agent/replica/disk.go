package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/wire"
)

// disk is the narrow seam through which a store changes segments. Tests make
// any one call fail; nothing else stands in for the real file system.
type disk interface {
	// create makes a full-length segment appear at path at once, never in parts.
	create(path string, size wire.ByteSize) (segmentFile, error)
	open(path string) (segmentFile, error)
	syncDir(dir string) error
}

// segmentFile is what a store does to an open segment.
type segmentFile interface {
	// writev writes all of bufs at off. On an error it says how much was written.
	writev(bufs [][]byte, off int64) (int, error)
	// zero makes [off, off+n) read as zeros.
	zero(off, n int64) error
	datasync() error
	Close() error
}

// osDisk is the real thing. tmp is used where a file system cannot have
// unnamed files.
type osDisk struct{ tmp string }

func (d osDisk) syncDir(dir string) error { return syncDir(dir) }

func (d osDisk) open(path string) (segmentFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return newOSFile(f), nil
}

// create bears the segment unnamed in its own directory, allocates it and links
// it in: whoever lists the directory, after a kill at any instant too, sees it
// whole or not at all (I6).
func (d osDisk) create(path string, size wire.ByteSize) (segmentFile, error) {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		return d.createByRename(path, size)
	}
	if err != nil {
		return nil, &os.PathError{Op: "create unnamed segment for", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	if err := allocate(f, size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	proc := "/proc/self/fd/" + strconv.Itoa(fd)
	err = unix.Linkat(unix.AT_FDCWD, proc, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	switch {
	case err == nil:
		return newOSFile(f), nil
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT): // no /proc, or one that shows no such file
		if err := f.Close(); err != nil {
			return nil, err
		}
		return d.createByRename(path, size)
	}
	return nil, errors.Join(&os.PathError{Op: "link segment", Path: path, Err: err}, f.Close())
}

// createByRename is create where O_TMPFILE is not to be had. The temporary file
// is outside commitlog/, because a broker refuses to boot on anything else
// there, and has to be on the same file system.
func (d osDisk) createByRename(path string, size wire.ByteSize) (segmentFile, error) {
	if err := os.MkdirAll(d.tmp, 0o750); err != nil {
		return nil, err
	}
	tmp := filepath.Join(d.tmp, filepath.Base(path))
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	err = allocate(f, size)
	if err == nil {
		err = renameNew(tmp, path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(tmp))
	}
	return newOSFile(f), nil
}

// renameNew renames a file unless the new name is taken.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the file system cannot
		if _, err := os.Lstat(to); err == nil {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: unix.EEXIST}
		}
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// allocate gives f its full length with its blocks, so that neither a write nor
// a mapped read can run into a full disk later.
func allocate(f *os.File, size wire.ByteSize) error {
	err := ignoringEINTR(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, int64(size)) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = f.Truncate(int64(size))
	}
	if err != nil {
		return &os.PathError{Op: "allocate " + size.String() + " for", Path: f.Name(), Err: err}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := d.Sync(); err != nil {
		return errors.Join(fmt.Errorf("sync directory %s: %w", dir, err), d.Close())
	}
	return d.Close()
}

// maxIovecs is below IOV_MAX (1024) and above what one read of the stream holds.
const maxIovecs = 256

type osFile struct {
	f   *os.File
	fd  int
	iov [maxIovecs]unix.Iovec // reused: the append path does not allocate
}

func newOSFile(f *os.File) *osFile { return &osFile{f: f, fd: int(f.Fd())} }

func (o *osFile) Close() error { return o.f.Close() }

func (o *osFile) datasync() error {
	err := ignoringEINTR(func() error { return unix.Fdatasync(o.fd) })
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: o.f.Name(), Err: err}
	}
	return nil
}

func (o *osFile) writev(bufs [][]byte, off int64) (int, error) {
	done := 0
	for len(bufs) > 0 {
		n := 0
		for _, b := range bufs {
			if n == maxIovecs {
				break
			}
			if len(b) == 0 {
				continue
			}
			o.iov[n].Base = &b[0]
			o.iov[n].SetLen(len(b))
			n++
		}
		if n == 0 {
			return done, nil
		}
		pos := off + int64(done)
		w, _, errno := unix.Syscall6(unix.SYS_PWRITEV, uintptr(o.fd), uintptr(unsafe.Pointer(&o.iov[0])), uintptr(n), uintptr(pos), 0, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return done, &os.PathError{Op: "write", Path: o.f.Name(), Err: errno}
		}
		if w == 0 {
			return done, &os.PathError{Op: "write", Path: o.f.Name(), Err: unix.ENOSPC}
		}
		done += int(w)
		bufs = skip(bufs, int(w))
	}
	return done, nil
}

// skip drops the first n bytes of bufs, in place.
func skip(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs[0] = bufs[0][n:]
	}
	return bufs
}

// zero asks the file system to do it without writing, and writes where it cannot.
func (o *osFile) zero(off, n int64) error {
	if n <= 0 {
		return nil
	}
	const keep = unix.FALLOC_FL_KEEP_SIZE
	for _, mode := range []uint32{unix.FALLOC_FL_ZERO_RANGE | keep, unix.FALLOC_FL_PUNCH_HOLE | keep} {
		err := ignoringEINTR(func() error { return unix.Fallocate(o.fd, mode, off, n) })
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
			return &os.PathError{Op: "zero", Path: o.f.Name(), Err: err}
		}
	}
	return o.writeZeros(off, n)
}

// writeZeros is zero where the file system can do nothing else.
func (o *osFile) writeZeros(off, n int64) error {
	zeros := make([]byte, min(n, 256<<10))
	for n > 0 {
		piece := min(n, int64(len(zeros)))
		if _, err := o.writev([][]byte{zeros[:piece]}, off); err != nil {
			return err
		}
		off, n = off+piece, n-piece
	}
	return nil
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
