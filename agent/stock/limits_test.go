package stock_test

import (
	"testing"
	"time"

	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// A replica that holds itself back reads later, and goes on to report meanwhile:
// the source never drops it for its silence.
func TestLimits_ReportsGoOnWhileTheLogIsHeldBack(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
	m.grow(wire.MiB)
	s := follow(t, m, slaveOptions{limits: pace.New(64, 0)}) // an hour or more
	eventually(t, "the first bytes", func() bool { return s.follower.Received() > 0 })
	after := time.Now()
	eventually(t, "reports", func() bool {
		m.state.Lock()
		defer m.state.Unlock()
		n := 0
		for _, e := range m.events {
			if e.kind == "report" && e.at.After(after) {
				n++
			}
		}
		return n >= 10
	})
	m.state.Lock()
	defer m.state.Unlock()
	if m.opened != 1 {
		t.Errorf("%d connections were made", m.opened)
	}
	if verified := s.store.Ends().Verified; verified == m.writer.End() {
		t.Errorf("all of %d bytes came at 64 a second", verified)
	}
}

// The time that a log takes from a broker, or to a stock slave, is at least what
// the rate says.
func TestLimits_BoundTheRate(t *testing.T) {
	const rate, size = 4 * wire.MiB, 3 * wire.MiB
	least := time.Duration(float64(size-rate/8-rate/16) / float64(rate) * float64(time.Second))
	for name, limits := range map[string]*pace.Limits{"always": pace.New(rate, 0), "behind": pace.New(0, rate)} {
		t.Run("taken "+name, func(t *testing.T) {
			m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
			m.grow(size)
			began := time.Now()
			s := follow(t, m, slaveOptions{limits: limits})
			s.caughtUp(m)
			if took := time.Since(began); took < least {
				t.Errorf("%s at %s a second came within %s, not %s", size, rate, took, least)
			}
		})
		t.Run("served "+name, func(t *testing.T) {
			m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
			m.grow(size)
			opt := m.options()
			opt.Limits = limits
			run(t, stock.NewHAServer(opt).Run)
			began := time.Now()
			s := follow(t, m, slaveOptions{want: stock.Expectation{HAAddr: opt.Listener.Addr().String()}})
			s.caughtUp(m)
			if took := time.Since(began); took < least {
				t.Errorf("%s at %s a second were sent within %s, not %s", size, rate, took, least)
			}
		})
	}
}

// What a replica in sync takes is not bound by the rate for catching up.
func TestLimits_CatchupRateLeavesTheTailAlone(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
	m.grow(10 * wire.KiB)
	limits := pace.New(0, 0)
	s := follow(t, m, slaveOptions{limits: limits})
	s.caughtUp(m)
	limits.Set(0, 64)
	for range 20 {
		m.grow(20 * wire.KiB)
		m.wake()
		s.caughtUp(m)
	}
}
