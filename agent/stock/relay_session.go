package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// relaySession is a Relay while the broker keeps its role.
type relaySession struct {
	r     *Relay
	s     *authoritySession
	links int
	gap   wire.ByteSize // as maxGap
	doubt *state.Problem
	// stall is how long replicas may ack nothing new although there is something:
	// as long as the broker waits for a slave, so that nobody is refused who could
	// still be told SEND_OK.
	stall time.Duration
	still *errStalled // what ended the last connections; nil: something else did
}

// errStalled ends connections because replicas that are in reach do not get on: one
// that stands still keeps its connection, and the broker would take it for a slave.
type errStalled struct {
	rank  wire.PhyOffset
	n     int
	stall time.Duration
}

// Error implements error.
func (e *errStalled) Error() string {
	return fmt.Sprintf("%s in reach, but %d of them have acked nothing beyond %d for %s", count(e.n, "replica"), e.n, e.rank, e.stall)
}

// errTooFew ends connections because fewer replicas are in reach than must be.
type errTooFew struct{ inReach, n int }

// Error implements error.
func (e errTooFew) Error() string {
	return fmt.Sprintf("%d of %d replicas are in reach", e.inReach, e.n)
}

// attempt waits until there is something to tell, connects, and tells it until
// that ends.
func (x *relaySession) attempt(ctx context.Context) (fruitful bool, err error) {
	if !x.await(ctx) {
		return false, nil
	}
	links, last, err := x.connect(ctx)
	if err != nil {
		return false, err
	}
	x.holds(links, time.Time{})
	defer func() { x.holds(links, time.Now()) }()
	since := time.Now()
	x.r.change(func(st *RelayStatus) { st.Connected, st.Reason, st.Problem = true, "", nil })
	x.s.a.streaming(nil)
	x.s.a.tells.Store(true)
	err = x.serve(ctx, links, last)
	x.s.a.tells.Store(false)
	x.r.remember(x.s)
	var few errTooFew
	if errors.As(err, &few) || errors.As(err, &x.still) {
		x.r.waiting(err.Error(), nil)
		x.s.a.streaming(err)
		return true, retry.ErrAgain
	}
	// The broker may be gone, and be back with a shorter log. Whoever answers at
	// its remoting port is asked at once.
	x.s.a.forget()
	wake.Send(x.s.a.again)
	return time.Since(since) >= x.s.a.timing.Patience, streamProblem(x.s.survey.HAAddr, err)
}

// failed notes why there is no connection.
func (x *relaySession) failed(err error) {
	if err == nil {
		return
	}
	x.r.waiting(err.Error(), state.AsProblem(err))
	x.s.a.streaming(err)
}

// await waits until enough replicas are in reach, and near enough to the broker's
// end; false says that ctx ended.
func (x *relaySession) await(ctx context.Context) bool {
	moved, stop := x.r.opt.Acks.Listen()
	defer stop()
	told, deaf := x.s.a.Listen()
	defer deaf()
	for {
		inReach, rank := x.r.opt.Acks.Since(x.r.after, x.r.opt.N)
		behind := x.s.a.End().Sub(max(rank, 0))
		if inReach < x.r.opt.N || x.still != nil && rank != x.still.rank {
			x.still = nil
		}
		switch {
		case inReach < x.r.opt.N:
			x.r.waiting(errTooFew{inReach, x.r.opt.N}.Error(), x.doubt)
		case x.r.doubted && rank == wire.NoOffset: // what they will say is what is in doubt
			x.r.waiting("replicas that are in reach have acked nothing yet", x.doubt)
		case x.still != nil:
			x.r.waiting(x.still.Error(), x.doubt)
		case behind >= x.gap:
			x.r.waiting(fmt.Sprintf("%d replicas are more than %s behind, which is too far for the local broker", x.r.opt.N, x.gap), x.doubt)
		default:
			x.doubt = nil
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-moved:
		case <-told:
		}
	}
}

// connect makes all connections and sends the request on each, which it returns.
// The broker is asked for its end, and proven to be ours, once they stand: the
// process that listens there had written so much at that time.
func (x *relaySession) connect(ctx context.Context) (links []*endLink, request wire.PhyOffset, err error) {
	defer func() {
		if err != nil {
			for _, l := range links {
				err = errors.Join(err, serve.Closed(l.conn.Close()))
			}
		}
	}()
	a := x.s.a
	for range x.links {
		dial, cancel := context.WithTimeout(ctx, a.timing.Patience)
		conn, err := a.opt.Dial(dial, "tcp", x.s.survey.HAAddr)
		cancel()
		if err != nil {
			return links, 0, fmt.Errorf("connect to HA port: %w", err)
		}
		links = append(links, newEndLink(x.s, conn))
	}
	// What the replicas have comes before where the broker ends, so that the first
	// is above the second only where it must not be.
	joins := x.r.opt.Acks.Joins()
	_, best := x.r.opt.Acks.Since(x.r.after, 1)
	_, rank := x.r.opt.Acks.Since(x.r.after, x.r.opt.N)
	life, _ := a.current()
	now := &authoritySession{a: a}
	if err := now.find(ctx); err != nil {
		return links, 0, err
	}
	if !same(now.survey, x.s.survey) {
		wake.Send(a.again)
		return links, 0, fmt.Errorf("broker %s is not what it was", a.opt.Broker.Addr())
	}
	end := now.survey.Max
	// It may be another process; and whoever joins again before the source has seen
	// what that one lost is compared with what is still in its files.
	if now.conns != x.r.dialled || x.r.doubted {
		if x.doubt = x.r.doubts(x.s, best, end); x.doubt == nil {
			if x.doubt, err = x.r.changed(ctx, end); err != nil {
				return links, 0, err
			}
		}
		x.r.dialled, x.r.witness, x.r.doubted = now.conns, witness{}, x.doubt != nil || x.r.doubted && best == wire.NoOffset
		if x.doubt != nil {
			x.r.after = joins
			return links, 0, retry.ErrAgain // when they have joined again
		}
	}
	a.raise(life, end)
	request = min(max(rank, 0), end)
	for _, l := range links {
		if err := l.ask(life, request); err != nil {
			return links, 0, err
		}
		l.expect = anywhere
	}
	x.r.reported.Store(int64(request))
	return links, request, nil
}

// serve reports on all connections until one ends or there are too few replicas.
func (x *relaySession) serve(ctx context.Context, links []*endLink, last wire.PhyOffset) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range links {
		group.Go(func() error { return serve.Together(ctx, l.conn, l.read) })
	}
	group.Go(func() error { return x.report(ctx, links, last) })
	return group.Wait()
}

// report tells the broker at once when the rank or its own end moves, and at least
// every heartbeat. The rank may fall: a replica that has joined again holds
// nothing until it has said what.
func (x *relaySession) report(ctx context.Context, links []*endLink, last wire.PhyOffset) error {
	moved, stop := x.r.opt.Acks.Listen()
	defer stop()
	told, deaf := x.s.a.Listen()
	defer deaf()
	tick := time.NewTicker(x.s.a.timing.Heartbeat)
	defer tick.Stop()
	stalled := time.NewTimer(x.stall)
	defer stalled.Stop()
	var behind time.Time // since when the rank is where it is, below the end; zero: it is not
	due, at := false, wire.NoOffset
	for {
		inReach, rank := x.r.opt.Acks.Since(x.r.after, x.r.opt.N)
		if inReach < x.r.opt.N {
			return errTooFew{inReach, x.r.opt.N}
		}
		end := x.s.a.End()
		if end == wire.NoOffset {
			end = last // the session is about to end
		}
		switch {
		case max(rank, 0) >= end:
			behind = time.Time{}
		case behind.IsZero() || rank != at:
			behind, at = time.Now(), rank
			stalled.Reset(x.stall)
		case time.Since(behind) >= x.stall:
			return &errStalled{rank, x.r.opt.N, x.stall}
		}
		now := min(max(rank, 0), end)
		if now != last || due {
			for _, l := range links {
				l.asked = now
				if err := l.send(); err != nil {
					return err
				}
			}
			last = now
			x.r.reported.Store(int64(now))
			tick.Reset(x.s.a.timing.Heartbeat)
		}
		due = false
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
		case <-told:
		case <-stalled.C:
		case <-tick.C:
			due = true
		}
	}
}

// holds notes that connections to the broker are ours, or were until a time.
func (x *relaySession) holds(links []*endLink, until time.Time) {
	x.r.mu.Lock()
	defer x.r.mu.Unlock()
	x.r.forgetOwn(time.Now().Add(-3 * x.s.a.timing.Survey))
	for _, l := range links {
		x.r.own[peerName(l.conn.LocalAddr().String())] = until
	}
}
