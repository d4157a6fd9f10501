package stock_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

// Fault 10: a real broker whose log no longer begins at 0 has nothing to say to
// a request of 1 but a heartbeat after five seconds; with its HA port alone the
// last segment is all that can be had, and the replica says so.
func TestFault10_RealBrokerWithoutItsFirstSegment(t *testing.T) {
	const v = brokertest.V497
	ns := brokertest.StartNameServer(t, v)
	master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
	brokertest.StartDriver(t, v, ns.Addr).Send(t, brokertest.SendSpec{Topic: "orders", Count: 1200, BodySize: 2048, Threads: 2})
	master.Stop()
	if err := os.Remove(filepath.Join(master.Dir(), "commitlog", commitlog.Name(0))); err != nil {
		t.Fatal(err)
	}
	master.Restart(t)
	client := newClient(t, master.Addr(), stock.BrokerOptions{})
	var info stock.RuntimeInfo
	eventually(t, "an answer of the booted broker", func() bool {
		var err error
		info, err = client.RuntimeInfo(t.Context())
		return err == nil
	})
	if info.MinOffset != wire.PhyOffset(wire.MiB) {
		t.Fatalf("%+v", info)
	}

	dir := t.TempDir()
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	store, err := replica.Open(replica.Options{Dir: dir, SegmentSize: wire.MiB}, lock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	f := stock.NewFollower(stock.FollowerOptions{Store: store, Want: stock.Expectation{HAAddr: master.HAAddr()}})
	work.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	eventually(t, "the last segment", func() bool { return store.Ends().Verified == info.MaxOffset })
	t.Logf("after %v", time.Since(began))
	cancel()
	work.Wait()
	base := info.MaxOffset.SegmentBase(wire.MiB)
	if got := store.State().HistoryFrom; got != base || store.Ends().Min != base {
		t.Errorf("history from %d, begins at %d, want %d", got, store.Ends().Min, base)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if c, err := verify.Compare(t.Context(), master.Dir(), dir, nil); err != nil || !c.Same() || c.IdenticalTo != info.MaxOffset {
		t.Errorf("%+v, %v", c, err)
	}
}
