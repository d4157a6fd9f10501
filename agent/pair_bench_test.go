package agent_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	logsource "github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// BenchmarkWriteToReplica times a message from the moment a broker has stored it
// to the moment the replica has verified it, and to the moment a waiter at the
// master knows: through the mapped tail, the broker's own end over its HA port,
// the link and back. Beside it, in the same run, what the machine gives: a
// message of that size echoed over loopback.
func BenchmarkWriteToReplica(b *testing.B) {
	p := newPair(b)
	message := forge.Message{Topic: "bench", QueueOffset: forge.NextQueueOffset, Body: make([]byte, 1024)}
	echo := newEcho(b, int(message.Size()))
	var replicated, answered, echoed []time.Duration
	for b.Loop() {
		start := time.Now()
		echo.round(b)
		echoed = append(echoed, time.Since(start))
		start = time.Now()
		end, err := p.writer.Append(message)
		if err != nil {
			b.Fatal(err)
		}
		select {
		case p.stored <- struct{}{}:
		default:
		}
		if r := p.acks.Wait(b.Context(), end, 1); r != acks.PutOK {
			b.Fatal(r)
		}
		answered = append(answered, time.Since(start))
		replicated = append(replicated, p.verified(end).Sub(start))
		p.rest(b) // as producers do, which send now and then
	}
	report := func(name string, d []time.Duration) {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Nanoseconds())/1e3, name+"-p50-µs")
		b.ReportMetric(float64(d[len(d)*99/100].Nanoseconds())/1e3, name+"-p99-µs")
	}
	report("replicated", replicated)
	report("answered", answered)
	report("echo", echoed)
}

// pair is a forged broker with an agent beside it, and a replica.
type pair struct {
	writer *forge.Writer
	acks   *acks.Table
	seen   chan sighting
	stored chan struct{} // one slot: brokers wake their HA connections after each append
	timer  *time.Timer
}

// sighting is when the replica had verified an end.
type sighting struct {
	end wire.PhyOffset
	at  time.Time
}

func newPair(b *testing.B) *pair {
	b.Helper()
	dir, size := b.TempDir(), 64*wire.MiB
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: size, Running: true})
	if err != nil {
		b.Fatal(err)
	}
	ha, remoting, serving := listenLocal(b), listenLocal(b), listenLocal(b)
	_, haPort, _ := net.SplitHostPort(ha.Addr().String())
	_, port, _ := net.SplitHostPort(remoting.Addr().String())
	log := slog.New(slog.DiscardHandler)
	broker := stock.NewBroker(remoting.Addr().String(), stock.BrokerOptions{})
	authority := stock.NewAuthority(stock.AuthorityOptions{Broker: broker, CommitLogDir: w.CommitLogDir(), Log: log})
	src := logsource.New(logsource.Options{Dir: dir, Authority: authority, Log: log})
	security, err := link.NewSecurity(link.SecurityOptions{})
	if err != nil {
		b.Fatal(err)
	}
	p := &pair{writer: w, acks: acks.NewTable(), seen: make(chan sighting, 1<<16), stored: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	replicaDir := b.TempDir()
	lock, err := replica.AcquireLock(replicaDir)
	if err != nil {
		b.Fatal(err)
	}
	store, err := replica.Open(replica.Options{Dir: replicaDir, SegmentSize: size, Cluster: "c", BrokerName: "b"}, lock)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	group, ctx := errgroup.WithContext(ctx)
	properties := map[string]string{"brokerClusterName": "c", "brokerName": "b", "brokerId": "0", "brokerRole": "ASYNC_MASTER", "listenPort": port, "haListenPort": haPort,
		"brokerIP2": "127.0.0.1", "mappedFileSizeCommitLog": "67108864", "storePathCommitLog": w.CommitLogDir(), "storePathRootDir": dir, "flushDiskType": "ASYNC_FLUSH"}
	group.Go(func() error {
		return stock.NewHAServer(stock.HAServerOptions{Listener: ha, CommitLogDir: w.CommitLogDir(), SegmentSize: size, End: w.End,
			Listen: func() (<-chan struct{}, func()) { return p.stored, func() {} }}).Run(ctx)
	})
	group.Go(func() error {
		return stock.NewRemotingServer(stock.RemotingServerOptions{Listener: remoting, Dir: dir, CommitLogDir: w.CommitLogDir(), SegmentSize: size, End: w.End, Min: w.Min, Config: properties}).Run(ctx)
	})
	group.Go(func() error { return authority.Run(ctx) })
	group.Go(func() error { return src.Run(ctx) })
	group.Go(func() error {
		return link.NewServer(link.ServerOptions{Listener: serving, Security: security, Source: src, Acks: p.acks, Epoch: func() int64 { return 0 },
			Self: link.Identity{Cluster: "c", BrokerName: "b", Node: "master"}}).Run(ctx)
	})
	group.Go(func() error { return store.Run(ctx) })
	group.Go(func() error {
		return link.NewFollower(link.FollowerOptions{Security: security, Self: link.Identity{Node: "slave"}, Store: store,
			Target: func() (link.Target, error) {
				return link.Target{Node: "master", Addr: serving.Addr().String()}, nil
			}}).Run(ctx)
	})
	group.Go(func() error { return p.watch(ctx, store) })
	b.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			b.Error(err)
		}
		if err := store.Close(); err != nil {
			b.Error(err)
		}
		if err := w.Close(); err != nil {
			b.Error(err)
		}
	})
	end, err := w.Append(forge.Message{Topic: "first", QueueOffset: forge.NextQueueOffset})
	if err != nil {
		b.Fatal(err)
	}
	within, stop := context.WithTimeout(b.Context(), time.Minute)
	defer stop()
	for p.acks.Wait(within, end, 1) != acks.PutOK {
		if within.Err() != nil {
			b.Fatalf("the first message was not replicated: source %+v, replica %+v", src.Ends(), store.Ends())
		}
		p.rest(b)
	}
	return p
}

func listenLocal(b *testing.B) net.Listener {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// watch notes when the replica's verified end moves.
func (p *pair) watch(ctx context.Context, store *replica.Store) error {
	moved, stop := store.Listen()
	defer stop()
	last := wire.NoOffset
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
		}
		if now := store.Ends().Verified; now > last {
			last = now
			p.seen <- sighting{now, time.Now()}
		}
	}
}

// verified returns when the replica had everything up to end.
func (p *pair) verified(end wire.PhyOffset) time.Time {
	for {
		if s := <-p.seen; s.end >= end {
			return s.at
		}
	}
}

// rest lets a millisecond pass.
func (p *pair) rest(b *testing.B) {
	b.Helper()
	p.timer.Reset(time.Millisecond)
	select {
	case <-p.timer.C:
	case <-b.Context().Done():
	}
}

// echo is a connection over loopback whose other end answers eight bytes for
// each message, as a replica's report would.
type echo struct {
	conn    net.Conn
	message []byte
	answer  [8]byte
}

func newEcho(b *testing.B, size int) *echo {
	b.Helper()
	l := listenLocal(b)
	var group errgroup.Group
	group.Go(func() error {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		buf, answer := make([]byte, size), make([]byte, 8)
		for {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return nil // the other end has gone
			}
			if _, err := conn.Write(answer); err != nil {
				return err
			}
		}
	})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		conn.Close()
		l.Close()
		if err := group.Wait(); err != nil {
			b.Error(err)
		}
	})
	return &echo{conn: conn, message: make([]byte, size)}
}

func (e *echo) round(b *testing.B) {
	b.Helper()
	if _, err := e.conn.Write(e.message); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(e.conn, e.answer[:]); err != nil {
		b.Fatal(err)
	}
}
