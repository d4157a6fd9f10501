package stock_test

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// BenchmarkFollower copies a log of 1 GiB from an HA server in the same process
// into a new replica: what the receiving path costs, without a JVM's noise.
func BenchmarkFollower(b *testing.B) {
	const total = wire.GiB
	source, err := forge.Open(forge.Options{Dir: b.TempDir(), SegmentSize: 256 * wire.MiB})
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 4<<10)
	if _, err := rand.NewChaCha8([32]byte{1}).Read(body); err != nil {
		b.Fatal(err)
	}
	for source.End() < wire.PhyOffset(total) {
		if _, err := source.Append(forge.Message{Topic: "bench", QueueOffset: forge.NextQueueOffset, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var group errgroup.Group
	group.Go(func() error {
		return stock.NewHAServer(stock.HAServerOptions{Listener: l, CommitLogDir: source.CommitLogDir(), SegmentSize: 256 * wire.MiB, End: source.End}).Run(ctx)
	})
	b.SetBytes(int64(source.End()))
	b.ReportAllocs()
	for b.Loop() {
		copyOnce(b, l.Addr().String(), source.End())
	}
	cancel()
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func copyOnce(b *testing.B, addr string, end wire.PhyOffset) {
	b.Helper()
	dir := b.TempDir()
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		b.Fatal(err)
	}
	store, err := replica.Open(replica.Options{Dir: dir, SegmentSize: 256 * wire.MiB}, lock)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	moved, stop := store.Listen()
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return store.Run(ctx) })
	group.Go(func() error {
		return stock.NewFollower(stock.FollowerOptions{Store: store, Want: stock.Expectation{HAAddr: addr}}).Run(ctx)
	})
	for store.Ends().Verified < end {
		<-moved
	}
	cancel()
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	defer b.StartTimer()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}
