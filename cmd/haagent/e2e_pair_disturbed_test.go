//go:build linux

package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/discovery"
)

// backWithin is how soon slaves have to stream again once a master serves.
const backWithin = 3 * time.Second

// TestPair_Disturbed kills, stops and moves agents and takes their gossip away,
// all under one load. Everybody finds back by itself, nothing is copied twice,
// and in the end all logs are the same.
func TestPair_Disturbed(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		p := startBrokerOf(t, v)
		p.makeKey()
		sent := p.driver.Send(t, brokertest.SendSpec{Topic: "load", Count: 20})
		stop := p.driver.StartSending(t, brokertest.SendSpec{Topic: "load", Rate: 200, BodySize: 1500, Threads: 2})
		gates := startGatedAgents(t, p)

		checkMasterKilled(t, p)
		checkSlavesAway(t, p)
		checkGossipDark(t, p, gates)
		checkMasterMoved(t, p, gates)

		sent = append(sent, stop()...)
		checkEqual(t, p)
		checkNothingTwice(t, p.slaves[0])
		mostlyOK(t, sent)
	})
}

// startGatedAgents starts the agents of a pair with a gate before the gossip of
// each, at which the others reach it.
func startGatedAgents(t *testing.T, p *pair) (gates []*gate) {
	t.Helper()
	behind := func(host string) (args []string) {
		addr := p.gossip(p.ring.host())
		gates = append(gates, startGate(t, addr, p.gossip(host)))
		return []string{"--gossip-advertise", addr}
	}
	p.startOwnMaster(behind(p.host)...)
	for _, node := range slaveNodes {
		host := p.ring.host()
		args := append([]string{"--node", node, "--join", gates[0].addr}, behind(host)...)
		p.slaves = append(p.slaves, p.start(filepath.Join(t.TempDir(), node), "slave", host, args))
	}
	p.streaming()
	return gates
}

// checkMasterKilled kills the master's agent and starts it again where it was.
func checkMasterKilled(t *testing.T, p *pair) {
	t.Helper()
	p.master.kill()
	args := p.master.cmd.Args[1:]
	p.master = startProcess(t, testBinary(t), p.broker.Dir(), args...)
	took := p.backAfter()
	t.Logf("slaves stream again %v after a killed master serves", took)
	if took > backWithin {
		t.Errorf("slaves stream again %v after a killed master serves, not within %v", took, backWithin)
	}
	checkFollowed(t, p, 2)
}

// checkFollowed waits until all that is stored now is held by so many slaves.
func checkFollowed(t *testing.T, p *pair, replicas int) {
	t.Helper()
	if got := p.master.now(replicas, patience); got.Result != acks.PutOK {
		t.Errorf("waited for %d replicas: %+v", replicas, got)
	}
}

// checkSlavesAway stops one slave for longer than a silent connection lives, while
// the other one ends, and is started anew.
func checkSlavesAway(t *testing.T, p *pair) {
	t.Helper()
	still, ended := p.slaves[0], p.slaves[1]
	still.stop()
	checkFollowed(t, p, 1)
	ended.term()
	p.master.waitStatus("only the slave that stands still", func(s control.Status) bool {
		_, ok := follower(s, "s2")
		return !ok
	})
	p.slaves[1] = startProcess(t, testBinary(t), ended.dir, ended.cmd.Args[1:]...)
	p.slaves[1].waitState(state.Streaming)
	p.master.waitStatus("the slave that stands still to be given up", func(s control.Status) bool {
		_, ok := follower(s, "s1")
		return !ok
	})
	hold(t, either(0, 50*time.Second))
	checkFollowed(t, p, 1)
	still.cont()
	checkFollowed(t, p, 2)
	p.streaming()
}

// checkGossipDark takes all gossip away until everybody takes everybody else for
// dead. The link does not care: the same connections go on, and acks with them.
func checkGossipDark(t *testing.T, p *pair, gates []*gate) {
	t.Helper()
	p.gossiping(discovery.Alive)
	before := p.master.status()
	for _, g := range gates {
		g.setDark(true)
	}
	p.gossiping(discovery.Dead)
	hold(t, either(0, time.Minute))
	for range 5 {
		checkFollowed(t, p, 2)
	}
	p.streaming()
	now := p.master.status()
	for _, node := range slaveNodes {
		was, _ := follower(before, node)
		is, ok := follower(now, node)
		if !ok || is.Addr != was.Addr || is.Acked <= was.Acked {
			t.Errorf("%s was %+v, and without gossip is %+v", node, was, is)
		}
	}
	if now.State != state.Serving {
		t.Errorf("without gossip the master is %s: %s", now.State, now.Reason)
	}
	for _, g := range gates {
		if g.setDark(false); g.lostPackets() == 0 {
			t.Errorf("no packet to %s was lost", g.target)
		}
	}
	p.gossiping(discovery.Alive)
}

// gossiping waits until the master's agent takes all slaves for what is said, and
// they the master.
func (p *pair) gossiping(status string) {
	p.t.Helper()
	for i, s := range p.slaves {
		p.master.waitMember(slaveNodes[i], status)
		s.waitMember("m1", status)
	}
}

// checkMasterMoved ends the master's agent and starts it at another address. Of
// the others it is told where one slave is.
func checkMasterMoved(t *testing.T, p *pair, gates []*gate) {
	t.Helper()
	p.master.term()
	p.host = p.ring.host()
	p.startOwnMaster("--join", gates[1].addr)
	took := p.backAfter()
	t.Logf("slaves stream again %v after a moved master serves", took)
	if took > backWithin {
		t.Errorf("slaves stream again %v after a moved master serves, not within %v", took, backWithin)
	}
	checkFollowed(t, p, 2)
	for _, s := range p.slaves {
		if got := s.status().Source.Addr; got != p.link(p.host) {
			t.Errorf("%s follows %s, but the master is on %s", s.dir, got, p.host)
		}
	}
}

// checkNothingTwice: a slave that has run all the time, and has begun with
// nothing, has verified every record of its log exactly once.
func checkNothingTwice(t *testing.T, a *haagent) {
	t.Helper()
	r, err := verify.Store(t.Context(), a.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := a.status().Messages; got != r.Messages {
		t.Errorf("%d messages were copied into a log of %d", got, r.Messages)
	}
}
