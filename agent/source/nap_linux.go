package source

import (
	"time"

	"golang.org/x/sys/unix"
)

// nap waits for less than a millisecond. The timers of the run-time are rounded
// up to whole ones when nothing else runs.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	// A nap that a signal cuts short was long enough.
	_ = unix.Nanosleep(&t, nil)
}
