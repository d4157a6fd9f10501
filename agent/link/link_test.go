package link_test

import (
	"context"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

func TestLink_ReplicatesAndAcks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := forge.Open(forge.Options{Dir: filepath.Join(dir, "source"), SegmentSize: 64 * wire.KiB})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		if _, err := w.Append(forge.RandomMessage(r, forge.Variety{})); err != nil {
			t.Fatal(err)
		}
	}
	src := source.New(source.Options{Dir: filepath.Join(dir, "source"), Settle: 50 * time.Millisecond})
	table := acks.NewTable()
	security, err := link.NewSecurity(link.SecurityOptions{Mode: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := link.NewServer(link.ServerOptions{Listener: l, Security: security, Source: src, Acks: table, Epoch: func() int64 { return 1 },
		Self: link.Identity{Cluster: "c", BrokerName: "b", Node: "master"}})
	lock, err := replica.AcquireLock(filepath.Join(dir, "replica"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := replica.Open(replica.Options{Dir: filepath.Join(dir, "replica"), SegmentSize: 64 * wire.KiB, Cluster: "c", BrokerName: "b"}, lock)
	if err != nil {
		t.Fatal(err)
	}
	follower := link.NewFollower(link.FollowerOptions{Security: security, Self: link.Identity{Node: "slave"}, Store: store,
		Target:  func() (link.Target, error) { return link.Target{Node: "master", Addr: l.Addr().String()}, nil },
		OnState: func(s state.State, err error) { t.Log(s, err) }})
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return src.Run(ctx) })
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { return store.Run(ctx) })
	group.Go(func() error { return follower.Run(ctx) })
	wait, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	for src.Ends().Confirmed < 0 {
		if wait.Err() != nil {
			t.Fatal("nothing confirmed")
		}
	}
	end := src.Ends().Confirmed
	for table.InReach() == 0 {
		if wait.Err() != nil {
			t.Fatal("nobody in reach")
		}
	}
	if got := table.Wait(wait, end, 1); got != acks.PutOK {
		t.Errorf("wait for %d ended with %s: replica %+v, source %+v", end, got, store.Ends(), src.Ends())
	}
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	c, err := verify.Compare(t.Context(), filepath.Join(dir, "source"), filepath.Join(dir, "replica"), nil)
	if err != nil || !c.Same() || c.IdenticalTo != end {
		t.Errorf("stores are identical up to %d, want %d: %+v, %v", c.IdenticalTo, end, c, err)
	}
}
