package forge

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// lockByte locks the first byte of f with a lock that belongs to the open file:
// brokers see it, and closing another descriptor of the file does not drop it.
func lockByte(f *os.File) error {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{
		Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1,
	})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return ErrLocked
	}
	return err
}
