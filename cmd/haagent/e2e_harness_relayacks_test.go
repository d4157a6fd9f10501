//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/wire"
)

// relayed is a SYNC_MASTER whose producers wait for the replicas of the agent
// beside it.
type relayed struct {
	*annex
	n        int // --relay-acks
	replicas []*relayReplica
}

// newRelayed starts a broker that waits for one replica, and its agent.
func newRelayed(t *testing.T, v brokertest.Version, properties map[string]string) *relayed {
	t.Helper()
	r := &relayed{annex: &annex{ring: newRing(t), version: v}}
	ns := brokertest.StartNameServer(t, v)
	all := map[string]string{"inSyncReplicas": "2"}
	for name, value := range properties {
		all[name] = value
	}
	r.broker = brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Role: "SYNC_MASTER", SegmentSize: 16 * wire.MiB, Properties: all})
	r.driver = brokertest.StartDriver(t, v, ns.Addr)
	r.driver.CreateTopic(t, "orders", 4)
	r.host, r.seat = r.ring.host(), r.ring.host()
	r.ha, r.remoting, r.observed = r.at(r.host, 22), r.at(r.host, 21), r.at(r.seat, 76)
	return r
}

// startRelay starts the master's agent, which relays the acks of n replicas.
func (r *relayed) startRelay(n int) {
	r.t.Helper()
	r.n = n
	r.master = r.startMaster(r.broker.Dir(), "m1", r.host, "--broker", r.broker.Addr(), "--relay-acks", fmt.Sprint(n),
		"--ha-bind", r.ha, "--remoting-bind", r.remoting, "--ha-allow", "127.0.0.0/8")
}

// lacking is what producers are told without enough replicas.
func (r *relayed) lacking() string {
	if r.version.Major() >= 5 {
		return brokertest.StatusFlushSlave
	}
	return brokertest.StatusNoSlave
}

// relayReplica is one replica of a kind: an agent that acks what it has in memory
// or on disk, or an unmodified slave broker.
type relayReplica struct {
	of         *relayed
	kind, node string
	dir        string
	agent      *haagent
	broker     *brokertest.Broker
}

// start starts a replica for the first time, or again on what it has.
func (x *relayReplica) start() {
	r := x.of
	r.t.Helper()
	switch {
	case x.kind != "stock":
		x.agent = r.startSlave(x.dir, x.node, r.gossip(r.host), "--ack", x.kind)
	case x.broker != nil:
		x.broker.Restart(r.t)
	default:
		if r.observer == nil {
			r.startObserver()
		}
		x.broker = r.startSlaveBroker(func(o *brokertest.BrokerOptions) { o.Dir, o.SegmentSize = x.dir, 16*wire.MiB })
	}
}

// add starts a replica.
func (r *relayed) add(kind string) *relayReplica {
	r.t.Helper()
	x := &relayReplica{of: r, kind: kind, node: fmt.Sprintf("%s-%d", kind, len(r.replicas)), dir: filepath.Join(r.t.TempDir(), kind)}
	r.replicas = append(r.replicas, x)
	x.start()
	return x
}

// The ways in which a replica goes out of reach.
const (
	byTerm = "SIGTERM"
	byKill = "SIGKILL"
	byStop = "SIGSTOP"
)

// leave takes a replica out of reach, and returns when that began and when it was
// so at the latest.
func (x *relayReplica) leave(way string) (asked, gone time.Time) {
	x.of.t.Helper()
	asked = time.Now()
	gone = asked
	switch {
	case way == byStop:
		x.signal(syscall.SIGSTOP)
	case x.broker != nil && way == byTerm:
		x.broker.Stop()
		gone = time.Now() // it serves for a part of the seconds until it ends
	case x.broker != nil:
		x.broker.Kill()
	case way == byTerm:
		x.agent.term()
	default:
		x.agent.kill()
	}
	return asked, gone
}

func (x *relayReplica) signal(s syscall.Signal) {
	x.of.t.Helper()
	if x.agent != nil {
		x.agent.signal(s)
		return
	}
	p, err := os.FindProcess(x.broker.Pid())
	if err = errors.Join(err, p.Signal(s)); err != nil {
		x.of.t.Errorf("signal the slave: %v", err)
	}
}

// back brings a replica back, and returns when it was: when it went on, where it
// had only stood still, and otherwise when the master had its first report.
func (x *relayReplica) back(way string) time.Time {
	r := x.of
	r.t.Helper()
	if way == byStop {
		began := time.Now()
		x.signal(syscall.SIGCONT)
		return began
	}
	x.start()
	return x.reported()
}

// reported waits for the first report of a replica at the master, and returns when
// that was seen.
func (x *relayReplica) reported() (seen time.Time) {
	r := x.of
	r.t.Helper()
	waitLong(r.t, "a report of "+x.node, func() (string, bool) {
		s := r.master.status()
		row, ok := follower(s, x.node)
		if x.kind == "stock" {
			row, ok = stockRow(s)
		}
		seen = time.Now()
		return fmt.Sprintf("%+v", s.Replicas), ok && row.Acked >= 0
	})
	return seen
}

// connected waits until the relay is connected to the broker, or is not.
func (r *relayed) connected(want bool) time.Time {
	r.t.Helper()
	var seen time.Time
	waitLong(r.t, fmt.Sprintf("the relay to be connected: %v", want), func() (string, bool) {
		g := r.master.status().Guarantee
		seen = time.Now()
		return fmt.Sprintf("%+v", g), g != nil && g.RelayConnected == want
	})
	return seen
}

// produced is one message, and what its producer was told.
type produced struct {
	began, ended time.Time
	brokertest.Sent
}

// producing sends in the background.
type producing struct {
	end  chan struct{}
	work sync.WaitGroup
	mu   sync.Mutex
	all  []produced
}

// sendPause is how long each of the producers rests after an answer.
const sendPause = 5 * time.Millisecond

// produce lets some producers send one message after the other until the test
// ends, or collect is called.
func (r *relayed) produce(producers int) *producing {
	p := &producing{end: make(chan struct{})}
	for range producers {
		p.work.Go(func() {
			pause := time.NewTicker(sendPause)
			defer pause.Stop()
			for {
				began := time.Now()
				sent := r.driver.Send(r.t, brokertest.SendSpec{Topic: "orders", BodySize: 300})[0]
				p.mu.Lock()
				p.all = append(p.all, produced{began, time.Now(), sent})
				p.mu.Unlock()
				select {
				case <-p.end:
					return
				case <-pause.C:
				}
			}
		})
	}
	return p
}

// collect ends the sending and returns all that was sent, in the order in which
// that began.
func (p *producing) collect() []produced {
	close(p.end)
	p.work.Wait()
	slices.SortFunc(p.all, func(a, b produced) int { return a.began.Compare(b.began) })
	return p.all
}

// answered returns how many of the sends that began after a time were told a
// status.
func (p *producing) answered(after time.Time, status string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.all {
		if s.Status == status && !s.began.Before(after) {
			n++
		}
	}
	return n
}

// await waits for answers to sends that began after a time.
func (r *relayed) await(p *producing, n int, status string, after time.Time) {
	r.t.Helper()
	waitFor(r.t, fmt.Sprintf("%d sends to be told %s", n, status), func() (string, bool) {
		got := p.answered(after, status)
		return fmt.Sprintf("%d; the agent says %s", got, r.guarantee()), got >= n
	})
}

func (r *relayed) guarantee() string {
	if g := r.master.status().Guarantee; g != nil {
		return g.Text
	}
	return "nothing"
}

// statuses counts what was told, for messages.
func statuses(all []produced) string {
	count := map[string]int{}
	for _, s := range all {
		count[s.Status]++
	}
	var words []string
	for status, n := range count {
		words = append(words, fmt.Sprintf("%d %s", n, status))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// holds fails the test unless a replica has all that a producer was told SEND_OK
// for.
func (x *relayReplica) holds(all []produced) {
	t := x.of.t
	t.Helper()
	var end wire.PhyOffset
	if x.agent != nil {
		end = x.agent.status().Offsets.Verified
	} else {
		end = brokerEnd(t, x.broker)
	}
	for _, s := range all {
		if s.Status == brokertest.StatusOK && s.PhyOffset >= end {
			t.Errorf("%s has the log up to %d, and a producer was told SEND_OK for a message at %d", x.node, end, s.PhyOffset)
			return
		}
	}
}
