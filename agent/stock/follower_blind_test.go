package stock_test

import (
	"slices"
	"testing"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// blindly starts a slave that knows the HA port alone, on a replica of all that
// m had; ready is closed when its reports may be judged.
func blindly(t *testing.T, m *fakeMaster, dir string) *testSlave {
	t.Helper()
	var s *testSlave
	ready := make(chan struct{})
	honest(m, func() *testSlave { <-ready; return s })
	s = follow(t, m, slaveOptions{dir: dir, blind: true})
	close(ready)
	return s
}

// I3: with the HA port alone the first question is the one that is no ack, and
// no ack goes beyond what was compared.
func TestI3_HAPortAloneAsksForTheLastSegmentFirst(t *testing.T) {
	m := storeOf(t, 1000, 1)
	dir := replicaOf(t, m)
	seen := len(m.asked())
	hold := make(chan struct{})
	base := m.writer.End().SegmentBase(m.size)
	m.play(func(l *fakeLink) {
		l.send(base, base.Add(1000))
		if l.await(hold) {
			l.serveFrom(base.Add(1000), nil)
		}
	})
	s := blindly(t, m, dir)
	reports := len(m.happened("report"))
	eventually(t, "reports meanwhile", func() bool { return len(m.happened("report")) > reports+2 })
	if got := m.lastReport(); got != 0 {
		t.Errorf("report %d before everything was compared", got)
	}
	if s.was(state.Streaming) {
		t.Error("streaming before everything was compared")
	}
	close(hold)
	m.more(10, 1)
	s.caughtUp(m)
	if got := m.asked()[seen:]; !slices.Equal(got, []wire.PhyOffset{0}) {
		t.Errorf("asked for %v", got)
	}
	eventually(t, "the report", func() bool { return m.lastReport() == m.writer.End() })
}

// A replica that ends before the source's last segment, or just where that
// begins, asks for its own end, and compares before it appends.
func TestI2_HAPortAloneAsksForItsOwnEnd(t *testing.T) {
	for name, grow := range map[string]func(m *fakeMaster){
		"before":           func(m *fakeMaster) { m.grow(2 * m.size) },
		"at, with data":    func(m *fakeMaster) { m.append(1, 100) },
		"at, without data": func(*fakeMaster) {},
	} {
		t.Run(name, func(t *testing.T) {
			m := storeOf(t, 1000, 1)
			m.roll() // the replica ends where a segment does
			dir := replicaOf(t, m)
			grow(m)
			seen := len(m.asked())
			s := blindly(t, m, dir)
			s.caughtUp(m)
			got := m.asked()[seen:]
			if len(got) != 2 || got[0] != 0 || got[1] == 0 || got[1] >= s.store.Ends().Verified {
				t.Errorf("asked for %v", got)
			}
			eventually(t, "the report", func() bool { return m.lastReport() == m.writer.End() })
		})
	}
}

// The same on a source that is another log: nothing is appended to it.
func TestI2_HAPortAloneComparesAtTheEndOfASegment(t *testing.T) {
	m := storeOf(t, 1000, 1)
	m.roll()
	end := m.writer.End()
	dir := replicaOf(t, m)
	other := storeOf(t, 1000, 2)
	other.roll()
	if other.writer.End() != end {
		t.Fatalf("the other log ends at %d, not %d", other.writer.End(), end)
	}
	other.more(3, 2)
	s := blindly(t, other, dir)
	before := s.snapshot()
	s.stuck(state.Diverged, "diverged")
	s.unchanged(before)
	for _, e := range other.happened("report") {
		if e.off > end-64*1024 {
			t.Errorf("%v, though not a byte was compared", e)
		}
	}
}

// A source whose last segment lies before the replica's first is behind.
func TestFault20_SourceEndsBeforeTheReplicaBegins(t *testing.T) {
	m := storeOf(t, 5000, 1)
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	eventually(t, "all synced", func() bool { return s.store.Ends().Flushed == m.writer.End() })
	if _, err := s.store.DropBefore(m.writer.End().SegmentBase(m.size)); err != nil {
		t.Fatal(err)
	}
	s.stop()
	other := storeOf(t, 10, 1)
	s = blindly(t, other, s.dir)
	s.stuck(state.Diverged, "source_behind")
	for _, e := range other.happened("request", "report") {
		if e.off > 0 {
			t.Errorf("%v", e)
		}
	}
}

// I9: full frames that happen to end with a message do not mean that the source
// has no more.
func TestI9_FullFramesAreNotTheEnd(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
	empty := forge.Message{Topic: "orders", StoreTimestamp: 1_700_000_000_000}
	body := wire.KiB - empty.Size()
	for range 320 {
		msg := empty
		msg.Body = make([]byte, body)
		if _, err := m.writer.Append(msg); err != nil {
			t.Fatal(err)
		}
	}
	hold := make(chan struct{})
	first := wire.PhyOffset(ha.StockBatch + wire.KiB)
	end := first.Add(4 * ha.StockBatch)
	m.play(func(l *fakeLink) {
		l.send(1, first)
		for at := first; at < end; at = at.Add(ha.StockBatch) {
			l.send(at, at.Add(ha.StockBatch))
		}
		if l.await(hold) {
			l.serveFrom(end, nil)
		}
	})
	s := follow(t, m, slaveOptions{blind: true})
	eventually(t, "five frames", func() bool { return s.store.Ends().Verified == end })
	eventually(t, "reports", func() bool { return m.lastReport() == end })
	if now := s.last().state; now == state.Streaming {
		t.Errorf("%s at %d of %d", now, s.store.Ends().Verified, m.writer.End())
	}
	close(hold)
	s.caughtUp(m)
}

// Fault 29: whatever is cut, stopped or killed, no report is above what is
// stored when it comes, and the first one after a restart is not either.
func TestFault29_KillsAndCuts(t *testing.T) {
	for _, ack := range []replica.Ack{replica.AckMemory, replica.AckDisk} {
		m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
		var s *testSlave
		ready := make(chan struct{})
		honest(m, func() *testSlave { <-ready; return s })
		m.grow(100 * wire.KiB)
		s = follow(t, m, slaveOptions{ack: ack})
		close(ready)
		for round := range 40 {
			m.grow(20 * wire.KiB)
			switch round % 4 {
			case 0:
				m.cut()
			case 1:
				s.kill()
			case 2:
				s.stop()
			default:
				eventually(t, "a report", func() bool { return m.lastReport() > 0 })
				continue
			}
			if round%4 == 0 {
				continue
			}
			held := s.store.Ends().Verified
			waitIdle(t, m)
			seen := len(m.asked())
			hold := make(chan struct{})
			ready := make(chan struct{})
			honest(m, func() *testSlave { <-ready; return s })
			m.play(func(l *fakeLink) {
				if l.await(hold) {
					l.serve(nil)
				}
			})
			s = follow(t, m, slaveOptions{dir: s.dir, ack: ack})
			close(ready)
			eventually(t, "the request", func() bool { return len(m.asked()) > seen })
			if first := m.asked()[seen]; first > max(s.store.Ends().Verified, 1) {
				t.Errorf("round %d: first report %d, the replica held %d", round, first, held)
			}
			close(hold)
			m.play(func(l *fakeLink) { l.serve(nil) })
		}
		s.caughtUp(m)
		s.stop()
	}
}

// waitIdle waits until no connection is left, so that nobody reports.
func waitIdle(t *testing.T, m *fakeMaster) {
	t.Helper()
	eventually(t, "no connection", func() bool {
		m.state.Lock()
		defer m.state.Unlock()
		return len(m.live) == 0
	})
}
