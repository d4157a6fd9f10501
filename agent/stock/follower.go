package stock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// Timing is the clockwork of a Follower. The zero value is what stock brokers
// expect; tests shorten it.
type Timing struct {
	Heartbeat    time.Duration // a report at least this often; 5 s as haSendHeartbeatInterval
	Housekeeping time.Duration // a peer silent for this long is dropped; 20 s as haHousekeepingInterval
	Patience     time.Duration // bytes that must be there come within this; 3 s
	Survey       time.Duration // between two looks at the source's end; 2 s
	FirstRetry   time.Duration // 50 ms
	MaxRetry     time.Duration // 5 s
}

func (t Timing) withDefaults() Timing {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&t.Heartbeat, 5*time.Second)
	def(&t.Housekeeping, 20*time.Second)
	def(&t.Patience, 3*time.Second)
	def(&t.Survey, 2*time.Second)
	def(&t.FirstRetry, 50*time.Millisecond)
	def(&t.MaxRetry, 5*time.Second)
	return t
}

// FollowerOptions say whom to follow into which replica.
type FollowerOptions struct {
	Broker *Broker // the source's remoting port; nil where only the HA port is known
	Want   Expectation
	Store  *replica.Store
	Timing Timing
	// Retention drops the replica's oldest segments, given the source's min
	// offset; nil keeps all.
	Retention func(sourceMin wire.PhyOffset) error
	// Limits bound the bytes of the log a second; nil: nothing does.
	Limits *pace.Limits
	// Dial opens connections to the HA port; a net.Dialer where nil. It is given
	// the name each time, so that an address that changes is looked up anew.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// OnState is called at each change of state, with the problem of a stuck one.
	OnState func(state.State, error)
	// Traffic counts what comes; nil: nobody does.
	Traffic *meter.Traffic
}

// Follower is the slave of an unmodified broker: it keeps a replica equal to
// the broker's log over the stock HA port, and reports only what it verified.
type Follower struct {
	opt        FollowerOptions
	timing     Timing
	largePiece int // what is taken beside the next piece, from which length on

	// Positions for the status, as PhyOffset.
	received, sourceEnd atomic.Int64
	askLast             bool // HA port alone: byte 1 cannot be had, the last segment may; owned by Run
	resume              bool // HA port alone: the end lies before the last segment; owned by Run
	cheapEnd            bool // the source tells its end by request 907 too; owned by Run
}

// NewFollower returns a Follower that does nothing before Run.
func NewFollower(opt FollowerOptions) *Follower {
	f := &Follower{opt: opt, timing: opt.Timing.withDefaults(), largePiece: largePiece}
	for _, p := range []*atomic.Int64{&f.received, &f.sourceEnd} {
		p.Store(int64(wire.NoOffset))
	}
	if opt.Dial == nil {
		f.opt.Dial = new(net.Dialer).DialContext
	}
	if opt.OnState == nil {
		f.opt.OnState = func(state.State, error) {}
	}
	return f
}

// Received returns the end of what has come over the socket.
func (f *Follower) Received() wire.PhyOffset { return wire.PhyOffset(f.received.Load()) }

// SourceEnd returns the source's end as last known, wire.NoOffset before that.
func (f *Follower) SourceEnd() wire.PhyOffset { return wire.PhyOffset(f.sourceEnd.Load()) }

// Run follows the source until ctx ends, connecting again after every error:
// first after less than 100 ms, then with jittered back-off up to 5 s. It
// returns early only for problems of the store itself, which the caller must
// open anew.
func (f *Follower) Run(ctx context.Context) error {
	loop := retry.Loop{First: f.timing.FirstRetry, Max: f.timing.MaxRetry, Final: replica.MustReopen, OnError: func(err error) {
		if p := state.AsProblem(err); p != nil {
			f.opt.OnState(p.State, err)
		} else {
			f.opt.OnState(state.Connecting, err)
		}
	}}
	return loop.Run(ctx, f.attempt)
}

// attempt makes one connection and follows it to its end. fruitful says that
// the connection was worth making: the replica grew, or the source stayed.
func (f *Follower) attempt(ctx context.Context) (fruitful bool, err error) {
	if err := f.opt.Store.DropUnverified(); err != nil {
		return false, replica.Problem(f.opt.Store.Dir(), err)
	}
	addr, p, err := f.prepare(ctx)
	if err != nil {
		return false, err
	}
	dial, cancel := context.WithTimeout(ctx, f.timing.Patience)
	conn, err := f.opt.Dial(dial, "tcp", addr)
	cancel()
	if err != nil {
		return false, fmt.Errorf("connect to HA port: %w", err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(f.timing.Heartbeat)); err != nil {
		return false, fmt.Errorf("ask %s: %w", addr, err)
	}
	if _, err := conn.Write(ha.AppendReport(nil, p.request)); err != nil {
		return false, fmt.Errorf("ask %s for %d: %w", addr, p.request, err)
	}
	st := newStream(f, conn, addr, p)
	before, since := f.opt.Store.Ends().Verified, time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return st.read(ctx) })
	group.Go(func() error { return st.report(ctx) })
	group.Go(func() error { return f.watchSource(ctx, st) })
	group.Go(func() error {
		<-ctx.Done() // whoever ends first ends the others
		return conn.Close()
	})
	err = group.Wait()
	if corrupt := new(commitlog.CorruptError); errors.As(err, &corrupt) {
		f.opt.Traffic.Damage()
	}
	fruitful = f.opt.Store.Ends().Verified > before || st.answered && time.Since(since) >= f.timing.Patience
	return fruitful, streamProblem(addr, err)
}

// prepare asks the source, where it can be asked, and plans the request.
func (f *Follower) prepare(ctx context.Context) (addr string, p plan, err error) {
	if f.opt.Broker == nil {
		return f.opt.Want.HAAddr, f.planBlind(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*f.timing.Patience)
	defer cancel()
	survey, err := SurveyBroker(ctx, f.opt.Broker, f.opt.Want)
	if err != nil {
		return "", plan{}, err
	}
	f.sourceEnd.Store(int64(survey.Max))
	f.cheapEnd = survey.Config.CountsInSync
	p, err = planFrom(ctx, f.opt.Broker, survey, f.opt.Store)
	return survey.HAAddr, p, err
}

// planBlind plans with the HA port alone. A request of 0 is the only one that
// is no ack, so the last segment is read and compared first; only a replica
// that ends before it asks for its own end.
func (f *Follower) planBlind() plan {
	ends := f.opt.Store.Ends()
	resume, askLast := f.resume, f.askLast
	f.resume, f.askLast = false, false // the next attempt begins with the usual question
	switch {
	case f.opt.Store.Empty() && !askLast:
		return plan{request: 1, data: true, target: wire.NoOffset}
	case resume && !f.opt.Store.Empty():
		request := max(min(max(ends.Verified.Add(-overlap), ends.Min), ends.Acked), 1)
		return plan{request: request, data: true, target: wire.NoOffset}
	}
	return plan{request: 0, target: wire.NoOffset}
}

// lookAround is every how many looks at the source's end its beginning is asked
// for too. It costs a 5.x broker a walk over its timer wheel.
const lookAround = 15

// watchSource keeps the source's ends current, and the replica's beginning
// behind the source's.
func (f *Follower) watchSource(ctx context.Context, st *stream) error {
	if f.opt.Broker == nil {
		return nil
	}
	tick := time.NewTicker(f.timing.Survey)
	defer tick.Stop()
	for look := 0; ; look++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if f.cheapEnd && look%lookAround != 0 {
			if end, _, _, err := f.opt.Broker.haStatusEnd(ctx); err == nil && end <= maxOffset {
				f.sourceEnd.Store(int64(max(end, 0)))
			}
			continue // the stream decides whether the source is there
		}
		info, err := f.opt.Broker.RuntimeInfo(ctx)
		if err != nil || info.MaxOffset > maxOffset {
			continue
		}
		f.sourceEnd.Store(int64(max(info.MaxOffset, 0)))
		if f.opt.Retention == nil || !st.compared.Load() {
			continue
		}
		if err := f.opt.Retention(info.MinOffset); err != nil {
			return replica.Problem(f.opt.Store.Dir(), err)
		}
	}
}
