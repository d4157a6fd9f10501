package agent

import (
	"sync/atomic"
	"time"
)

// turnWithin is how long a look at the store may take, which is due every
// watchInterval. Disks that are busy answer within it.
const turnWithin = 30 * time.Second

// pulse tells a loop that turns from one that hangs. The zero value rests.
type pulse struct {
	due atomic.Int64 // unix nanoseconds by which the loop turns again; 0: it rests
}

// turn says that the loop goes round, and will again within a span.
func (p *pulse) turn(within time.Duration) { p.due.Store(time.Now().Add(within).UnixNano()) }

// rest says that the loop has ended, or waits for something that may take long.
func (p *pulse) rest() { p.due.Store(0) }

func (p *pulse) beats() bool {
	due := p.due.Load()
	return due == 0 || time.Now().UnixNano() < due
}

// Working reports whether the role's loop goes round. It does not while a look at
// the store has taken more than 30 s, whatever it hangs in.
func (a *Agent) Working() bool { return a.pulse.beats() }
