package stock_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// besideBroker is what an agent with a relay runs beside a real broker.
type besideBroker struct {
	relay     *stock.Relay
	authority *stock.Authority
	source    *source.Source
	table     *acks.Table
}

func runBeside(t *testing.T, b *brokertest.Broker, n int) *besideBroker {
	t.Helper()
	x := &besideBroker{table: acks.NewTable()}
	client := stock.NewBroker(b.Addr(), stock.BrokerOptions{})
	t.Cleanup(func() { closeAll(t, client) })
	log := newLogBook()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the relay said:\n%s", log)
		}
	})
	x.relay = stock.NewRelay(stock.RelayOptions{Acks: x.table, N: n, Log: log.logger()})
	dir := filepath.Join(b.Dir(), "commitlog")
	x.authority = stock.NewAuthority(stock.AuthorityOptions{Broker: client, CommitLogDir: dir, Relay: x.relay, Log: log.logger()})
	x.source = source.New(source.Options{Dir: b.Dir(), Authority: x.authority})
	run(t, x.authority.Run)
	run(t, x.source.Run)
	t.Cleanup(x.table.Close)
	return x
}

// follow is a replica that has all that is confirmed, until it is called off.
func (x *besideBroker) follow(t *testing.T, node string) (leave func()) {
	conn := x.table.Join(node, acks.Memory)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		moved, stop := x.source.Listen()
		defer stop()
		for {
			end := x.source.Ends().Confirmed
			conn.Report(acks.Marks{Memory: end, Disk: end})
			select {
			case <-moved:
			case <-ctx.Done():
				return
			}
		}
	})
	leave = sync.OnceFunc(func() {
		conn.Leave()
		cancel()
		work.Wait()
	})
	t.Cleanup(leave)
	return leave
}

// Producers of real brokers are told SEND_OK while replicas have what they send,
// and what the broker says without a slave otherwise.
func TestRelay_RealBroker(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		ns := brokertest.StartNameServer(t, v)
		b := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Role: "SYNC_MASTER", Properties: map[string]string{"inSyncReplicas": "2"}})
		d := brokertest.StartDriver(t, v, ns.Addr)
		lacking := brokertest.StatusNoSlave
		if v.Major() >= 5 {
			lacking = brokertest.StatusFlushSlave
		}
		x := runBeside(t, b, 1)
		awaitMode(t, x.authority, stock.AuthorityAsked)
		send := func(what, want string) time.Duration {
			t.Helper()
			sent := d.Send(t, brokertest.SendSpec{Topic: "orders"})[0]
			if sent.Status != want {
				t.Errorf("%s: %s %s after %s, want %s", what, sent.Status, sent.Err, sent.Latency(), want)
			}
			return sent.Latency()
		}
		// confirmed sends until that is SEND_OK, and returns how long it was not.
		confirmed := func(what string) {
			t.Helper()
			since := time.Now()
			for {
				sent := d.Send(t, brokertest.SendSpec{Topic: "orders"})[0]
				if sent.Status == brokertest.StatusOK {
					break
				}
				if time.Since(since) > patience {
					t.Fatalf("%s: no SEND_OK but %s; relay %+v, authority %+v", what, sent.Status, x.relay.Status(), x.authority.Status())
				}
			}
			t.Logf("%s: SEND_OK after %s", what, time.Since(since))
			var took []time.Duration
			for range 50 {
				took = append(took, send(what, brokertest.StatusOK))
			}
			slices.Sort(took)
			t.Logf("%s: SEND_OK within %s (median), %s at most", what, took[len(took)/2], took[len(took)-1])
		}

		send("nobody in reach", lacking) // the negative control
		leave := x.follow(t, "a")
		confirmed("a replica has come")
		for range 2 {
			leave()
			send("the replica has gone", lacking)
			eventually(t, "the end of the connection", func() bool { return !x.relay.Status().Connected })
			if took := send("still gone", lacking); v.Major() == 4 && took > 2*time.Second {
				t.Errorf("the broker waited %s for a slave that it does not have", took)
			}
			leave = x.follow(t, "a")
			confirmed("the replica is back")
		}
		if st := x.relay.Status(); len(st.Strangers) != 0 || st.Problem != nil || st.Links != 1 {
			t.Errorf("status %+v", st)
		}
		for range 2 {
			b.Kill()
			eventually(t, "the broker's end", func() bool { return !x.relay.Status().Connected })
			b.Restart(t)
			confirmed("the broker is back")
		}
		leave()
		send("at the end", lacking)
		end, err := stock.SurveyBroker(t.Context(), newClient(t, b.Addr(), stock.BrokerOptions{}), stock.Expectation{})
		if reported := x.relay.Status().Reported; err != nil || reported > end.Max || reported == wire.NoOffset {
			t.Errorf("reported %d, the log ends at %d, %v", reported, end.Max, err)
		}
	})
}

// A broker of 5.x that wants two replicas besides itself gets two connections, and
// is told what two have.
func TestRelay_RealBrokerThatCountsConnections(t *testing.T) {
	v := brokertest.V533
	ns := brokertest.StartNameServer(t, v)
	b := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Role: "SYNC_MASTER", Properties: map[string]string{"inSyncReplicas": "3"}})
	d := brokertest.StartDriver(t, v, ns.Addr)
	x := runBeside(t, b, 2)
	send := func(what, want string) {
		t.Helper()
		if sent := d.Send(t, brokertest.SendSpec{Topic: "orders"})[0]; sent.Status != want {
			t.Errorf("%s: %s %s after %s, want %s", what, sent.Status, sent.Err, sent.Latency(), want)
		}
	}
	awaitMode(t, x.authority, stock.AuthorityAsked)
	leave := x.follow(t, "a")
	send("one of two", brokertest.StatusFlushSlave)
	for _, node := range []string{"b", "c"} {
		other := x.follow(t, node)
		eventually(t, "two connections", func() bool { st := x.relay.Status(); return st.Connected && st.Links == 2 })
		for range 20 {
			send("two of two", brokertest.StatusOK)
		}
		other()
		send("one has left", brokertest.StatusFlushSlave)
	}
	leave()
	if st := x.relay.Status(); len(st.Strangers) != 0 || st.Problem != nil {
		t.Errorf("status %+v", st)
	}
}
