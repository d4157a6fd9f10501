package stock_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// snapshot returns the bytes of every segment of a slave.
func (s *testSlave) snapshot() map[string]string {
	s.t.Helper()
	files := make(map[string]string)
	for _, base := range s.segments() {
		b, err := os.ReadFile(filepath.Join(s.store.CommitLogDir(), commitlog.Name(base)))
		if err != nil {
			s.t.Fatal(err)
		}
		files[commitlog.Name(base)] = string(b)
	}
	return files
}

// unchanged checks that a slave's segments are what they were.
func (s *testSlave) unchanged(before map[string]string) {
	s.t.Helper()
	after := s.snapshot()
	if len(before) != len(after) {
		s.t.Errorf("%d segments, were %d", len(after), len(before))
	}
	for name, b := range before {
		if after[name] != b {
			s.t.Errorf("segment %s changed", name)
		}
	}
}

// storeOf returns a source with a log that number and seed alone decide.
func storeOf(t *testing.T, messages int, seed byte) *fakeMaster {
	t.Helper()
	return storeOn(t, newServedLog(t, 64*wire.KiB, 0), messages, seed)
}

func storeOn(t *testing.T, l *servedLog, messages int, seed byte) *fakeMaster {
	t.Helper()
	m := newFakeMaster(t, l)
	for range messages {
		msg := forge.Message{Topic: "orders", Body: []byte{seed, 2, 3}, StoreTimestamp: 1_700_000_000_000}
		if _, err := m.writer.Append(msg); err != nil {
			t.Fatal(err)
		}
	}
	m.wake()
	return m
}

// more appends messages of another kind.
func (m *fakeMaster) more(n int, seed byte) {
	m.t.Helper()
	for range n {
		msg := forge.Message{Topic: "orders", Body: []byte{seed, 5, 6, 7}, StoreTimestamp: 1_700_000_000_000}
		if _, err := m.writer.Append(msg); err != nil {
			m.t.Fatal(err)
		}
	}
	m.wake()
}

// replicaOf returns the directory of a stopped replica of all of m's log.
func replicaOf(t *testing.T, m *fakeMaster) string {
	t.Helper()
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	s.stop()
	return s.dir
}

// Fault 15: another log is refused by that name, be it shorter or longer, and
// the replica is left alone.
func TestFault15_ReplacedSource(t *testing.T) {
	for name, length := range map[string]int{"shorter": 50, "longer": 5000, "as long": 2000} {
		t.Run(name, func(t *testing.T) {
			dir := replicaOf(t, storeOf(t, 2000, 1))
			other := storeOf(t, length, 2)
			s := follow(t, other, slaveOptions{dir: dir})
			before := s.snapshot()
			s.stuck(state.SourceReplaced, "source_replaced")
			if got := other.asked(); len(got) != 0 {
				t.Errorf("the HA port was asked for %v", got)
			}
			s.unchanged(before)
		})
	}
}

// Fault 15: a source that is empty now has nothing to be told apart by.
func TestFault15_SourceThatLostEverything(t *testing.T) {
	dir := replicaOf(t, storeOf(t, 20, 1))
	other := storeOf(t, 0, 2)
	s := follow(t, other, slaveOptions{dir: dir})
	s.stuck(state.Diverged, "source_behind")
	if got := other.asked(); len(got) != 0 {
		t.Errorf("the HA port was asked for %v", got)
	}
}

// A source that lost its tail and grew again in another way has diverged.
func TestI2_SourceThatGrewAnotherTail(t *testing.T) {
	for _, blind := range []bool{false, true} {
		m := storeOf(t, 100, 1)
		m.more(10, 1)
		dir := replicaOf(t, m)
		other := storeOf(t, 100, 1)
		common := other.writer.End()
		other.more(200, 2)
		s := follow(t, other, slaveOptions{dir: dir, blind: blind})
		before := s.snapshot()
		s.stuck(state.Diverged, "diverged")
		s.unchanged(before)
		if !blind {
			if got := other.asked(); len(got) != 0 {
				t.Errorf("the HA port was asked for %v", got)
			}
		}
		for _, e := range other.happened("request", "report") {
			if e.off > common {
				t.Errorf("blind=%v: %v, but only [0, %d) is common", blind, e, common)
			}
		}
		s.stop()
	}
}

// Fault 20: a replica that is ahead of its source confirms nothing to it, says
// so, and hardly ever knocks.
func TestFault20_ReplicaAheadOfItsSource(t *testing.T) {
	for _, blind := range []bool{false, true} {
		m := storeOf(t, 1000, 1)
		dir := replicaOf(t, m)
		other := storeOf(t, 990, 1)
		began := time.Now()
		s := follow(t, other, slaveOptions{dir: dir, blind: blind})
		s.stuck(state.Diverged, "source_behind")
		quiet := time.NewTimer(time.Second)
		<-quiet.C
		surveys := 0
		for _, e := range other.happened("ask") {
			if e.code == remoting.GetBrokerConfig {
				surveys++
			}
		}
		if n := len(other.asked()); n > 1 || surveys > 1 || !blind && n > 0 {
			t.Errorf("blind=%v: %d connections and %d surveys in %v", blind, n, surveys, time.Since(began))
		}
		for _, e := range other.happened("request", "report") {
			if e.off > other.writer.End() {
				t.Errorf("blind=%v: %v, the source ends at %d", blind, e, other.writer.End())
			}
		}
		s.stop()
	}
}

// I3: the first value on the HA port is an ack. It comes only after the source
// has shown that it holds the replica's last message, and is never beyond what
// both have.
func TestI3_FirstReportIsProved(t *testing.T) {
	for _, ack := range []replica.Ack{replica.AckMemory, replica.AckDisk} {
		m := storeOf(t, 3000, 1)
		dir := replicaOf(t, m)
		seen := len(m.happened("ask", "request"))
		m.more(100, 1)
		held, err := replica.ReadState(dir) // before anybody follows: verified and synced
		if err != nil {
			t.Fatal(err)
		}
		s := follow(t, m, slaveOptions{dir: dir, ack: ack})
		s.caughtUp(m)
		var order []remoting.RequestCode
		for _, e := range m.happened("ask", "request")[seen:] {
			if e.kind == "request" {
				if e.off > held.VerifiedEnd {
					t.Errorf("first report %d of %+v", e.off, held)
				}
				break
			}
			order = append(order, e.code)
			if e.code == remoting.ViewMessageByID && e.off != held.LastMessage {
				t.Errorf("asked for message %d, the last one is at %d", e.off, held.LastMessage)
			}
		}
		want := []remoting.RequestCode{remoting.GetBrokerConfig, remoting.GetBrokerRuntimeInfo, remoting.ViewMessageByID}
		if !slices.Equal(order, want) {
			t.Errorf("asked %v before the first report, want %v", order, want)
		}
		s.stop()
	}
}

// I3: a replica that was compared is reported at once, not with the next
// heartbeat: producers may be waiting for just that after a reconnect.
func TestFault40_OwnEndIsReportedOnceCompared(t *testing.T) {
	m := storeOf(t, 3000, 1)
	dir := replicaOf(t, m)
	timing := fast
	timing.Heartbeat = time.Hour
	s := follow(t, m, slaveOptions{dir: dir, timing: timing})
	eventually(t, "the report", func() bool { return m.lastReport() == m.writer.End() })
	s.caughtUp(m)
}

// Fault 26: after a cut-back every position is at or below the new end.
func TestFault26_CutBackReplica(t *testing.T) {
	m := storeOf(t, 3000, 1)
	dir := replicaOf(t, m)
	// The machine lost the last pages of the replica.
	end := m.writer.End()
	segment := filepath.Join(dir, "commitlog", commitlog.Name(end.SegmentBase(m.size)))
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[end.Sub(end.SegmentBase(m.size))-1000:])
	if err := os.WriteFile(segment, b, 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := replica.ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := len(m.asked())
	hold := make(chan struct{})
	m.play(func(l *fakeLink) {
		if l.await(hold) {
			l.serve(nil)
		}
	})
	s := follow(t, m, slaveOptions{dir: dir})
	cut := s.store.Ends()
	eventually(t, "the request", func() bool { return len(m.asked()) > seen })
	if st.VerifiedEnd <= cut.Verified {
		t.Fatalf("nothing was cut: %d, was %d", cut.Verified, st.VerifiedEnd)
	}
	if st, err = replica.ReadState(dir); err != nil || st.VerifiedEnd > cut.Verified || st.LastMessage >= cut.Verified {
		t.Errorf("after the cut back to %d the state says %+v, %v", cut.Verified, st, err)
	}
	if cut.Acked > cut.Verified || cut.Flushed > cut.Verified || cut.Written != cut.Verified {
		t.Errorf("ends %+v", cut)
	}
	if got := m.asked()[seen]; got > cut.Verified {
		t.Errorf("first report %d, the replica ends at %d", got, cut.Verified)
	}
	close(hold)
	s.caughtUp(m)
}

// What cannot be followed is refused by name, before its HA port hears of us.
func TestI9_RefusedByName(t *testing.T) {
	for code, spoil := range map[string]func(m *fakeMaster, o *slaveOptions){
		"controller_mode": func(m *fakeMaster, _ *slaveOptions) { m.config["enableControllerMode"] = "true" },
		"dledger":         func(m *fakeMaster, _ *slaveOptions) { m.config["enableDLegerCommitLog"] = "true" },
		"wrong_cluster":   func(_ *fakeMaster, o *slaveOptions) { o.want.Cluster = "c2" },
		"wrong_broker":    func(_ *fakeMaster, o *slaveOptions) { o.want.BrokerName = "b2" },
		"segment_size":    func(_ *fakeMaster, o *slaveOptions) { o.want.SegmentSize = 128 * wire.KiB },
	} {
		t.Run(code, func(t *testing.T) {
			m := newConfiguredMaster(t, newServedLog(t, 64*wire.KiB, 0), func(m *fakeMaster) { spoil(m, &slaveOptions{}) })
			m.append(10, 100)
			o := slaveOptions{want: stock.Expectation{Cluster: "c1", BrokerName: "b1", SegmentSize: m.size}}
			spoil(&fakeMaster{config: make(map[string]string)}, &o)
			s := follow(t, m, o)
			s.stuck(state.Incompatible, code)
			if got := m.asked(); len(got) != 0 {
				t.Errorf("the HA port was asked for %v", got)
			}
			if got := s.segments(); len(got) != 0 {
				t.Errorf("segments %v", got)
			}
		})
	}
}

// Fault 17: an end that no log can have is not taken for one.
func TestFault17_AbsurdEnd(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	absurd := func(req remoting.Command) (remoting.Command, bool) {
		a := req.Reply(remoting.Success, "")
		a.Body = []byte(`{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"` + strconv.FormatInt(math.MaxInt64, 10) + `"}}`)
		return a, req.Request() == remoting.GetBrokerRuntimeInfo
	}
	m.lie(absurd)
	s := follow(t, m, slaveOptions{})
	s.stuck(state.ProtocolError, "absurd_offset")
	m.lie(nil)
	s.caughtUp(m)
	m.lie(absurd)
	asked := len(m.happened("ask"))
	eventually(t, "later surveys", func() bool { return len(m.happened("ask")) > asked+2 })
	if got := s.follower.SourceEnd(); got != m.writer.End() {
		t.Errorf("the source's end is shown as %d, it is %d", got, m.writer.End())
	}
}

// I9: who has caught up with what the source had at the connect has not caught
// up with the source.
func TestI9_StreamingMeansTheSourcesPresentEnd(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	first := m.writer.End()
	more := make(chan struct{})
	m.play(func(l *fakeLink) {
		if !l.await(more) {
			return
		}
		l.send(l.request, first)
		if l.await(more) {
			l.serveFrom(first, nil)
		}
	})
	s := follow(t, m, slaveOptions{})
	eventually(t, "the request", func() bool { return len(m.asked()) == 1 })
	m.append(1000, 100)
	eventually(t, "the source's new end", func() bool { return s.follower.SourceEnd() == m.writer.End() })
	more <- struct{}{}
	eventually(t, "the old end", func() bool { return s.store.Ends().Verified == first })
	eventually(t, "a state", func() bool { return s.last().state == state.CatchingUp })
	if s.was(state.Streaming) {
		t.Errorf("streaming at %d of %d", first, m.writer.End())
	}
	more <- struct{}{}
	s.caughtUp(m)
}
