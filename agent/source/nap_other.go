//go:build unix && !linux

package source

import "time"

// nap waits for d, or what the run-time's timers make of it.
func nap(d time.Duration) { <-time.After(d) }
