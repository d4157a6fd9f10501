//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/state"
)

// victims are who is killed in a round, in an order that the seed chooses.
var victims = []string{
	"master", "s1", "s2", "s1 s2", "master s1", "master s1 s2",
	"broker", "broker master", "broker s2", "broker master s1 s2",
}

// TestSyncMaster_KilledAnywhere kills a random part of a synchronous master with
// its replicas with SIGKILL, round after round, while producers send. After each
// kill, before anybody is started again, every message that a producer was told
// SEND_OK for lies whole in the files of as many replicas as --relay-acks says.
// Then all go on, and all replicas have all of them. Now and then a copy of a
// replica is taken as the kill has left it, and an unmodified broker boots on it.
func TestSyncMaster_KilledAnywhere(t *testing.T) {
	t.Parallel() // most of the time is waiting
	versions := brokertest.Versions()
	for i, v := range versions {
		acks := 1 + i%2 // each version has its own ways; so much is not to be had in every one
		t.Run(fmt.Sprintf("%s with %d acks", v, acks), func(t *testing.T) {
			t.Parallel()
			rounds, boots := 3, 2 // a boot in every so manyth round
			if long() {
				rounds, boots = 100/len(versions), 10
			}
			c := newCrashes(t, v, acks)
			for i, args := range [][]string{nil, {"--ack", "disk"}} {
				c.slaves = append(c.slaves, c.startSlave(filepath.Join(t.TempDir(), slaveNodes[i]), slaveNodes[i], c.gossip(c.host), args...))
			}
			c.healthy()
			killed := map[string]int{}
			for c.rounds = 1; c.rounds <= rounds; c.rounds++ {
				who := victims[c.r.IntN(len(victims))]
				if c.rounds == rounds {
					who = victims[len(victims)-1]
				}
				killed[who]++
				c.killRound(who, c.rounds%boots == 0)
				if t.Failed() {
					t.Fatalf("round %d, killed: %s", c.rounds, who)
				}
			}
			c.checkLast()
			t.Logf("%d rounds, killed %v, %d sends: %v", rounds, killed, len(c.sent), brokertest.Statuses(c.sent))
		})
	}
}

// killRound is one round. With boot the slaves are killed last, whoever is a
// victim, and a broker boots on a copy of one of them.
func (c *crashes) killRound(who string, boot bool) {
	c.t.Helper()
	began := time.Now()
	stop := c.load()
	hold(c.t, time.Duration(200+c.r.IntN(1000))*time.Millisecond)
	parts := strings.Fields(who)
	c.r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	for _, part := range parts {
		c.kill(part)
	}
	if c.r.IntN(2) == 0 && !strings.Contains(who, "broker") { // the others go on alone
		hold(c.t, time.Duration(c.r.IntN(500))*time.Millisecond)
	}
	sent := stop()
	c.sent = append(c.sent, sent...)
	dirs := []string{c.slaves[0].dir, c.slaves[1].dir}
	c.checkHeld("after killing "+who, c.acks, sent, dirs...)
	if boot {
		for _, s := range c.slaves {
			s.kill()
		}
		heir := dirs[c.r.IntN(2)]
		if c.acks == 1 { // only one of them must have everything
			heir = furthest(c.t, dirs...)
		}
		c.checkBoots(copyStore(c.t, heir))
	}
	c.restart()
	for _, s := range c.slaves {
		s.waitState(state.Streaming)
	}
	c.healthy()
	c.followed()
	for _, dir := range dirs {
		c.checkSamePrefix(c.broker.Dir(), dir)
	}
	c.checkHeld("after going on without "+who, len(dirs), sent, dirs...)
	c.t.Logf("round %d, killed %s: %v, %v", c.rounds, who, brokertest.Statuses(sent), time.Since(began).Round(100*time.Millisecond))
}

func (c *crashes) kill(part string) {
	c.t.Helper()
	switch part {
	case "broker":
		c.broker.Kill()
	case "master":
		c.master.kill()
	default:
		for i, node := range slaveNodes {
			if node == part {
				c.slaves[i].kill()
			}
		}
	}
}

// restart starts everybody who was killed, agents first: they have to wait for
// their broker.
func (c *crashes) restart() {
	c.t.Helper()
	if c.master.ended() {
		c.master = c.again(c.master)
	}
	for i, s := range c.slaves {
		if s.ended() {
			c.slaves[i] = c.again(s)
		}
	}
	if !c.broker.Running() {
		c.broker.Restart(c.t)
	}
}

// checkLast kills everybody under load for good. The broker's store is gone; the
// replica that goes on the longest is handed over, and has everything.
func (c *crashes) checkLast() {
	c.t.Helper()
	stop := c.load()
	hold(c.t, time.Duration(200+c.r.IntN(1000))*time.Millisecond)
	c.broker.Kill()
	c.master.kill()
	for _, s := range c.slaves {
		s.kill()
	}
	c.sent = append(c.sent, stop()...)
	dirs := []string{c.slaves[0].dir, c.slaves[1].dir}
	heir := furthest(c.t, dirs...)
	c.checkHeld("all that there ever was", c.acks, c.sent, dirs...)
	c.checkHeld("on the heir", 1, c.sent, heir)
	c.checkBoots(heir)
}
