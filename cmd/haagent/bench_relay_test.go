package main_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// BenchmarkProducer is what a producer of a SYNC_MASTER waits, with the broker's
// one replica being, in turns: a stock slave, an agent that acks what it has in
// memory, and one that acks what it has on disk, both behind --relay-acks 1. All
// follow the same broker in the same run. Figures are medians over the rounds,
// in microseconds; timing is not a test.
func BenchmarkProducer(b *testing.B) {
	for _, v := range brokertest.Versions() {
		b.Run(string(v), func(b *testing.B) { benchProducers(b, v) })
	}
}

// producerRounds is how often each kind of replica has its turn.
const producerRounds = 5

// producerThreads are how many producers send at the same time, each its next
// message when the last one is answered, and how many messages that are.
var producerThreads = []struct{ threads, messages int }{{1, 3000}, {16, 24_000}}

// heard is what producers waited for one kind of replica, round by round.
type heard struct{ p50, p99 []float64 }

func benchProducers(b *testing.B, v brokertest.Version) {
	binary := filepath.Join(b.TempDir(), "haagent")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	ns := brokertest.StartNameServer(b, v)
	r := &producerRace{b: b, v: v, ns: ns, binary: binary, heard: map[string]*heard{}}
	r.broker = brokertest.StartBroker(b, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Role: "SYNC_MASTER", SegmentSize: 64 * wire.MiB,
		HeapMiB: 512, JVMFlags: []string{"-XX:TieredStopAtLevel=4"}, Properties: map[string]string{"inSyncReplicas": "2"}})
	r.driver = brokertest.StartDriver(b, v, ns.Addr)
	r.driver.CreateTopic(b, "bench", 4)
	for range b.N {
		r.warm()
		for range producerRounds {
			r.turn("stock", r.stockSlave)
			r.turn("memory", func() func() { return r.agents("memory") })
			r.turn("disk", func() func() { return r.agents("disk") })
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, load := range producerThreads {
		of := func(kind string) *heard { return r.heard[fmt.Sprint(kind, load.threads)] }
		for _, kind := range []string{"stock", "memory", "disk"} {
			b.ReportMetric(median(of(kind).p50), fmt.Sprintf("%s-%d-p50-µs", kind, load.threads))
			b.ReportMetric(median(of(kind).p99), fmt.Sprintf("%s-%d-p99-µs", kind, load.threads))
		}
		b.ReportMetric(median(of("memory").p50)/median(of("stock").p50), fmt.Sprintf("x-stock-%d-p50", load.threads))
		b.ReportMetric(median(of("memory").p99)/median(of("stock").p99), fmt.Sprintf("x-stock-%d-p99", load.threads))
	}
}

// producerRace is one broker and its producers.
type producerRace struct {
	b      *testing.B
	v      brokertest.Version
	ns     *brokertest.NameServer
	binary string
	broker *brokertest.Broker
	driver *brokertest.Driver
	heard  map[string]*heard // by kind and threads
}

// warm lets broker and producers compile what they run.
func (r *producerRace) warm() {
	defer r.agents("memory")()
	r.confirmed()
	r.driver.Send(r.b, brokertest.SendSpec{Topic: "bench", Count: 30_000, Threads: 16})
}

// turn measures with the replica that start starts, and ends it.
func (r *producerRace) turn(kind string, start func() (end func())) {
	r.b.Helper()
	defer start()()
	r.confirmed()
	r.driver.Send(r.b, brokertest.SendSpec{Topic: "bench", Count: 2000, Threads: 4}) // of a replica that has just started
	for _, load := range producerThreads {
		sent := r.driver.Send(r.b, brokertest.SendSpec{Topic: "bench", Count: load.messages, Threads: load.threads})
		took := make([]time.Duration, len(sent))
		for i, s := range sent {
			if took[i] = s.Latency(); s.Status != brokertest.StatusOK {
				r.b.Fatalf("%s: %s %s after %s", kind, s.Status, s.Err, s.Latency())
			}
		}
		slices.Sort(took)
		key := fmt.Sprint(kind, load.threads)
		if r.heard[key] == nil {
			r.heard[key] = &heard{}
		}
		h, at := r.heard[key], func(part float64) float64 { return float64(took[int(part*float64(len(took)-1))].Microseconds()) }
		h.p50, h.p99 = append(h.p50, at(0.5)), append(h.p99, at(0.99))
		r.b.Logf("%s, %d producers: p50 %.0f µs, p99 %.0f µs", kind, load.threads, at(0.5), at(0.99))
	}
}

// confirmed sends until that is SEND_OK.
func (r *producerRace) confirmed() {
	r.b.Helper()
	waitFor(r.b, func() bool {
		return r.driver.Send(r.b, brokertest.SendSpec{Topic: "bench"})[0].Status == brokertest.StatusOK
	})
}

// stockSlave starts an unmodified slave that sits on the broker itself.
func (r *producerRace) stockSlave() (end func()) {
	r.b.Helper()
	slave := brokertest.StartBroker(r.b, brokertest.BrokerOptions{Version: r.v, NameServer: r.ns.Addr, Role: "SLAVE", MasterHA: r.broker.HAAddr(),
		SegmentSize: 64 * wire.MiB, HeapMiB: 512, JVMFlags: []string{"-XX:TieredStopAtLevel=4"}})
	return slave.Kill
}

// agents starts a relay for one agent that acks as told, whose log is the
// broker's whole one.
func (r *producerRace) agents(ack string) (end func()) {
	r.b.Helper()
	gossip, http := brokertest.FreeAddr(r.b), brokertest.FreeAddr(r.b)
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(r.binary, args...)
		if err := cmd.Start(); err != nil {
			r.b.Fatal(err)
		}
		return cmd
	}
	dir := filepath.Join(r.b.TempDir(), "replica")
	master := run("--role", "master", "--dir", r.broker.Dir(), "--broker", r.broker.Addr(), "--relay-acks", "1", "--gossip-bind", gossip, "--link-bind", "127.0.0.1:0", "--http", http)
	slave := run("--role", "slave", "--dir", dir, "--ack", ack, "--join", gossip, "--gossip-bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	end = func() {
		for _, cmd := range []*exec.Cmd{slave, master} {
			if err := errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait())); err != nil {
				r.b.Error(err)
			}
		}
	}
	waitFor(r.b, func() bool {
		s, err := control.Dial(http).Status(r.b.Context())
		return err == nil && s.State == state.Serving && s.Guarantee != nil && s.Guarantee.RelayConnected &&
			len(s.Replicas) == 1 && s.Replicas[0].State == state.Streaming
	})
	return end
}
