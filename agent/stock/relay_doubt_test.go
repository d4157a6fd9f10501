package stock_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// restart cuts all connections, as a broker's end does.
func (r *relayed) restart(t testing.TB, m *countingMaster) {
	t.Helper()
	r.broker.cut(t)
	m.cut()
}

// A broker that comes back with all of its log is confirmed at once.
func TestRelay_GoesOnWithABrokerThatIsBack(t *testing.T) {
	for _, inSync := range []int{0, 2} {
		m := newCountingMaster(t, inSync, 1)
		table := newReplicas(t, m)
		defer table.follow("a")()
		m.append(100, 100)
		r := relay(t, m, table, 1)
		r.awaitLinks(t, m, 1, m.writer.End())
		for range 5 {
			before := len(m.asked())
			r.restart(t, m)
			eventually(t, "another connection", func() bool { return len(m.asked()) > before })
			r.awaitLinks(t, m, 1, m.writer.End())
			eventually(t, "SEND_OK", func() bool { return m.put(shortly) == brokertest.StatusOK })
		}
		if p := r.Status().Problem; p != nil {
			t.Errorf("problem %v", p)
		}
	}
}

// What replicas have acked before a broker lost its tail says nothing about what
// it writes in the place of that. It counts again from those that connect anew.
func TestRelay_I3_AcksOfALostTailCountForNothing_Fault29(t *testing.T) {
	for _, inSync := range []int{0, 2} {
		m := newCountingMaster(t, inSync, 1)
		table := newReplicas(t, m)
		table.join("a", "b")
		m.append(100, 100)
		end := m.writer.End()
		table.ack("a", end)
		table.ack("b", end/2)
		r := relay(t, m, table, 1)
		r.awaitLinks(t, m, 1, end)

		short := end - 1000
		m.endsAt(short)
		r.restart(t, m)
		eventually(t, "the doubt", func() bool { p := r.Status().Problem; return p != nil && p.Code == "relay_acks_stale" })
		if p := r.Status().Problem; p.State != state.Diverged || p.Try == "" || !strings.Contains(p.Reason, end.String()) {
			t.Errorf("problem %+v", p)
		}
		// Whoever comes before the source has seen it is compared with what the
		// broker has left in its files.
		before, dialled := len(m.asked()), m.dialled()
		table.join("early")
		table.ack("early", end)
		eventually(t, "a connection that was given up", func() bool { return m.dialled() > dialled && m.unused() })
		if got, now := m.put(shortly), m.asked(); got == brokertest.StatusOK || len(now) != before {
			t.Errorf("by one that has the lost tail: %s, requests %v", got, now[before:])
		}
		m.endsAt(end - 10) // it grows, with other messages
		table.ack("b", end-500)
		if got := m.put(shortly); got == brokertest.StatusOK {
			t.Errorf("%s", got)
		}
		m.endsAt(wire.NoOffset)
		table.join("a") // and compares
		table.ack("a", short)
		r.awaitLinks(t, m, 1, short)
		eventually(t, "no doubt", func() bool { st := r.Status(); return st.Connected && st.Problem == nil })
		if now := m.asked(); len(now) != before+1 {
			t.Errorf("requests %v", now)
		}
		table.ack("a", m.writer.End())
		eventually(t, "all of it", func() bool { return slices.Equal(m.links(), []wire.PhyOffset{m.writer.End()}) })
	}
}

// The same holds for a broker that has overtaken its old end by the time that it
// is found: its log has other bytes there.
func TestRelay_I3_AcksOfAnotherTailCountForNothing(t *testing.T) {
	m := newCountingMaster(t, 0, 1)
	table := newReplicas(t, m)
	m.append(100, 100)
	acked := m.writer.End()
	table.join("a")
	table.ack("a", acked)
	r := relay(t, m, table, 1)
	r.awaitLinks(t, m, 1, acked)
	down := func(req remoting.Command) (remoting.Command, bool) {
		return req.Reply(remoting.SystemError, "gone"), true
	}
	m.lie(down)
	r.restart(t, m)
	eventually(t, "the end of the session", func() bool { return strings.Contains(r.Status().Reason, "does not answer") })
	f, err := os.OpenFile(filepath.Join(m.dir, commitlog.Name(0)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("other"), int64(acked)-20); err != nil {
		t.Fatal(err)
	}
	closeAll(t, f)
	m.append(100, 100)
	m.lie(m.tell)
	eventually(t, "the doubt", func() bool { p := r.Status().Problem; return p != nil && p.Code == "relay_acks_stale" })
	if got := m.put(shortly); got != brokertest.StatusNoSlave {
		t.Errorf("%s", got)
	}
	table.join("a")
	table.ack("a", m.writer.End())
	r.awaitLinks(t, m, 1, m.writer.End())
}

// Slaves that sit on a 5.x broker itself are named: they count besides.
func TestRelay_NamesSlavesBesides(t *testing.T) {
	m := newCountingMaster(t, 2, 1)
	table := newReplicas(t, m)
	leave := table.follow("a")
	r := relay(t, m, table, 1)
	r.awaitLinks(t, m, 1, m.writer.End())
	for range 20 { // connections of its own that come and go are none
		leave()
		eventually(t, "no connection", func() bool { return len(m.links()) == 0 })
		leave = table.follow("a")
		r.awaitLinks(t, m, 1, m.writer.End())
	}
	if st := r.Status(); len(st.Strangers) != 0 {
		t.Errorf("%v", st.Strangers)
	}
	m.mu.Lock()
	m.guests = []string{"10.1.2.3:40000", "[0:0:0:0:0:0:0:1]:40001"}
	m.mu.Unlock()
	eventually(t, "the strangers", func() bool { return len(r.Status().Strangers) == 2 })
	eventually(t, "the warning", func() bool { return r.log.count("sit on the local broker") == 1 })
	m.mu.Lock()
	m.guests = nil
	m.mu.Unlock()
	eventually(t, "no strangers", func() bool { return len(r.Status().Strangers) == 0 })
	leave()
}
