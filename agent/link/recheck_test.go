package link_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// calm is a clockwork that does nothing by itself while a test runs.
var calm = link.Timing{Heartbeat: time.Hour, Silence: time.Hour}

func rivalProblem() *state.Problem {
	return state.Problemf(state.SplitBrain, "two_masters", "stop one of them", nil, "there is another master")
}

// TestServer_ReportAfterARivalIsKnown: no heartbeat comes between, and nobody has
// called Recheck; still the report moves nothing.
func TestServer_ReportAfterARivalIsKnown_MovesNothing_I4(t *testing.T) {
	t.Parallel()
	var rival atomic.Pointer[state.Problem]
	m := startMaster(t, masterOptions{admit: rival.Load, timing: calm})
	end := m.grow(20)
	p := dialMaster(t, m, emptyHello("n"))
	p.send(&wirelink.Start{From: 0})
	p.upTo(end)
	m.inReach(1)
	waited := make(chan acks.Result, 1)
	go func() { waited <- m.table.Wait(t.Context(), end, 1) }()
	rival.Store(rivalProblem())
	p.send(&wirelink.Report{Received: end, Verified: end, Flushed: end})
	if code := p.goodbye(); code != wirelink.CodeNotMaster {
		t.Errorf("the connection ended with %v", code)
	}
	if got := <-waited; got == acks.PutOK {
		t.Error("a message was acked after another master was known")
	}
	m.inReach(0)
}

// TestServer_StartAfterARivalIsKnown: it is asked between hello and start too.
func TestServer_StartAfterARivalIsKnown_IsRefused(t *testing.T) {
	t.Parallel()
	var rival atomic.Pointer[state.Problem]
	m := startMaster(t, masterOptions{admit: rival.Load, timing: calm})
	m.grow(20)
	p := dialMaster(t, m, emptyHello("n"))
	rival.Store(rivalProblem())
	p.send(&wirelink.Start{From: 0})
	if code := p.goodbye(); code != wirelink.CodeNotMaster {
		t.Errorf("the connection ended with %v", code)
	}
	if m.table.Joins() != 0 {
		t.Error("it was in reach")
	}
}

// TestRecheck_EndsWhatIsStuckInATransfer: a replica that does not read keeps its
// connection from sending a heartbeat, and nothing else.
func TestRecheck_EndsWhatIsStuckInATransfer_I4(t *testing.T) {
	t.Parallel()
	var rival atomic.Pointer[state.Problem]
	m := startMaster(t, masterOptions{admit: rival.Load, timing: calm})
	end := m.grow(12_000) // more than fits into the sockets
	stuck := dialMaster(t, m, emptyHello("stuck"))
	if err := stuck.conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	stuck.send(&wirelink.Start{From: 0})
	first := stuck.transfer()
	part := first.At.Add(wire.ByteSize(len(first.Body)))
	stuck.send(&wirelink.Report{Received: part, Verified: part, Flushed: part})
	m.acked("stuck", part)
	good := dialMaster(t, m, emptyHello("good"))
	good.send(&wirelink.Start{From: 0})
	good.upTo(end)
	waiting := dialMaster(t, m, emptyHello("waiting")) // has not started
	config := emptyHello("good")
	config.Channel = wirelink.ChannelMetadata
	files := dialMaster(t, m, config)
	files.send(&wirelink.Start{From: 0})
	idle := dialMaster(t, m, config) // has not started either
	m.inReach(2)

	m.server.Recheck() // all is well
	good.send(&wirelink.Report{Received: end, Verified: end, Flushed: end})
	m.acked("good", end)
	m.inReach(2)

	rival.Store(rivalProblem())
	m.server.Recheck()
	if n, rank := m.table.InReach(), m.table.Rank(1); n != 0 || rank != wire.NoOffset {
		t.Errorf("%d replicas in reach, %d acked, behind Recheck", n, rank)
	}
	for name, p := range map[string]*peer{"good": good, "waiting": waiting, "files": files, "idle": idle} {
		if code := p.goodbye(); code != wirelink.CodeNotMaster {
			t.Errorf("%s ended with %v", name, code)
		}
	}
	until(t, "the end of the connection that is stuck", func() bool { return len(m.server.Replicas()) == 0 })
	rival.Store(nil)
	again := dialMaster(t, m, emptyHello("good"))
	again.send(&wirelink.Start{From: 0})
	again.upTo(end)
	again.send(&wirelink.Report{Received: end, Verified: end, Flushed: end})
	m.acked("good", end)
}

// TestRecheck_AtAnyTime calls it while connections come, and before and behind
// Run. Whatever joins in between is gone when the last one returns.
func TestRecheck_AtAnyTime_I4(t *testing.T) {
	t.Parallel()
	link.NewServer(link.ServerOptions{}).Recheck()
	var rival atomic.Pointer[state.Problem]
	m := newMaster(t, masterOptions{admit: rival.Load})
	m.run()
	end := m.grow(20)
	slaves := make([]*slave, 3)
	for i := range slaves {
		slaves[i] = startSlave(t, m.addr, slaveOptions{node: string(rune('a' + i))})
	}
	for range 20 {
		m.inReach(len(slaves))
		rival.Store(rivalProblem())
		m.server.Recheck()
		if n := m.table.InReach(); n != 0 {
			t.Fatalf("%d replicas in reach behind Recheck", n)
		}
		rival.Store(nil)
		for _, s := range slaves {
			s.poke()
		}
	}
	for _, s := range slaves {
		m.acked(s.opt.node, end)
	}
	m.stop()
	m.server.Recheck()
}
