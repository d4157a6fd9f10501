package link_test

import (
	"context"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

func TestLink_ReplicatesAndAcks(t *testing.T) {
	t.Parallel()
	m := newMaster(t, masterOptions{})
	m.fill(500)
	m.run()
	s := startSlave(t, m.addr, slaveOptions{})
	end := m.grow(1)
	m.inReach(1)
	within, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if got := m.table.Wait(within, end, 1); got != acks.PutOK {
		t.Errorf("wait for %d ended with %s: replica %+v, source %+v", end, got, s.store.Ends(), m.src.Ends())
	}
	s.untilState(state.Streaming)
	if got := s.follower.SourceEnd(); got != end {
		t.Errorf("the source ends at %d, says the follower, want %d", got, end)
	}
	if got := s.follower.Received(); got != end {
		t.Errorf("received up to %d, want %d", got, end)
	}
	s.stop()
	s.same(m.opt.dir, end)
}

// TestLink_EmptySourceFillsLater begins with nothing on either side; the first
// segment does not begin at 0 (fault 12).
func TestLink_EmptySourceFillsLater_Fault12(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]wire.PhyOffset{"at 0": 0, "above 0": 3 << 32} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMaster(t, masterOptions{start: start, unknown: true})
			if err := m.w.Abandon(); err != nil {
				t.Fatal(err)
			}
			emptyLog(t, m.opt.dir)
			m.run()
			s := startSlave(t, m.addr, slaveOptions{})
			until(t, "an attempt", func() bool { return s.last().err != nil }) // nobody knows the segment size
			s.never(state.Gap)
			s.never(state.Diverged)
			m.open()
			s.untilState(state.Streaming)
			if !s.store.Empty() {
				t.Error("there is no message, but a segment")
			}
			end := m.grow(100)
			m.acked("slave", end)
			s.stop()
			s.same(m.opt.dir, end)
			s.never(state.Gap)
		})
	}
}

// TestLink_EmptySourceThatKnowsItsSegmentSize streams nothing, and then begins
// above 0 without another connection.
func TestLink_EmptySourceThatKnowsItsSegmentSize(t *testing.T) {
	t.Parallel()
	m := newMaster(t, masterOptions{start: 1 << 32})
	m.closeStore()
	emptyLog(t, m.opt.dir)
	m.run()
	s := startSlave(t, m.addr, slaveOptions{})
	s.untilState(state.Streaming)
	m.inReach(1)
	m.open()
	end := m.grow(10)
	m.acked("slave", end)
	s.never(state.Gap)
	s.never(state.Connecting)
	s.stop()
	s.same(m.opt.dir, end)
}

// TestLink_EachRecordAsItComes appends one by one: each is acked once the next
// has begun, and the last when the broker says so.
func TestLink_EachRecordAsItComes_I1(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	s := startSlave(t, m.addr, slaveOptions{ack: replica.AckDisk})
	var end wire.PhyOffset
	for range 100 {
		var last wire.PhyOffset
		last, end = m.fill(1)
		if last > m.w.Min() {
			m.acked("slave", last)
		}
		if got := s.store.Ends().Written; got > last {
			t.Fatalf("I1: the record from %d has no successor, but %d was shipped", last, got)
		}
	}
	m.word.say(end)
	m.acked("slave", end)
	s.stop()
	s.same(m.opt.dir, end)
}

// TestLink_ResumesWithoutCopyingAgain restarts either side: what is held is not
// sent again.
func TestLink_ResumesWithoutCopyingAgain(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	r := startRelay(t, func() string { return m.addr })
	s := startSlave(t, r.addr, slaveOptions{})
	end := m.grow(500)
	m.acked("slave", end)
	for name, again := range map[string]func(){
		"slave restarted": func() { s.stop(); s.run() },
		"slave killed":    func() { s.kill(); s.run() },
		"master restarted": func() {
			m.stop()
			m.run()
			m.word.say(end)
		},
		"connection lost": r.cut,
	} {
		before := r.bytes(toSlave)
		again()
		m.acked("slave", end)
		end = m.grow(1)
		m.acked("slave", end)
		if n := r.bytes(toSlave) - before; n > 32<<10 {
			t.Errorf("%s: %d bytes were sent for one message", name, n)
		}
	}
	s.stop()
	s.same(m.opt.dir, end)
	s.never(state.Diverged)
}

// TestLink_ShutdownIsToldAndReturnFollowedAtOnce: the follower knows at once
// that its master stops, and comes back when it does (fault 40).
func TestLink_ShutdownIsToldAndReturnFollowedAtOnce_Fault40(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Silence = time.Minute
	m := startMaster(t, masterOptions{timing: timing})
	s := startSlave(t, m.addr, slaveOptions{timing: timing})
	end := m.grow(10)
	m.acked("slave", end)
	began := time.Now()
	m.stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the server took %v to stop", took)
	}
	s.untilState(state.Connecting)
	m.run()
	m.word.say(end)
	m.acked("slave", end)
	began = time.Now()
	s.stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the follower took %v to stop", took)
	}
	m.inReach(0)
}

// TestLink_BothModesWithAKeyCarryTheSame streams over TLS, and in clear.
func TestLink_BothModesWithAKeyCarryTheSame(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"tls", "clear"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			security := keySecurity(t, mode, 1)
			m := startMaster(t, masterOptions{security: security})
			s := startSlave(t, m.addr, slaveOptions{security: security})
			end := m.grow(300)
			m.acked("slave", end)
			m.stop()
			s.untilState(state.Connecting)
			m.run()
			end = m.grow(300)
			m.acked("slave", end)
			s.stop()
			s.same(m.opt.dir, end)
		})
	}
}

func TestLink_WrongKeyIsAState(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"tls", "clear"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			m := startMaster(t, masterOptions{security: keySecurity(t, mode, 1)})
			m.grow(3)
			s := startSlave(t, m.addr, slaveOptions{security: keySecurity(t, mode, 2)})
			s.untilProblem(state.Unauthorized, "wrong_key")
			if !s.store.Empty() {
				t.Error("bytes came from a master without our key")
			}
		})
	}
}
