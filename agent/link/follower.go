package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// Target is the master that is to be followed.
type Target struct {
	Node string
	Addr string // of its link
}

// FollowerOptions say whom to follow into which replica. Security, Self, Target
// and Store are required.
type FollowerOptions struct {
	Security *Security
	Self     Identity
	Ack      replica.Ack
	// Target returns the master to be followed now, or a *state.Problem or another
	// error where there is not exactly one. It is asked before each attempt, and
	// during one after each value on Changed.
	Target  func() (Target, error)
	Changed <-chan struct{}
	Store   *replica.Store
	// Rewind says that Run ends where the source has parted from the replica, with
	// the replica.Parted that says where: the caller opens the store anew, cut back.
	Rewind bool
	// Offer takes config files; nil: none are asked for. ConfigState is told how
	// their connection fares, nil when it works.
	Offer       func(metadata.Snapshot) error
	ConfigState func(error)
	// Retention drops the replica's oldest segments, given the source's min
	// offset; nil keeps all.
	Retention func(sourceMin wire.PhyOffset) error
	// OnState is called at each change of state, with the problem of a stuck one.
	OnState func(state.State, error)
	// Traffic counts what comes; nil: nobody does.
	Traffic *meter.Traffic
	// Limits bound the bytes of the log a second; nil: nothing does.
	Limits *pace.Limits
	// Dial opens connections; a net.Dialer where nil. It is given the name each
	// time, so that an address that changes is looked up anew.
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	Timing Timing
	Log    *slog.Logger

	largeFrame int // the payload from which on a frame is taken beside the next one; default largePayload
}

// Follower keeps a replica equal to the log that a Server reads, and reports
// only what it verified.
type Follower struct {
	opt FollowerOptions

	received, sourceEnd atomic.Int64 // PhyOffset, for the status
	target              atomic.Pointer[Target]
}

// NewFollower returns a Follower that does nothing before Run.
func NewFollower(opt FollowerOptions) *Follower {
	opt.Timing = opt.Timing.withDefaults()
	if opt.Dial == nil {
		opt.Dial = new(net.Dialer).DialContext
	}
	if opt.OnState == nil {
		opt.OnState = func(state.State, error) {}
	}
	if opt.ConfigState == nil {
		opt.ConfigState = func(error) {}
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.largeFrame == 0 {
		opt.largeFrame = largePayload
	}
	f := &Follower{opt: opt}
	f.received.Store(int64(wire.NoOffset))
	f.sourceEnd.Store(int64(wire.NoOffset))
	return f
}

// Received returns the end of what has come over the socket.
func (f *Follower) Received() wire.PhyOffset { return wire.PhyOffset(f.received.Load()) }

// SourceEnd returns the source's confirmed end as last known, wire.NoOffset
// before that.
func (f *Follower) SourceEnd() wire.PhyOffset { return wire.PhyOffset(f.sourceEnd.Load()) }

// Target returns the master of the present or last attempt; nil before the first.
func (f *Follower) Target() *Target { return f.target.Load() }

// Run follows the master until ctx ends, connecting again after every error. It
// returns early only for problems of the store itself, which the caller must
// open anew.
func (f *Follower) Run(ctx context.Context) error {
	loop := retry.Loop{First: f.opt.Timing.FirstRetry, Max: f.opt.Timing.MaxRetry, Final: f.final, Poke: f.opt.Changed, OnError: func(err error) {
		if p := state.AsProblem(err); p != nil {
			f.opt.OnState(p.State, err)
		} else {
			f.opt.OnState(state.Connecting, err)
		}
	}}
	return loop.Run(ctx, f.attempt)
}

// final reports whether err is for the caller, who opens the store anew.
func (f *Follower) final(err error) bool {
	_, parted := replica.PartedAt(err)
	return replica.MustReopen(err) || parted && f.opt.Rewind
}

// attempt makes one connection and follows it to its end. fruitful says that
// the connection was worth making: the replica grew, or the source stayed.
func (f *Follower) attempt(ctx context.Context) (fruitful bool, err error) {
	if err := f.opt.Store.DropUnverified(); err != nil {
		return false, replica.Problem(f.opt.Store.Dir(), err)
	}
	target, err := f.opt.Target()
	if err != nil {
		return false, err
	}
	f.target.Store(&target)
	hello, err := f.hello(wirelink.ChannelLog)
	if err != nil {
		return false, replica.Problem(f.opt.Store.Dir(), err)
	}
	session, welcome, err := connect(ctx, target.Addr, hello, f.opt.Security, f.opt.Dial, f.opt.Timing)
	if err != nil {
		return false, problemOf(target.Addr, err)
	}
	defer func() { _ = session.Close() }() // in most cases it is closed by now
	st := &stream{pipe: newPipe(session, f.opt.Timing.Silence), f: f, store: f.opt.Store, addr: target.Addr, source: welcome, packs: hello.Accepts != 0, reached: make(chan struct{}, 1), watch: f.opt.Traffic.Stopwatch()}
	before, since := f.opt.Store.Ends().Verified, time.Now()
	err = f.follow(ctx, st, hello, target)
	if damaged(err) {
		f.opt.Traffic.Damage()
	}
	fruitful = f.opt.Store.Ends().Verified > before || st.started && time.Since(since) >= f.opt.Timing.Silence
	return fruitful, problemOf(target.Addr, err)
}

// follow judges the source, and copies its log and config files until one of the
// two connections is of no use any more.
func (f *Follower) follow(ctx context.Context, st *stream, hello *wirelink.Hello, target Target) error {
	judging := &judge{pipe: st.pipe, store: f.opt.Store, addr: st.addr, hello: hello, welcome: st.source, rewind: f.opt.Rewind}
	var from wire.PhyOffset
	err := st.alone(ctx, func() (err error) { from, err = judging.start(ctx); return err })
	if err != nil {
		_ = st.part(ctx, err) // what matters is why
		return err
	}
	if err := f.opt.Store.AdoptEpoch(st.source.Epoch); err != nil {
		return replica.Problem(f.opt.Store.Dir(), err)
	}
	if err := st.begin(ctx, from); err != nil {
		return err
	}
	end := make(chan error, 1)
	run, stop := context.WithCancel(ctx)
	group, run := errgroup.WithContext(run)
	group.Go(func() error {
		defer stop()
		return st.duplex(run, st.read, st.report, ending{from: end})
	})
	group.Go(func() error {
		f.watchTarget(run, target, end)
		return nil
	})
	if f.opt.Offer != nil {
		group.Go(func() error { return f.followConfig(run, target.Addr) })
	}
	return group.Wait()
}

// watchTarget ends a stream whose master is not the one to be followed any more.
// That a master is not seen in the gossip is no reason: the stream tells whether
// it lives.
func (f *Follower) watchTarget(ctx context.Context, target Target, end chan<- error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.opt.Changed:
		}
		now, err := f.opt.Target()
		p := state.AsProblem(err)
		switch {
		case p != nil && p.State == state.SplitBrain:
			end <- err
		case err == nil && now != target:
			end <- fmt.Errorf("%s is followed at %s now: %w", now.Node, now.Addr, retry.ErrAgain)
		default:
			continue
		}
		return
	}
}

// connect dials a master and shakes hands with it.
func connect(ctx context.Context, addr string, hello *wirelink.Hello, security *Security, dial func(context.Context, string, string) (net.Conn, error), t Timing) (*Session, *wirelink.Welcome, error) {
	if err := hello.Check(); err != nil {
		return nil, nil, err
	}
	within, cancel := context.WithTimeout(ctx, t.Dial)
	conn, err := dial(within, "tcp", addr)
	cancel()
	if err != nil {
		return nil, nil, fmt.Errorf("connect to link: %w", err)
	}
	session, err := security.Connect(ctx, conn)
	if err != nil {
		return nil, nil, errors.Join(err, ignoreClosed(conn.Close()))
	}
	if hello.Channel == wirelink.ChannelLog && session.Version() >= wirelink.VersionPacked {
		hello.Accepts = wirelink.EncodingZstd
	}
	if err := session.SendHello(ctx, hello); err != nil {
		return nil, nil, err
	}
	welcome, err := session.ReadWelcome(ctx)
	if err != nil {
		return nil, nil, err
	}
	return session, welcome, nil
}

// Survey asks a master who it is and what it holds, for a replica that has
// nothing yet. Its errors are as those of an attempt.
func Survey(ctx context.Context, addr string, self Identity, ack replica.Ack, security *Security, t Timing) (*wirelink.Welcome, error) {
	hello := &wirelink.Hello{Channel: wirelink.ChannelMetadata, Ack: ackOf(ack), Min: wire.NoOffset, Verified: wire.NoOffset, Flushed: wire.NoOffset,
		Cluster: self.Cluster, BrokerName: self.BrokerName, Node: self.Node, Version: self.Version}
	session, welcome, err := connect(ctx, addr, hello, security, new(net.Dialer).DialContext, t.withDefaults())
	if err != nil {
		return nil, problemOf(addr, err)
	}
	return welcome, ignoreClosed(session.Close())
}

func ackOf(a replica.Ack) wirelink.Ack {
	if a == replica.AckDisk {
		return wirelink.AckDisk
	}
	return wirelink.AckMemory
}
