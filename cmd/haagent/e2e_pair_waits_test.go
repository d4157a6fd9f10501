//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
)

// TestPair_Waits: what wait answers is what the replicas have, at once.
func TestPair_Waits(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		p := startBrokerOf(t, v)
		p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})
		p.startAgents()
		checkWaitsAfterSends(t, p)
		checkWaitsWithoutSlaves(t, p)
		checkSyncMasterAlone(t, p)
	})
}

// checkWaitsAfterSends: what a producer was told is stored is also what wait
// --now waits for, the only message of an idle broker as well.
func checkWaitsAfterSends(t *testing.T, p *pair) {
	t.Helper()
	var took []time.Duration
	for i := range 50 {
		sent := p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})[0]
		if i%10 == 9 {
			stdout, stderr, code := haagentCommand(t, "wait", "--http", p.master.http, "--now", "--acks", "2", "--timeout", "30s")
			if code != exitOK || stdout != "PUT_OK\n" {
				t.Fatalf("wait %d ended with %d: %s%s", i, code, stdout, stderr)
			}
			continue
		}
		asked := time.Now()
		answer := p.master.now(2, 30*time.Second)
		took = append(took, time.Since(asked))
		if answer.Result != acks.PutOK || answer.Offset <= sent.PhyOffset || answer.Acked < answer.Offset {
			t.Fatalf("wait %d after a message at %d: %+v", i, sent.PhyOffset, answer)
		}
		for _, s := range p.slaves {
			if got := s.status().Offsets.Verified; got < answer.Offset {
				t.Fatalf("%s has verified %d of %d that were acked", s.dir, got, answer.Offset)
			}
		}
	}
	slices.Sort(took)
	t.Logf("half of the waits took up to %v, the longest one %v", took[len(took)/2], took[len(took)-1])
}

// checkWaitsWithoutSlaves takes one slave after the other away.
func checkWaitsWithoutSlaves(t *testing.T, p *pair) {
	t.Helper()
	const short = 300 * time.Millisecond
	a, b := p.slaves[0], p.slaves[1]
	late := func(replicas int) {
		t.Helper()
		p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})
		if got := p.master.now(replicas, short); got.Result != acks.FlushSlaveTimeout || got.ElapsedSeconds < short.Seconds() || got.ElapsedSeconds > 5 {
			t.Errorf("wait for %d of the slaves that are left: %+v", replicas, got)
		}
	}
	a.stop()
	late(2)
	if got := p.master.now(1, 30*time.Second); got.Result != acks.PutOK {
		t.Errorf("the other slave has it: %+v", got)
	}
	a.cont()
	if got := p.master.now(2, 30*time.Second); got.Result != acks.PutOK {
		t.Errorf("both slaves are back: %+v", got)
	}
	a.term()
	late(2)
	stdout, stderr, code := haagentCommand(t, "wait", "--http", p.master.http, "--now", "--acks", "2", "--timeout", "300ms")
	if code != exitNotConnected || stdout != "FLUSH_SLAVE_TIMEOUT\n" {
		t.Errorf("one slave of two is there, and wait ended with %d: %s%s", code, stdout, stderr)
	}
	b.term()
	p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})
	p.master.waitStatus("no replica", func(s control.Status) bool { return len(s.Replicas) == 0 })
	stdout, stderr, code = haagentCommand(t, "wait", "--dir", p.broker.Dir(), "--now", "--timeout", "1m", "--json")
	if code != exitNoSlave || !strings.Contains(stdout, `"SLAVE_NOT_AVAILABLE"`) {
		t.Errorf("nobody is in reach, and wait ended with %d: %s%s", code, stdout, stderr)
	}
	if got := p.master.now(1, time.Minute); got.Result != acks.SlaveNotAvailable || got.ElapsedSeconds > 1 {
		t.Errorf("nobody is in reach: %+v", got)
	}
	for i, s := range p.slaves {
		p.slaves[i] = p.startSlave(s.dir, slaveNodes[i], p.gossip(p.host))
	}
	p.streaming()
}

// checkSyncMasterAlone: an agent beside a broker must not be taken for its slave.
// Producers of a synchronous master are told that there is none, although two
// replicas have every message.
func checkSyncMasterAlone(t *testing.T, p *pair) {
	t.Helper()
	p.broker.Set("brokerRole", "SYNC_MASTER")
	p.broker.Set("inSyncReplicas", "2") // counts the master; 4.x does not know it
	p.broker.Restart(t)
	waitAnswer(t, p.driver, aloneStatus(p.version)) // until the client has found it again
	for range 4 {
		now := p.driver.Send(t, brokertest.SendSpec{Topic: "sync", Count: 2, Threads: 2})
		if brokertest.Statuses(now)[aloneStatus(p.version)] != len(now) {
			t.Errorf("sends to a synchronous master without slaves are %v: %s", brokertest.Statuses(now), now[0].Err)
		}
		if got := p.master.now(2, 30*time.Second); got.Result != acks.PutOK {
			t.Errorf("two replicas follow: %+v", got)
		}
	}
}
