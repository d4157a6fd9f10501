package stock

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// RelayAcks is what a Relay asks about the replicas: an acks.Table.
type RelayAcks interface {
	// Joins counts the connections of replicas so far.
	Joins() uint64
	// Since returns how many of those are in reach that joined after so many
	// joins, and the largest offset that n of them have acked.
	Since(joins uint64, n int) (inReach int, rank wire.PhyOffset)
	// Listen tells of every change.
	Listen() (moved <-chan struct{}, stop func())
}

// RelayOptions say whose acks count. Acks and N are required.
type RelayOptions struct {
	Acks RelayAcks
	// N is how many replicas must have a message, of whatever kind they are.
	N int
	// Recheck holds the log's files against what they were when replicas were sent
	// them, and reports whether they are still that; nobody is asked where nil. It
	// is called when the broker may be another process than it was, and again where
	// it could not tell.
	Recheck func(ctx context.Context) (same bool, err error)
	// Log is told when producers begin and cease to be confirmed; nobody where nil.
	Log *slog.Logger
}

// RelayStatus says whether a broker's producers are confirmed.
type RelayStatus struct {
	// Links is how many HA connections the broker needs; 0 where a relay is of no
	// use to it, and as long as it is not known.
	Links int
	// Connected: they stand, so that the broker answers SEND_OK for what N replicas
	// have.
	Connected bool
	// Reported is the last report; wire.NoOffset before the first.
	Reported wire.PhyOffset
	// Reason is why they do not stand, in a few words.
	Reason string
	// Problem is what a person must look at; nil where all is well.
	Problem *state.Problem
	// Strangers are the addresses of slaves that the broker serves itself. Each
	// of them counts for it as much as the relay does. Only brokers of 5.x tell:
	// 4.x has no request for it.
	Strangers []string
}

// Relay tells a SYNC_MASTER what its replicas have, so that its producers wait
// for these: it is the broker's slave, and reports the largest offset that N
// distinct replicas have acked.
//
//	replica A ── 700 ─┐            rank 2
//	replica B ── 640 ─┼─► acks ───── 640 ─────► HA port ─► SEND_OK up to 640
//	replica C ── 510 ─┘            (never above the broker's own end)
//
// With fewer than N in reach it is not connected, and the broker does as it does
// without a slave: 4.x answers SLAVE_NOT_AVAILABLE at once, 5.x
// FLUSH_SLAVE_TIMEOUT after slaveTimeout. It is not connected either while the
// rank lies further behind the broker's end than the broker lets a slave be
// (256 MiB), because it answers the same then, and would send all of that for
// nothing.
//
// Brokers of 4.x take the highest report of anybody for everybody's: one
// connection is enough. Those of 5.x count connections, the broker itself
// included, up to inSyncReplicas. So there are inSyncReplicas-1 of them which all
// report the same, and N must not be less than that.
//
// The request counts as a report, so it is no greater than the rank, and than the
// end that the broker told when the connection stood. A request of 0 is for the
// broker's last segment, and acks nothing.
//
// A Relay is run by the Authority that it is given to.
type Relay struct {
	opt      RelayOptions
	reported atomic.Int64 // PhyOffset

	// Of the goroutine that runs it.
	after   uint64 // replicas that joined no later are not believed
	dialled int    // the broker's remoting connection when it was last connected to; 0: never
	witness witness
	doubted bool // what was found at the last connection spoke against the acks

	mu     sync.Mutex // guards what follows
	status RelayStatus
	own    map[string]time.Time // our ends of HA connections, with the time when they were closed
}

// NewRelay returns a Relay that reports nothing before it is run.
func NewRelay(opt RelayOptions) *Relay {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	r := &Relay{opt: opt, own: make(map[string]time.Time), status: RelayStatus{Reason: relayNoBroker}}
	r.reported.Store(int64(wire.NoOffset))
	return r
}

const relayNoBroker = "the local broker does not answer"

// Status returns what is relayed now.
func (r *Relay) Status() RelayStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.status
	st.Reported = wire.PhyOffset(r.reported.Load())
	st.Strangers = slices.Clone(st.Strangers)
	return st
}

// Acks returns how many replicas must have a message.
func (r *Relay) Acks() int { return r.opt.N }

// relayLinks returns how many HA connections a broker needs so that n replicas
// confirm its producers; otherwise none, and why.
func relayLinks(cfg BrokerConfig, n int) (links int, reason string, problem *state.Problem) {
	switch {
	case cfg.Role != "SYNC_MASTER":
		return 0, fmt.Sprintf("the local broker is %s, and its producers do not wait for replicas", cfg.Role), nil
	case !cfg.CountsInSync:
		return 1, "", nil
	case cfg.InSyncReplicas <= 1:
		return 0, "the local broker has inSyncReplicas=1, which counts itself, so that its producers do not wait for replicas", nil
	}
	if links = cfg.InSyncReplicas - 1; n < links {
		problem = state.Problemf(state.Incompatible, "relay_too_few",
			fmt.Sprintf("give --relay-acks %d and run as many replicas, or set inSyncReplicas=%d in broker.conf", links, n+1), nil,
			"the local broker wants %d replicas besides itself (inSyncReplicas=%d), and --relay-acks %d is for fewer", links, cfg.InSyncReplicas, n)
		return 0, problem.Reason, problem
	}
	return links, "", nil
}

// maxGap is how far behind its end a broker lets a slave be.
func maxGap(cfg BrokerConfig) wire.ByteSize {
	const byDefault = 256 * wire.MiB
	p := properties{raw: cfg.Raw}
	for _, name := range []string{"haMaxGapNotInSync", "haSlaveFallbehindMax"} {
		if n := wire.ByteSize(p.number(name, 0)); n > 0 {
			return n
		}
	}
	return byDefault
}

// slaveTimeout is how long a broker waits for a slave before it tells a producer
// that there was none.
func slaveTimeout(cfg BrokerConfig) time.Duration {
	const byDefault = 3000
	p := properties{raw: cfg.Raw}
	return max(time.Duration(p.number("slaveTimeout", byDefault)), 1) * time.Millisecond
}

// run relays to the broker of a session until ctx ends.
func (r *Relay) run(ctx context.Context, s *authoritySession) error {
	links, reason, problem := relayLinks(s.survey.Config, r.opt.N)
	r.change(func(st *RelayStatus) { *st = RelayStatus{Links: links, Reason: reason, Problem: problem} })
	defer r.change(func(st *RelayStatus) { *st = RelayStatus{Reason: relayNoBroker} })
	if links == 0 {
		<-ctx.Done()
		return nil
	}
	x := &relaySession{r: r, s: s, links: links, gap: maxGap(s.survey.Config), stall: slaveTimeout(s.survey.Config)}
	defer r.remember(s)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { r.watchPeers(ctx, s) })
	loop := retry.Loop{First: s.a.timing.FirstRetry, Max: s.a.timing.MaxRetry, OnError: x.failed}
	return loop.Run(ctx, x.attempt)
}

// change changes the status, and logs what a reader of the log should see.
func (r *Relay) change(f func(*RelayStatus)) {
	r.mu.Lock()
	old := r.status
	f(&r.status)
	now := r.status
	r.mu.Unlock()
	log := r.opt.Log.With("relayAcks", r.opt.N)
	switch {
	case now.Problem != nil && (old.Problem == nil || now.Problem.Code != old.Problem.Code):
		log.Warn("producers of the local broker are not confirmed", "reason", now.Problem, "try", now.Problem.Try)
	case now.Connected && !old.Connected:
		log.Info("producers of the local broker are confirmed by replicas", "connections", now.Links)
	case old.Connected && !now.Connected:
		log.Warn("producers of the local broker are not confirmed", "reason", now.Reason)
	case now.Links == 0 && old.Reason != now.Reason && now.Reason != relayNoBroker:
		log.Warn("acks are not relayed", "reason", now.Reason)
	}
}

// waiting notes why there is no connection. Only what is new is told.
func (r *Relay) waiting(reason string, problem *state.Problem) {
	r.mu.Lock()
	same := !r.status.Connected && r.status.Reason == reason && r.status.Problem == problem
	r.mu.Unlock()
	if !same {
		r.change(func(st *RelayStatus) { st.Connected, st.Reason, st.Problem = false, reason, problem })
	}
}
