// Package pace keeps streams of log bytes below the rates that an operator has
// set. It never waits and never holds anything back by itself: whoever moves bytes
// books them, and is told how long to move no more. So reports and heartbeats need
// not be booked, and never wait behind the log.
package pace

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/haagent/haagent/wire"
)

// The bounds of a piece. Small ones keep a slow stream even; what is larger than
// the largest is not moved at once by anybody.
const (
	leastPiece = 4 * wire.KiB
	mostPiece  = wire.MiB
)

// Limits are the rates of one agent, which all of its streams share. Their methods
// may be called at any time. A nil *Limits has no limit.
type Limits struct {
	mu             sync.Mutex
	total, catchup wire.ByteSize // bytes a second; 0: no limit; guarded by mu
	all, behind    *rate.Limiter // of these; guarded by mu
}

// New returns Limits with these rates in bytes a second, 0 for none. catchup binds
// only streams that are behind.
func New(total, catchup wire.ByteSize) *Limits {
	l := &Limits{all: rate.NewLimiter(rate.Inf, 0), behind: rate.NewLimiter(rate.Inf, 0)}
	l.Set(total, catchup)
	return l
}

// Set changes the rates, from the next bytes on. Waits that were told before stay
// as they are; they are short.
func (l *Limits) Set(total, catchup wire.ByteSize) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total, l.catchup = max(total, 0), max(catchup, 0)
	now := time.Now()
	for _, one := range []struct {
		of   *rate.Limiter
		size wire.ByteSize
	}{{l.all, l.total}, {l.behind, l.catchup}} {
		if one.size == 0 {
			one.of.SetLimitAt(now, rate.Inf)
			continue
		}
		// An eighth of a second may come at once, so that timers that fire late cost
		// nothing of the rate.
		one.of.SetBurstAt(now, int(max(one.size/8, 2*piece(one.size))))
		one.of.SetLimitAt(now, rate.Limit(one.size))
	}
}

// Rates returns what Set was given.
func (l *Limits) Rates() (total, catchup wire.ByteSize) {
	if l == nil {
		return 0, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total, l.catchup
}

// piece is what passes in a sixteenth of a second.
func piece(r wire.ByteSize) wire.ByteSize { return min(max(r/16, leastPiece), mostPiece) }

// Piece returns how much a stream should move at once, at most most bytes.
func (l *Limits) Piece(most wire.ByteSize, behind bool) wire.ByteSize {
	total, catchup := l.Rates()
	if total > 0 {
		most = min(most, piece(total))
	}
	if behind && catchup > 0 {
		most = min(most, piece(catchup))
	}
	return most
}

// Spend books n bytes that were moved, and returns for how long nothing more
// should be. behind says that their stream is catching up.
func (l *Limits) Spend(n wire.ByteSize, behind bool) time.Duration {
	if l == nil || n <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	var wait time.Duration
	if l.total > 0 {
		wait = book(l.all, now, n)
	}
	if behind && l.catchup > 0 {
		wait = max(wait, book(l.behind, now, n))
	}
	return wait
}

// book takes n bytes off of, in parts that it can give at once.
func book(of *rate.Limiter, now time.Time, n wire.ByteSize) time.Duration {
	var wait time.Duration
	for burst := wire.ByteSize(of.Burst()); n > 0; n -= burst {
		wait = of.ReserveN(now, int(min(n, burst))).DelayFrom(now)
	}
	return wait
}
