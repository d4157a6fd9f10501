//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// annex is a broker with an agent beside it, and elsewhere an unmodified slave
// broker whose only name server is an observer. Producers know the broker's own
// name server, readers the observer.
type annex struct {
	*ring
	version brokertest.Version
	broker  *brokertest.Broker
	driver  *brokertest.Driver

	host         string // where the master's agent is
	ha, remoting string // its ports for stock slaves
	master       *haagent

	seat     string // where the observer gossips
	observed string // its port for slaves and readers
	observer *haagent

	slave *brokertest.Broker
}

// slavePatience is how long a stock slave of 5.x takes for what it does once a
// minute, and some more.
const slavePatience = 100 * time.Second

// newAnnex starts a broker, and nothing of haagent. Segments are small.
func newAnnex(t *testing.T, v brokertest.Version) *annex {
	t.Helper()
	n := &annex{ring: newRing(t), version: v}
	n.makeKey()
	ns := brokertest.StartNameServer(t, v)
	n.broker = brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
	n.driver = brokertest.StartDriver(t, v, ns.Addr)
	n.host, n.seat = n.ring.host(), n.ring.host()
	n.ha, n.remoting = n.at(n.host, 22), n.at(n.host, 21)
	n.observed = n.at(n.seat, 76)
	return n
}

// at returns an address on host, above those of gossip and link.
func (r *ring) at(host string, add int) string {
	return net.JoinHostPort(host, strconv.Itoa(r.port+add))
}

func (n *annex) startOwnMaster() {
	n.t.Helper()
	n.master = n.startMaster(n.broker.Dir(), "m1", n.host, "--broker", n.broker.Addr(), "--join", n.gossip(n.seat),
		"--ha-bind", n.ha, "--remoting-bind", n.remoting, "--ha-allow", "127.0.0.0/8")
}

func (n *annex) startObserver() {
	n.t.Helper()
	n.observer = n.startObserverAt(n.seat, n.observed, "--join", n.gossip(n.host))
}

// startObserverAt starts an observer that serves slaves and readers.
func (r *ring) startObserverAt(host, serves string, args ...string) *haagent {
	r.t.Helper()
	all := []string{"--role", "observer", "--node", "o-" + host, "--gossip-bind", r.gossip(host), "--http", "127.0.0.1:0", "--remoting-bind", serves}
	if r.key != "" {
		all = append(all, "--key-file", r.key)
	}
	return startProcess(r.t, testBinary(r.t), "observer "+host, append(all, args...)...)
}

// startSlaveBroker starts an unmodified slave as README.md says. What it printed
// is shown where the test fails.
func (n *annex) startSlaveBroker(edit func(*brokertest.BrokerOptions)) *brokertest.Broker {
	n.t.Helper()
	o := brokertest.BrokerOptions{Version: n.version, Role: "SLAVE", NameServer: n.observed}
	if edit != nil {
		edit(&o)
	}
	b := brokertest.StartBroker(n.t, o)
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("slave:\n%s", b.Log())
		}
	})
	return b
}

// stockRow is what the status says of the one stock slave.
func stockRow(s control.Status) (r control.Replica, ok bool) {
	for _, row := range s.Replicas {
		if row.Kind == "broker" {
			if ok {
				return r, false
			}
			r, ok = row, true
		}
	}
	return r, ok
}

// equal waits until the slave has acked all that the broker has, holds every byte
// against the broker's, and returns the end and the slave's connection.
func (n *annex) equal() (end wire.PhyOffset, conn string) {
	n.t.Helper()
	end = brokerEnd(n.t, n.broker)
	waitLong(n.t, "the slave to have acked everything", func() (string, bool) {
		s := n.master.status()
		row, ok := stockRow(s)
		if conn = row.Addr; ok && row.Acked > end {
			end = brokerEnd(n.t, n.broker) // something was written since
		}
		return fmt.Sprintf("%+v of %d", s.Replicas, end), ok && end > 0 && row.Acked == end
	})
	if got := verifySame(n.t, n.broker.Dir(), n.slave.Dir()); got < end {
		n.t.Errorf("identical up to %d of %d", got, end)
	}
	return end, conn
}

// waitLong is waitFor for what a slave does once a minute.
func waitLong(t *testing.T, what string, is func() (seen string, ok bool)) {
	t.Helper()
	tick := time.NewTicker(4 * lookInterval)
	defer tick.Stop()
	late := time.NewTimer(slavePatience)
	defer late.Stop()
	for {
		seen, ok := is()
		if ok {
			return
		}
		select {
		case <-late.C:
			t.Fatalf("waited %v for %s, last seen: %s", slavePatience, what, seen)
		case <-tick.C:
		}
	}
}

// listed asks an observer which brokers are registered with it.
func listed(t *testing.T, observed string) string {
	t.Helper()
	b := stock.NewBroker(observed, stock.BrokerOptions{})
	defer b.Close()
	answer, err := b.Raw(t.Context(), remoting.GetBrokerClusterInfo, nil, nil)
	if err != nil {
		return err.Error()
	}
	return string(answer.Body)
}

// bareKey is a key as fastjson writes integers.
var bareKey = regexp.MustCompile(`([{,])\s*([0-9]+)\s*:`)

// configTable returns one table of a config file of a broker, by key, in JSON;
// nil where the file is not there or not whole now.
func configTable(b *brokertest.Broker, file, table string) map[string]string {
	raw, err := os.ReadFile(filepath.Join(b.Dir(), "config", file))
	if err != nil {
		return nil
	}
	var all, entries map[string]json.RawMessage
	if json.Unmarshal(bareKey.ReplaceAll(raw, []byte(`$1"$2":`)), &all) != nil || json.Unmarshal(all[table], &entries) != nil {
		return nil
	}
	out := make(map[string]string, len(entries))
	for key, value := range entries {
		out[key] = strings.Join(strings.Fields(string(value)), "")
	}
	return out
}

// configArrived waits until the slave's tables have every entry that the master
// broker's have, which must name what is wanted.
func (n *annex) configArrived(want map[string][]string) {
	n.t.Helper()
	for file, table := range configTables {
		waitLong(n.t, file+" to arrive", func() (string, bool) {
			theirs, ours := configTable(n.broker, file, table), configTable(n.slave, file, table)
			for _, key := range want[file] {
				if theirs[key] == "" {
					return fmt.Sprintf("the master has no %s in %v", key, theirs), false
				}
			}
			for key, value := range theirs {
				if ours[key] != value {
					return fmt.Sprintf("%s is %s, and %s at the slave", key, value, ours[key]), false
				}
			}
			return "", len(theirs) > 0
		})
	}
}

// configTables are the tables that slaves copy, by file.
var configTables = map[string]string{"topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable",
	"consumerOffset.json": "offsetTable", "delayOffset.json": "offsetTable"}
