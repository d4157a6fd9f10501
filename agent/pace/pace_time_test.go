package pace_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/wire"
)

// move moves bytes for d in pieces of at most most, and returns how many.
func move(l *pace.Limits, d time.Duration, most wire.ByteSize, behind bool) (moved wire.ByteSize) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n := l.Piece(most, behind)
		time.Sleep(l.Spend(n, behind))
		moved += n
		if n == most && l.Piece(1<<40, behind) == 1<<40 {
			return moved // nothing holds it
		}
	}
	return moved
}

// Whatever the rate, it is kept within a second's third, by streams together.
func TestSpend_KeepsTheRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		total := wire.ByteSize(rapid.Int64Range(64<<10, 1<<30).Draw(rt, "rate"))
		streams := rapid.IntRange(1, 8).Draw(rt, "streams")
		most := max(wire.ByteSize(rapid.Int64Range(512, 8<<20).Draw(rt, "most")), total/512)
		const seconds = 10
		synctest.Test(t, func(t *testing.T) {
			l := pace.New(total, 0)
			var mu sync.Mutex
			var sum wire.ByteSize
			var all sync.WaitGroup
			for range streams {
				all.Go(func() {
					n := move(l, seconds*time.Second, most, false)
					mu.Lock()
					defer mu.Unlock()
					sum += n
				})
			}
			all.Wait()
			if slack := total/3 + wire.ByteSize(streams)*most; sum > seconds*total+slack || sum < seconds*total-slack {
				t.Errorf("%d bytes in %d s, %d a second are allowed", sum, seconds, total)
			}
		})
	})
}

// What is in sync is not bound by the rate of those that catch up.
func TestSpend_CatchupBindsOnlyWhileBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pace.New(0, wire.MiB)
		if wait := l.Spend(wire.GiB, false); wait != 0 {
			t.Errorf("a stream in sync waits %s", wait)
		}
		if wait := l.Spend(10*wire.MiB, true); wait < 9*time.Second || wait > 10*time.Second {
			t.Errorf("10 MiB at 1 MiB a second wait %s", wait)
		}
		if n := l.Piece(wire.GiB, false); n != wire.GiB {
			t.Errorf("a stream in sync moves %s at once", n)
		}
		if n := l.Piece(wire.GiB, true); n != 64*wire.KiB {
			t.Errorf("a stream behind moves %s at once", n)
		}
	})
}

// Both rates bind a stream that is behind: the lower one decides.
func TestSpend_TheLowerRateBinds(t *testing.T) {
	for _, tc := range []struct{ total, catchup, want wire.ByteSize }{
		{4 * wire.MiB, wire.MiB, wire.MiB}, {wire.MiB, 4 * wire.MiB, wire.MiB}, {0, wire.MiB, wire.MiB}, {wire.MiB, 0, wire.MiB},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := pace.New(tc.total, tc.catchup)
			if n := move(l, 20*time.Second, wire.MiB, true); n < 19*tc.want || n > 21*tc.want {
				t.Errorf("limits of %s and %s: %s in 20 s", tc.total, tc.catchup, n)
			}
		})
	}
}

// Rates may be changed while bytes move.
func TestSet_WhileBytesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := pace.New(wire.MiB, 0)
		if n := move(l, 10*time.Second, wire.MiB, false); n < 9*wire.MiB || n > 11*wire.MiB {
			t.Errorf("%s in 10 s at 1 MiB", n)
		}
		l.Set(8*wire.MiB, 0)
		if n := move(l, 10*time.Second, wire.MiB, false); n < 76*wire.MiB || n > 84*wire.MiB {
			t.Errorf("%s in 10 s at 8 MiB", n)
		}
		l.Set(0, 0)
		if wait := l.Spend(wire.GiB, true); wait != 0 {
			t.Errorf("without a limit %s are waited", wait)
		}
		if total, catchup := l.Rates(); total != 0 || catchup != 0 {
			t.Errorf("rates are %d and %d", total, catchup)
		}
	})
}

// Nobody needs to make limits where there are none.
func TestLimits_Nil(t *testing.T) {
	var l *pace.Limits
	if wait := l.Spend(wire.GiB, true); wait != 0 {
		t.Errorf("%s are waited", wait)
	}
	if n := l.Piece(wire.GiB, true); n != wire.GiB {
		t.Errorf("%s at once", n)
	}
}
