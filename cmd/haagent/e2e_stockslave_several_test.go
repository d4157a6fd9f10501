//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// strangeStore makes a store of some segments as a broker leaves it. Stores of
// different seeds have no message in common.
func strangeStore(t *testing.T, seed uint64, size wire.ByteSize) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: wire.MiB})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(seed, seed))
	for w.End() < wire.PhyOffset(size) {
		if _, err := w.Append(forge.RandomMessage(random, forge.Variety{})); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"topics.json":            `{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"orders":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":4}}}`,
		"subscriptionGroup.json": `{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{}}`,
	} {
		if err := forge.WriteConfig(dir, name, []byte(content), forge.Style4x, nil); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lone is a master agent beside a store whose broker is gone.
type lone struct {
	*haagent
	ha string
}

// startLone starts the agent of a group.
func (n *annex) startLone(dir, brokerName string) lone {
	n.t.Helper()
	host := n.ring.host()
	ha := n.at(host, 22)
	return lone{n.startMaster(dir, "m-"+brokerName, host, "--broker", brokertest.FreeAddr(n.t), "--cluster", "DefaultCluster", "--broker-name", brokerName,
		"--join", n.gossip(n.seat), "--ha-bind", ha, "--remoting-bind", n.at(host, 21), "--ha-allow", "127.0.0.0/8"), ha}
}

// confirmed is the end of what a slave is served.
func (m lone) confirmed() wire.PhyOffset { return m.status().Offsets.Verified }

// holds waits until a slave broker has, byte for byte, all that is confirmed.
func (m lone) holds(slave *brokertest.Broker) {
	m.t.Helper()
	m.waitStatus("a confirmed end", func(s control.Status) bool { return s.Offsets.Verified > 0 })
	const want = "identical up to "
	waitLong(m.t, "the log in "+slave.Dir(), func() (string, bool) {
		stdout, stderr, code := haagentCommand(m.t, "verify", m.dir, slave.Dir())
		var end wire.PhyOffset
		_, after, found := strings.Cut(stdout, want)
		if code != exitOK || !found {
			return stdout + stderr, false // it has nothing yet
		}
		if _, err := fmt.Sscanf(after, "%d", &end); err != nil {
			m.t.Fatalf("verify said %q: %v", stdout, err)
		}
		return stdout, end >= m.confirmed()
	})
}

// newRoom is an annex without a broker.
func newRoom(t *testing.T, v brokertest.Version) *annex {
	t.Helper()
	n := &annex{ring: newRing(t), version: v}
	n.makeKey()
	n.host, n.seat = n.ring.host(), n.ring.host()
	n.observed = n.at(n.seat, 76)
	return n
}

// says waits until the observer has logged a text.
func (n *annex) says(text string) {
	n.t.Helper()
	waitLong(n.t, "the observer to say "+text, func() (string, bool) {
		log := n.observer.log.String()
		return log, strings.Contains(log, text)
	})
}

// TestStockSlave_EachFindsItsOwn: behind one observer, which is there before
// everybody else, slaves of two groups hold each their own master's log, two of
// one group the same; a slave of an unknown cluster is told so, and one that
// brings a log of its own is told no master, and acks nothing.
func TestStockSlave_EachFindsItsOwn(t *testing.T) {
	t.Parallel() // most of the time is waiting
	versions := brokertest.Versions()
	if !long() {
		versions = versions[:1]
	}
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) {
			n := newRoom(t, v)
			n.startObserver()
			first := n.startSlaveBroker(nil)
			n.says("gossip knows no master of DefaultCluster/broker-a")
			other := n.startSlaveBroker(func(o *brokertest.BrokerOptions) { o.Name, o.Cluster = "broker-b", "Elsewhere" })
			n.says("gossip knows no master of Elsewhere/broker-b")
			a := n.startLone(strangeStore(t, 1, 5*wire.MiB/2), "broker-a")
			b := n.startLone(strangeStore(t, 2, 3*wire.MiB/2), "broker-b")
			other.Set("brokerClusterName", "DefaultCluster")
			other.Restart(t)
			a.holds(first)
			b.holds(other)
			second := n.startSlaveBroker(func(o *brokertest.BrokerOptions) { o.ID = 2 })
			a.holds(second)

			before := a.status().Replicas
			alien := n.startSlaveBroker(func(o *brokertest.BrokerOptions) { o.ID, o.Dir = 3, strangeStore(t, 3, 3*wire.MiB/2) })
			n.says("it holds another log than its master (agent m-broker-a)")
			hold(t, either(7*time.Second, 40*time.Second)) // slaves try every 5 s, and register every 30
			if now := a.status().Replicas; len(now) != len(before) || now[0].Addr != before[0].Addr {
				t.Errorf("the slaves of the master were %+v, and are %+v", before, now)
			}
			stdout, _, code := haagentCommand(t, "verify", a.dir, alien.Dir())
			if code != exitDifferent {
				t.Errorf("the log of its own has become another: %s", stdout)
			}
		})
	}
}

// TestStockSlave_HAMasterAddress: a slave of 4.x that has its master's address in
// its own properties follows without any name server, but gets only the log; with
// an observer it gets the rest as well.
func TestStockSlave_HAMasterAddress(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		if v.Major() != 4 {
			return // 5.x does nothing with that property
		}
		n := newRoom(t, v)
		m := n.startLone(strangeStore(t, 1, 5*wire.MiB/2), "broker-a")
		n.observed = ""
		slave := n.startSlaveBroker(func(o *brokertest.BrokerOptions) { o.MasterHA = m.ha })
		m.holds(slave)
		if topics := configTable(slave, "topics.json", "topicConfigTable"); topics["orders"] != "" {
			t.Errorf("topics came from nowhere: %v", topics)
		}
		n.observed = n.at(n.seat, 76)
		n.startObserver()
		slave.Set("namesrvAddr", n.observed)
		slave.Restart(t)
		waitLong(t, "the topics", func() (string, bool) {
			topics := configTable(slave, "topics.json", "topicConfigTable")
			return fmt.Sprint(topics), topics["orders"] != ""
		})
		m.waitStatus("the slave's acks", func(s control.Status) bool {
			row, ok := stockRow(s)
			return ok && row.Acked == s.Offsets.Verified
		})
		m.holds(slave)
	})
}
