package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process (a broker, or another agent) holds the
// store's lock.
var ErrLocked = errors.New("store is locked by another process")

// Lock is the store lock that brokers take: an fcntl write lock on byte 0 of
// DIR/lock. It is taken as an open-file-description lock: Java's FileLock sees
// it, and it does not vanish when some other descriptor of the file is closed.
type Lock struct {
	f *os.File // as opened: its name is the path
}

// AcquireLock creates dir and its lock file where they are missing and locks
// it. It returns an error matching ErrLocked, which names the holder where the
// kernel tells it, if somebody else has it.
func AcquireLock(dir string) (*Lock, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("create store directory: %w", err)
	}
	return acquire(filepath.Join(dir, "lock"))
}

// AcquireAgentLock keeps other agents away from a store that a broker has locked:
// it locks DIR/.haagent/agent.lock as AcquireLock does DIR/lock, and creates no
// more than that.
func AcquireAgentLock(dir string) (*Lock, error) {
	if err := os.MkdirAll(AgentDir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("create agent directory: %w", err)
	}
	return acquire(filepath.Join(AgentDir(dir), "agent.lock"))
}

func acquire(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open store lock: %w", err)
	}
	want := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 1}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &want)
	if err == nil {
		return &Lock{f: f}, nil
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		if err = heldBy(f); err == nil {
			err = ErrLocked // given up since
		}
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
}

// CheckLock returns an error matching ErrLocked if somebody holds the lock of
// the store at dir. It changes nothing, unlike AcquireLock, so it may be asked
// of any directory.
func CheckLock(dir string) error {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at store lock: %w", err)
	}
	if held := heldBy(f); held != nil {
		err = fmt.Errorf("%s: %w", f.Name(), held)
	}
	return errors.Join(err, f.Close())
}

// heldBy returns an error matching ErrLocked, with the process that has the
// lock where the kernel tells, or nil where nobody else has it.
func heldBy(f *os.File) error {
	holder := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 1}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &holder)
	switch {
	case err != nil:
		return fmt.Errorf("look at store lock: %w", err)
	case holder.Type == unix.F_UNLCK:
		return nil
	case holder.Pid > 0:
		return fmt.Errorf("%w (process %d)", ErrLocked, holder.Pid)
	}
	return ErrLocked
}

// check returns an error matching ErrDisturbed where others would not find the
// lock any more, because the file that has it was removed or replaced.
func (l *Lock) check() error {
	own, err := l.f.Stat()
	if err != nil {
		return fmt.Errorf("look at store lock: %w", err)
	}
	return sameFile(l.f.Name(), own)
}

// sameFile returns an error matching ErrDisturbed unless path still is the file
// that id is of.
func sameFile(path string, id os.FileInfo) error {
	now, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrDisturbed)
	}
	if !os.SameFile(now, id) {
		return fmt.Errorf("%s is not the file that was opened: %w", path, ErrDisturbed)
	}
	return nil
}

// Release gives the lock up. The file stays, as a broker leaves it.
func (l *Lock) Release() error { return l.f.Close() }
