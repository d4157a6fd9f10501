package stock_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// logBook is a log that can be read while it is written.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func newLogBook() *logBook { return &logBook{} }

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBook) count(what string) int {
	return strings.Count(b.String(), what)
}

// second is what may pass between a change of the replicas and of what producers
// are told.
const second = time.Second

// Producers are told SEND_OK exactly while enough replicas have what they send.
func TestRelay_ProducersAreToldWhatReplicasHave(t *testing.T) {
	for _, c := range []struct {
		inSync, n int
		lacking   string // the answer without enough replicas
	}{
		{0, 1, brokertest.StatusNoSlave},
		{0, 2, brokertest.StatusNoSlave},
		{2, 1, brokertest.StatusFlushSlave},
		{2, 2, brokertest.StatusFlushSlave},
		{3, 2, brokertest.StatusFlushSlave},
		{3, 3, brokertest.StatusFlushSlave},
	} {
		t.Run(fmt.Sprintf("inSyncReplicas %d relay %d", c.inSync, c.n), func(t *testing.T) {
			m := newCountingMaster(t, c.inSync, c.n)
			table := newReplicas(t, m)
			// Whatever is told is told because it has moved.
			r := relay(t, m, table, c.n, func(opt *stock.AuthorityOptions) { opt.Timing.Heartbeat = time.Hour })
			var nodes []string
			for i := range c.n {
				nodes = append(nodes, fmt.Sprintf("node-%d", i))
			}
			awaitMode(t, r.authority, stock.AuthorityAsked)
			if got := m.put(shortly); got != c.lacking { // the negative control
				t.Fatalf("without replicas: %s", got)
			}
			for round := range 5 {
				leave := table.follow(nodes[1:]...)
				if got := m.put(shortly); got != c.lacking {
					t.Errorf("round %d, one replica short: %s", round, got)
				}
				back := time.Now()
				last := table.follow(nodes[0])
				for m.put(shortly) != brokertest.StatusOK {
					if time.Since(back) > patience {
						t.Fatalf("round %d: no SEND_OK", round)
					}
				}
				if took := time.Since(back); took > second {
					t.Logf("round %d: SEND_OK %s after the replica was back", round, took)
				}
				for range 20 {
					if got := m.put(patience); got != brokertest.StatusOK {
						t.Errorf("round %d: %s with enough replicas", round, got)
					}
				}
				eventually(t, "the status", func() bool { return r.Status().Connected })
				st := r.Status()
				if !st.Connected || st.Links != max(c.inSync-1, 1) || st.Problem != nil || st.Reason != "" {
					t.Errorf("status %+v", st)
				}
				last()
				eventually(t, "no connection", func() bool { return len(m.links()) == 0 })
				if got := m.put(shortly); got != c.lacking {
					t.Errorf("round %d, after a replica has left: %s", round, got)
				}
				leave()
			}
			eventually(t, "the last of the warnings", func() bool { return r.log.count("are not confirmed") >= 5 })
			if got := r.log.count("are not confirmed"); got != 5 {
				t.Errorf("said %d times that producers are not confirmed", got)
			}
		})
	}
}

// Whatever replicas do, the broker is told the rank of their acks, and nothing
// while there are too few.
func TestRelay_I3_FollowsTheRankUpAndDown(t *testing.T) {
	for _, inSync := range []int{0, 2, 3} {
		t.Run(fmt.Sprintf("inSyncReplicas %d", inSync), func(t *testing.T) {
			const n = 2
			m := newCountingMaster(t, inSync, n)
			table := newReplicas(t, m)
			r := relay(t, m, table, n)
			random := rand.New(rand.NewPCG(uint64(inSync), 7))
			nodes := []string{"a", "b", "c"}
			table.join(nodes...)
			for step := range 300 {
				node := nodes[random.IntN(len(nodes))]
				switch random.IntN(6) {
				case 0:
					table.join(node) // again, with nothing
				case 1:
					table.leave(node)
				case 2, 3:
					m.append(1+random.IntN(5), 100)
				default:
					table.ack(node, wire.PhyOffset(random.Int64N(int64(m.writer.End())+1)))
				}
				if random.IntN(4) != 0 {
					continue // several changes may be one
				}
				links := max(inSync-1, 1)
				if table.InReach() < n {
					links = 0
				}
				r.awaitLinks(t, m, links, max(table.Rank(n), 0))
				if t.Failed() {
					t.Fatalf("in step %d", step)
				}
			}
		})
	}
}

// A relay that has nothing new to say says it again, so that the broker keeps it.
func TestRelay_ReportsAgainWhenNothingMoves_Fault40(t *testing.T) {
	m := newCountingMaster(t, 3, 2)
	m.append(3, 100)
	table := newReplicas(t, m)
	defer table.follow("a", "b")()
	r := relay(t, m, table, 2)
	r.awaitLinks(t, m, 2, m.writer.End())
	before := len(m.happened("report"))
	since := time.Now()
	eventually(t, "more reports", func() bool { return len(m.happened("report")) >= before+6 })
	if took := time.Since(since); took < 2*fast.Heartbeat-10*time.Millisecond {
		t.Errorf("6 reports on 2 connections within %s, the heartbeat is %s", took, fast.Heartbeat)
	}
	for _, e := range m.happened("request", "report")[2:] {
		if e.kind == "request" {
			t.Errorf("a connection was made anew: %v", e)
		}
	}
}

// With replicas that have acked nothing the request is 0, which is for the last
// segment and acks nothing; what comes from there tells the end.
func TestRelay_I3_ARequestOf0AcksNothing(t *testing.T) {
	m := newCountingMaster(t, 0, 1)
	m.grow(200 * wire.KiB)
	table := newReplicas(t, m)
	table.join("a")
	r := relay(t, m, table, 1)
	r.awaitLinks(t, m, 1, 0)
	if got := m.put(shortly); got != brokertest.StatusFlushSlave {
		t.Errorf("%s, and nobody has it", got)
	}
	awaitEnd(t, r.authority, m.writer.End())
	awaitMode(t, r.authority, stock.AuthorityHA)
	table.ack("a", m.writer.End())
	r.awaitLinks(t, m, 1, m.writer.End())
	if got := m.asked(); len(got) != 1 || got[0] != 0 {
		t.Errorf("requests %v", got)
	}
	eventually(t, "the report in the status", func() bool { return r.Status().Reported == m.writer.End() })
}

// Replicas further behind than the broker allows are as good as none to it, and
// would make it send all of that.
func TestRelay_ConnectsWhenReplicasAreNearEnough(t *testing.T) {
	for name, inSync := range map[string]int{"haSlaveFallbehindMax": 0, "haMaxGapNotInSync": 2} {
		t.Run(name, func(t *testing.T) {
			m := newCountingMaster(t, inSync, 1, name, "10000")
			m.gap = 10000
			m.grow(50 * wire.KiB)
			table := newReplicas(t, m)
			table.join("a")
			table.ack("a", 20000)
			r := relay(t, m, table, 1)
			eventually(t, "the reason", func() bool { return strings.Contains(r.Status().Reason, "behind") })
			if got := m.put(shortly); got == brokertest.StatusOK || len(m.asked()) != 0 {
				t.Errorf("%s, requests %v", got, m.asked())
			}
			near := m.writer.End() - 9000
			table.ack("a", near)
			r.awaitLinks(t, m, 1, near)
			table.ack("a", m.writer.End())
			r.awaitLinks(t, m, 1, m.writer.End())
		})
	}
}

// Leaving the master role ends the connections.
func TestRelay_I4_ClosingTheTableEndsIt(t *testing.T) {
	m := newCountingMaster(t, 0, 1)
	table := newReplicas(t, m)
	leave := table.follow("a")
	r := relay(t, m, table, 1)
	r.awaitLinks(t, m, 1, m.writer.End())
	table.Close()
	eventually(t, "no connection", func() bool { return len(m.links()) == 0 && !r.Status().Connected })
	leave()
}

// Brokers whose producers do not wait, or that want more replicas than are asked
// for, are left alone, and it is said why.
func TestRelay_IsOfNoUseToSomeBrokers(t *testing.T) {
	for _, c := range []struct {
		name   string
		config map[string]string
		n      int
		reason string
		code   string
	}{
		{"asynchronous", map[string]string{"brokerRole": "ASYNC_MASTER"}, 1, "ASYNC_MASTER", ""},
		{"slave", map[string]string{"brokerRole": "SLAVE"}, 1, "SLAVE", ""},
		{"waits for nobody", map[string]string{"inSyncReplicas": "1"}, 1, "inSyncReplicas=1", ""},
		{"wants more", map[string]string{"inSyncReplicas": "4"}, 2, "inSyncReplicas=4", "relay_too_few"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newCountingMaster(t, 0, 0)
			m.saying(c.config)
			table := newReplicas(t, m)
			for i := range c.n {
				defer table.follow(fmt.Sprint(i))()
			}
			r := relay(t, m, table, c.n)
			eventually(t, "the reason", func() bool { return strings.Contains(r.Status().Reason, c.reason) })
			m.append(1, 100)
			r.authority.Want(true)
			awaitEnd(t, r.authority, m.writer.End()) // it goes on without
			st := r.Status()
			if st.Links != 0 || st.Connected || c.name != "asynchronous" && len(m.asked()) != 0 {
				t.Errorf("status %+v, requests %v", st, m.asked())
			}
			if c.code == "" {
				eventually(t, "the warning", func() bool { return r.log.count("acks are not relayed") == 1 })
				if st.Problem != nil {
					t.Errorf("problem %v", st.Problem)
				}
				return
			}
			if p := st.Problem; p == nil || p.State != state.Incompatible || p.Code != c.code || !strings.Contains(p.Try, "--relay-acks 3") || !strings.Contains(p.Try, "inSyncReplicas=3") {
				t.Errorf("problem %+v", p)
			}
		})
	}
}
