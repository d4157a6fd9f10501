package metadata

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/wire"
)

// ErrTarget is matched by the error for a place in config/ that is not ours to
// replace: a symbolic link, a directory, a device.
var ErrTarget = errors.New("not a regular file, it is left alone")

// tempPrefix marks the files of this package in DIR/.haagent/tmp, which others
// use too.
const tempPrefix = "config-"

// disk is everything that is written, and the only place where it is. Its methods
// are not called at the same time.
type disk struct {
	root string // the store's root, DIR

	// before is called ahead of every step that changes something, with its name
	// and its target. An error ends the step there. Tests fail and count steps
	// with it; it is nil otherwise.
	before func(step, path string) error
}

func (d *disk) config() string      { return filepath.Join(d.root, "config") }
func (d *disk) temp() string        { return filepath.Join(d.root, ".haagent", "tmp") }
func (d *disk) history() string     { return filepath.Join(d.root, ".haagent", "metadata") }
func (d *disk) objects() string     { return filepath.Join(d.history(), "objects") }
func (d *disk) generations() string { return filepath.Join(d.history(), "generations") }

func (d *disk) step(name, path string) error {
	if d.before == nil {
		return nil
	}
	return d.before(name, path)
}

// prepare makes the directories and removes files that a killed process left on
// their way. Directories of ours are 0700: history holds what config/ holds.
func (d *disk) prepare() error {
	info, err := os.Stat(d.root)
	if err != nil {
		return fmt.Errorf("store root: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("store root %s: %w", d.root, syscall.ENOTDIR)
	}
	for _, dir := range []string{d.temp(), d.objects(), d.generations()} {
		if err := d.step("mkdir", dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a directory for config history: %w", err)
		}
	}
	left, err := os.ReadDir(d.temp())
	if err != nil {
		return fmt.Errorf("read the temporary directory: %w", err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			if err := d.remove(filepath.Join(d.temp(), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeConfig makes config/ where it does not exist yet, with the store root's
// mode and owner. A link in its place is refused.
func (d *disk) makeConfig() error {
	dir := d.config()
	info, err := os.Lstat(dir)
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s: %w", dir, ErrTarget)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("config directory: %w", err)
	}
	root, err := os.Stat(d.root)
	if err != nil {
		return fmt.Errorf("store root: %w", err)
	}
	if err := d.step("mkdir", dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, root.Mode().Perm()); err != nil {
		return fmt.Errorf("config directory: %w", err)
	}
	if err := own(dir, root); err != nil {
		return err
	}
	return d.syncDir(d.root)
}

// own gives path the owner of the file that info describes. Only root can, and
// only root needs to: others make files that are theirs, as the broker would.
func own(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
		return fmt.Errorf("owner of %s: %w", path, err)
	}
	return nil
}

// target looks at a place in config/. It returns nil where nothing stands yet,
// and ErrTarget for what must not be replaced.
func (d *disk) target(name string) (fs.FileInfo, error) {
	path := filepath.Join(d.config(), name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a %v: %w", path, info.Mode().Type(), ErrTarget)
	}
	return info, nil
}

// put replaces path by content: a temporary file on the same file system, write,
// fsync, rename, fsync of the directory. like gives mode and owner; without it
// the mode is 0644 and the owner that of the store root. After a failure path is
// as it was, and what was written is thrown away, never synced again.
func (d *disk) put(path string, content []byte, like fs.FileInfo) (err error) {
	if err := d.step("create", path); err != nil {
		return err
	}
	f, err := os.CreateTemp(d.temp(), tempPrefix+"*")
	if err != nil {
		return fmt.Errorf("temporary file for %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, drop(f))
		}
	}()
	mode := fs.FileMode(0o644)
	if like != nil {
		mode = like.Mode().Perm()
	} else if like, err = os.Stat(d.root); err != nil {
		return fmt.Errorf("store root: %w", err)
	}
	if err := f.Chmod(mode); err != nil {
		return fmt.Errorf("mode of %s: %w", path, err)
	}
	if err := own(f.Name(), like); err != nil {
		return err
	}
	if err := d.step("write", path); err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := d.step("fsync", path); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fsync %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", path, err)
	}
	if err := d.step("rename", path); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("put %s in place: %w", path, err)
	}
	return d.syncDir(filepath.Dir(path))
}

// drop throws a temporary file away. It may be closed, or renamed, already.
func drop(f *os.File) error {
	if err := f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("close %s: %w", f.Name(), err)
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a temporary file: %w", err)
	}
	return nil
}

func (d *disk) syncDir(dir string) (err error) {
	if err := d.step("syncdir", dir); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("fsync directory: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("fsync directory %s: %w", dir, err)
	}
	return nil
}

func (d *disk) remove(path string) error {
	if err := d.step("remove", path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}

// openRegular opens a regular file below dir without following a link in its
// place and without waiting for the other end of a FIFO. The error matches
// fs.ErrNotExist where there is none, and ErrTarget for anything else.
func openRegular(dir, name string) (*os.File, fs.FileInfo, error) {
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return nil, nil, fmt.Errorf("%s: %w", path, ErrTarget)
	}
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w", path, ErrTarget)
	}
	if err == nil && wire.ByteSize(info.Size()) > MaxFile {
		err = fmt.Errorf("%s: %w: %d bytes, at most %v", path, ErrTooLarge, info.Size(), MaxFile)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// hashOf returns the hash of a regular file's content.
func hashOf(dir, name string) (h Hash, info fs.FileInfo, err error) {
	f, info, err := openRegular(dir, name)
	if err != nil {
		return Hash{}, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, int64(MaxFile)+1)); err != nil {
		return Hash{}, nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	sum.Sum(h[:0])
	return h, info, nil
}

// readRegular returns a regular file's content, at most MaxFile bytes.
func readRegular(dir, name string) (b []byte, err error) {
	f, info, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return readFrom(f, info)
}

// readFrom reads to the end, in one piece of the size that the file has, or of
// what it has grown to meanwhile.
func readFrom(f *os.File, info fs.FileInfo) ([]byte, error) {
	b := make([]byte, info.Size()+1)
	n, err := io.ReadFull(f, b)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return b[:n], nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	rest, err := io.ReadAll(io.LimitReader(f, int64(MaxFile)+1-int64(n)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return slices.Concat(b, rest), nil
}
