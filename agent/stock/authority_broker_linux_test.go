package stock_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// watchBroker runs an Authority of a real broker, of the directory dir, until
// the test ends.
func watchBroker(t *testing.T, b *brokertest.Broker, dir string) *stock.Authority {
	t.Helper()
	opt := stock.AuthorityOptions{Broker: stock.NewBroker(b.Addr(), stock.BrokerOptions{}), CommitLogDir: filepath.Join(dir, "commitlog")}
	t.Cleanup(func() { closeAll(t, opt.Broker) })
	a := stock.NewAuthority(opt)
	run(t, a.Run)
	return a
}

// sentTo sends one message and returns where its record ends in the log.
func sentTo(t *testing.T, d *brokertest.Driver, b *brokertest.Broker, want string) wire.PhyOffset {
	t.Helper()
	sent := d.Send(t, brokertest.SendSpec{Topic: "orders"})[0]
	if sent.Status != want {
		t.Fatalf("sent with %s %s after %s, want %s", sent.Status, sent.Err, sent.Latency(), want)
	}
	client := newClient(t, b.Addr(), stock.BrokerOptions{})
	m, err := client.ViewMessage(t.Context(), sent.PhyOffset)
	if err != nil {
		t.Fatal(err)
	}
	return sent.PhyOffset.Add(wire.ByteSize(len(m)))
}

// The end follows what is sent to an asynchronous master, through restarts and
// changes of its role, and neither waits nor makes the broker wait.
func TestAuthority_RealBroker(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		ns := brokertest.StartNameServer(t, v)
		// With two replicas demanded a 5.x broker that waited for one would show.
		b := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Properties: map[string]string{"inSyncReplicas": "2"}})
		d := brokertest.StartDriver(t, v, ns.Addr)
		a := watchBroker(t, b, b.Dir())
		awaitMode(t, a, stock.AuthorityHA)
		follow := func() {
			t.Helper()
			var asked, told []time.Duration
			for i := range 20 {
				end := sentTo(t, d, b, brokertest.StatusOK)
				since := time.Now()
				a.Want(i%2 == 0)
				awaitEnd(t, a, end)
				a.Want(false)
				if i%2 == 0 {
					asked = append(asked, time.Since(since))
				} else {
					told = append(told, time.Since(since))
				}
			}
			slices.Sort(asked)
			slices.Sort(told)
			t.Logf("the end was there after %s where it was wanted, else after %s (medians)", asked[len(asked)/2], told[len(told)/2])
		}
		follow()
		if st := a.Status(); st.Version == "" || st.Role != "ASYNC_MASTER" || st.HAAddr != b.HAAddr() || st.BrokerName != "broker-a" {
			t.Errorf("status %+v", st)
		}
		b.Kill()
		awaitEnd(t, a, wire.NoOffset)
		b.Restart(t)
		answers := time.Now()
		awaitMode(t, a, stock.AuthorityHA)
		t.Logf("known again %s after the broker served", time.Since(answers))
		follow()

		b.Stop()
		b.Set("brokerRole", "SYNC_MASTER")
		b.Restart(t)
		eventually(t, "the new role", func() bool { st := a.Status(); return st.Role == "SYNC_MASTER" && st.Mode == stock.AuthorityAsked })
		want := brokertest.StatusNoSlave
		if v.Major() >= 5 {
			want = brokertest.StatusFlushSlave
		}
		for range 2 {
			since := time.Now()
			end := sentTo(t, d, b, want)
			if took := time.Since(since); v.Major() == 4 && took > 2*time.Second {
				t.Errorf("the master waited %s for a slave that it does not have", took)
			}
			a.Want(true)
			awaitEnd(t, a, end)
			a.Want(false)
		}

		stranger := watchBroker(t, b, t.TempDir())
		awaitCode(t, stranger, state.Incompatible, "other_broker")
		if stranger.End() != wire.NoOffset {
			t.Errorf("another directory ends at %d", stranger.End())
		}
	})
}
