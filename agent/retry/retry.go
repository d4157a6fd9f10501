// Package retry makes attempts: one after the other, with jittered back-off
// between those that gain nothing, at once where that helps, until the context
// ends or an error says that trying again is of no use.
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/haagent/haagent/agent/state"
)

// ErrAgain ends an attempt whose next one should follow at once, because it asks
// something else.
var ErrAgain = errors.New("ask again")

// Loop says how attempts follow each other.
type Loop struct {
	First, Max time.Duration // of the waits between attempts, before jitter
	// Final reports whether an error ends the loop; nil: none does.
	Final func(error) bool
	// OnError is told every other error, but not ErrAgain; nil: nobody is.
	OnError func(error)
	// Poke ends a wait early, at most one for each First; nil: nothing does.
	Poke <-chan struct{}
}

// Run makes attempts until ctx ends, and then returns nil, or until a final
// error, which it returns. An attempt reports whether it was fruitful: then the
// next wait is a short one again. A *state.Problem is not tried again before its
// state's own time.
func (l Loop) Run(ctx context.Context, attempt func(context.Context) (fruitful bool, err error)) error {
	wait := &backoff.ExponentialBackOff{InitialInterval: l.First, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: l.Max}
	wait.Reset()
	for ctx.Err() == nil {
		fruitful, err := attempt(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for; how the attempt ended does not matter
		}
		p := state.AsProblem(err)
		if fruitful && p == nil {
			wait.Reset()
		}
		if errors.Is(err, ErrAgain) {
			continue
		}
		if l.Final != nil && l.Final(err) {
			return err
		}
		if l.OnError != nil {
			l.OnError(err)
		}
		delay := wait.NextBackOff()
		if p != nil {
			delay = max(delay, p.State.RetryAfter())
		}
		l.pause(ctx, delay)
	}
	return nil
}

// pause waits for delay. A poke shortens it, but never below First: whoever
// pokes in a loop must not make this one spin.
func (l Loop) pause(ctx context.Context, delay time.Duration) {
	if least := min(l.First, delay); l.Poke != nil && delay > least {
		if !Sleep(ctx, least) {
			return
		}
		delay -= least
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-l.Poke:
	case <-timer.C:
	}
}

// Sleep waits for d and reports whether it did: false says that ctx ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
