package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// slavePatience is how long a stock slave takes for what it does once a minute,
// and some more.
const slavePatience = 100 * time.Second

// A stock slave that has only an observer as name server finds its master, holds
// its log, topics and positions, over segments and restarts of all three sides;
// and when the master broker is gone, clients that ask the observer read from
// the slave.
func TestStockSlave_FollowsAndServesWithOnlyAnObserver(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		w := newTown()
		observer := runAgent(t, w, agent.Config{Role: agent.RoleObserver, Node: "o", RemotingBind: "127.0.0.1:0"})
		_, nameServer := observer.ports()
		broker := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: nameServer})
		driver := brokertest.StartDriver(t, v, nameServer)
		driver.CreateTopic(t, "orders", 4)
		sent := driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 200})
		driver.Consume(t, "billing", "orders", 60)
		master := startMaster(t, w, broker, "127.0.0.1:0", "127.0.0.1:0")
		ha, remoting := master.ports()

		slave := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, Role: "SLAVE", NameServer: nameServer})
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("slave:\n%s", slave.Log())
			}
		})
		awaitEqual(t, master, slave)
		awaitContent(t, slave, "topics.json", "orders")
		awaitContent(t, slave, "consumerOffset.json", "orders@billing")
		awaitContent(t, slave, "subscriptionGroup.json", "billing")

		sent = append(sent, driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 300, BodySize: 8 << 10})...) // three segments
		awaitEqual(t, master, slave)
		master.stop()
		sent = append(sent, driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 20})...)
		master = startMaster(t, w, broker, ha, remoting)
		awaitEqual(t, master, slave)
		slave.Stop()
		sent = append(sent, driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 20})...)
		slave.Restart(t)
		awaitEqual(t, master, slave)

		broker.Kill()
		within(t, slavePatience, "the observer lists the slave alone", func() bool {
			listed := clusterOf(t, nameServer)
			return !strings.Contains(listed, broker.Addr()) && strings.Contains(listed, slave.Addr())
		})
		got := driver.PullN(t, "orders", len(sent))
		if diff := brokertest.Diff(sent, got); len(diff) > 0 {
			t.Errorf("clients of the slave read something else: %v", diff[:min(len(diff), 5)])
		}
		if n := len(driver.Consume(t, "billing", "orders", len(sent)-60)); n != len(sent)-60 {
			t.Errorf("the group goes on with %d messages, want the %d that it had not consumed", n, len(sent)-60)
		}
	})
}

// clusterOf asks who is registered at an observer.
func clusterOf(t *testing.T, addr string) string {
	t.Helper()
	b := stock.NewBroker(addr, stock.BrokerOptions{})
	defer b.Close()
	answer, err := b.Raw(t.Context(), remoting.GetBrokerClusterInfo, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer.Body)
}

func startMaster(t *testing.T, w *town, broker *brokertest.Broker, ha, remoting string) *served {
	t.Helper()
	return runAgent(t, w, agent.Config{Role: agent.RoleMaster, Node: "m", Dir: broker.Dir(), Broker: broker.Addr(),
		HABind: ha, RemotingBind: remoting})
}

// awaitEqual waits until a slave has acked all of the master's log, and compares.
func awaitEqual(t *testing.T, master *served, slave *brokertest.Broker) {
	t.Helper()
	var end wire.PhyOffset
	within(t, slavePatience, "the slave has acked everything", func() bool {
		s := master.Status()
		end = s.Offsets.Source
		rows := master.stockReplicas()
		return len(rows) == 1 && end > 0 && rows[0].Acked == end && s.Offsets.Verified == end
	})
	a, b := replica.CommitLogDir(master.Status().Dir), replica.CommitLogDir(slave.Dir())
	if got := stockBytes(t, b, end); !bytes.Equal(got, stockBytes(t, a, end)) {
		t.Errorf("the slave's log is another one up to %d", end)
	}
}

// stockBytes are the bytes of a log from its first segment to an end.
func stockBytes(t *testing.T, dir string, end wire.PhyOffset) []byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if wire.PhyOffset(len(all)) < end {
		t.Fatalf("%s has %d bytes of %d", dir, len(all), end)
	}
	return all[:end]
}

// awaitContent waits until a config file of a broker names something.
func awaitContent(t *testing.T, b *brokertest.Broker, name, want string) {
	t.Helper()
	path := filepath.Join(b.Dir(), "config", name)
	within(t, slavePatience, name+" of the slave names "+want, func() bool {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), want)
	})
}
