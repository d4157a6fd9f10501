package link_test

import (
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// held is a rate at which nothing but the first pieces moves within a test.
const held = 64

// impatient finds out within a test who does not hear from the other end.
var impatient = link.Timing{Heartbeat: 20 * time.Millisecond, Silence: 2 * time.Second, FirstRetry: 2 * time.Millisecond, MaxRetry: 50 * time.Millisecond}

// A log that is held back on either end holds no heartbeat and no report back:
// longer than a silence that ends connections, both ends stay in touch.
func TestLimits_HoldNeitherHeartbeatsNorReportsBack(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]struct{ source, replica *pace.Limits }{
		"at the source":  {source: pace.New(held, 0)},
		"at the replica": {replica: pace.New(held, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMaster(t, masterOptions{limits: limits.source, timing: impatient})
			end := m.grow(100)
			s := startSlave(t, m.addr, slaveOptions{limits: limits.replica, timing: impatient})
			until(t, "the first bytes", func() bool { return s.store.Ends().Verified > 0 })
			before := s.count(state.Connecting)
			select { // the time itself is what is tested
			case <-time.After(3 * impatient.Silence / 2):
			case <-t.Context().Done():
			}
			if n := s.count(state.Connecting); n != before {
				t.Errorf("the connection ended: %s", s.problemText())
			}
			m.inReach(1)
			if limits.source == nil {
				return // it has read all of it, and takes its time
			}
			if verified := s.store.Ends().Verified; verified == end {
				t.Errorf("all of %d bytes came", end)
			}
			more := m.grow(1)
			until(t, "a heartbeat with the new end", func() bool { return s.follower.SourceEnd() == more })
			limits.source.Set(0, 0)
		})
	}
}

// The time that a log takes is at least what the rate says, on whichever end it is
// set, and for all replicas of a source together.
func TestLimits_BoundTheRate(t *testing.T) {
	t.Parallel()
	const rate = 4 * wire.MiB
	for name, o := range map[string]struct{ source, replica *pace.Limits }{
		"at the source":         {source: pace.New(rate, 0)},
		"behind at the source":  {source: pace.New(0, rate)},
		"at the replica":        {replica: pace.New(rate, 0)},
		"behind at the replica": {replica: pace.New(0, rate)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMaster(t, masterOptions{limits: o.source})
			end := m.grow(3000)
			began := time.Now()
			slaves := []*slave{startSlave(t, m.addr, slaveOptions{limits: o.replica, node: "one"})}
			total := end.Sub(0)
			if o.source != nil {
				slaves = append(slaves, startSlave(t, m.addr, slaveOptions{node: "two"}))
				total *= 2
			}
			for _, s := range slaves {
				s.verified(end)
			}
			// An eighth of a second comes at once, and the last piece is not waited for.
			least := time.Duration(float64(total-rate/8-rate/16-256*wire.KiB) / float64(rate) * float64(time.Second))
			if took := time.Since(began); took < least {
				t.Errorf("%s at %s a second came within %s, not %s", total, rate, took, least)
			}
			for _, s := range slaves {
				s.stop()
				s.same(m.opt.dir, end)
			}
		})
	}
}

// The rate for catching up does not bind the tail of a replica in sync.
func TestLimits_CatchupRateLeavesTheTailAlone(t *testing.T) {
	t.Parallel()
	limits := pace.New(0, 0)
	m := startMaster(t, masterOptions{limits: limits})
	s := startSlave(t, m.addr, slaveOptions{limits: limits})
	end := m.grow(10)
	m.acked("slave", end)
	s.untilState(state.Streaming)
	limits.Set(0, held)
	for range 50 {
		end = m.grow(10) // 500 KB in all
		m.acked("slave", end)
	}
}

// What is held back goes on as soon as the rate is raised.
func TestLimits_ChangeWhileTheyHold(t *testing.T) {
	t.Parallel()
	limits := pace.New(256*wire.KiB, 0)
	m := startMaster(t, masterOptions{limits: limits})
	end := m.grow(4000) // a quarter of a minute of that
	s := startSlave(t, m.addr, slaveOptions{})
	until(t, "the first bytes", func() bool { return s.store.Ends().Verified > 0 })
	limits.Set(0, 0)
	m.acked("slave", end)
}

// count returns how often the follower told st.
func (s *slave) count(st state.State) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.states {
		if one.state == st {
			n++
		}
	}
	return n
}
