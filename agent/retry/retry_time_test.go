package retry_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
)

var errTest = errors.New("no luck")

// TestLoop_WaitsLongerEachTimeUpToMax_Fault42 holds the waits between fruitless
// attempts to their bounds, jitter included.
func TestLoop_WaitsLongerEachTimeUpToMax_Fault42(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var at []time.Time
		loop := retry.Loop{First: 100 * time.Millisecond, Max: time.Second}
		if err := loop.Run(ctx, func(context.Context) (bool, error) {
			if at = append(at, time.Now()); len(at) == 12 {
				cancel()
			}
			return false, errTest
		}); err != nil {
			t.Fatal(err)
		}
		want := 100 * time.Millisecond
		for i := 1; i < len(at); i++ {
			got := at[i].Sub(at[i-1])
			if got < want*7/10-time.Millisecond || got > want*13/10+time.Millisecond {
				t.Errorf("wait %d took %s, want %s and at most 30%% off", i, got, want)
			}
			want = min(2*want, time.Second)
		}
	})
}

// TestLoop_FruitfulAttemptsStartOver: after a stream that gained something the
// next wait is the first one again; a problem has its state's own time.
func TestLoop_FruitfulAttemptsStartOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		diverged := &state.Problem{State: state.Diverged}
		script := []struct {
			fruitful  bool
			err       error
			low, high time.Duration // of the wait that follows
		}{
			{false, errTest, 70 * time.Millisecond, 130 * time.Millisecond},
			{false, errTest, 140 * time.Millisecond, 260 * time.Millisecond},
			{true, errTest, 70 * time.Millisecond, 130 * time.Millisecond},
			{true, retry.ErrAgain, 0, 0},
			{true, diverged, 15 * time.Second, 15 * time.Second},
			{false, nil, 140 * time.Millisecond, time.Second},
		}
		var at []time.Time
		var told []error
		loop := retry.Loop{First: 100 * time.Millisecond, Max: time.Second, OnError: func(err error) { told = append(told, err) },
			Final: func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }}
		err := loop.Run(t.Context(), func(context.Context) (bool, error) {
			at = append(at, time.Now())
			if n := len(at); n <= len(script) {
				return script[n-1].fruitful, script[n-1].err
			}
			return false, context.DeadlineExceeded
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("ended with %v, want the final error", err)
		}
		for i, s := range script {
			if got := at[i+1].Sub(at[i]); got < s.low-time.Millisecond || got > s.high+time.Millisecond {
				t.Errorf("wait after attempt %d took %s, want %s to %s", i, got, s.low, s.high)
			}
		}
		if want := []error{errTest, errTest, errTest, diverged, nil}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

// TestLoop_PokeShortensAWaitAndCannotMakeItSpin.
func TestLoop_PokeShortensAWaitAndCannotMakeItSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		poke := make(chan struct{}, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		attempts := 0
		loop := retry.Loop{First: 100 * time.Millisecond, Max: time.Hour, Poke: poke}
		start := time.Now()
		if err := loop.Run(ctx, func(context.Context) (bool, error) {
			attempts++
			poke <- struct{}{}
			return false, errTest
		}); err != nil {
			t.Fatal(err)
		}
		if attempts < 50 || attempts > 150 {
			t.Errorf("%d attempts in %s, want one about each 100 ms", attempts, time.Since(start))
		}
	})
}
