package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// watchInterval is how often the replica is looked at for others' writes.
const watchInterval = time.Second

// session is one opening of the store, and why it had to be opened anew.
type session struct {
	lock  *replica.Lock
	from  origin // nil: nobody to follow
	after error  // what ended the session before, nil for the first
	held  bool   // the store was open before, and the lock ours ever since
	// doubted is set from a failed sync on until the store was opened again: the
	// disk may come back, and what the page cache shows is not on it.
	doubted bool

	closing error // how closing the store went where ctx ended while it was open
}

// slave is the role loop: session after session until ctx ends or the replica
// is promoted.
func (a *Agent) slave(ctx context.Context, opened func()) error {
	s := &session{from: a.origin()}
	if s.from != nil {
		defer s.from.close()
	}
	wait := &backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.3, Multiplier: 2, MaxInterval: 5 * time.Second}
	wait.Reset()
	first := true
	for ctx.Err() == nil {
		began := time.Now()
		err := a.runSession(ctx, s, opened)
		if errors.Is(err, errDone) {
			return nil
		}
		if ctx.Err() != nil { // whatever the session has met does not matter any more
			return errors.Join(s.closing, s.release())
		}
		p := state.AsProblem(err)
		if first && p != nil && (p.State == state.Locked || errors.Is(err, os.ErrPermission)) {
			return err
		}
		first = false
		if time.Since(began) > 10*time.Second {
			wait.Reset()
		}
		delay := wait.NextBackOff()
		if _, parted := replica.PartedAt(err); p != nil {
			a.following(p.State, err)
			if !parted { // nobody has to decide that any more
				delay = max(delay, p.State.RetryAfter())
			}
		} else {
			a.following(state.Connecting, err)
		}
		s.ended(err)
		a.pause(ctx, delay)
	}
	return s.release()
}

// ended notes why a session ended.
func (s *session) ended(err error) {
	s.after, s.doubted = err, s.doubted || errors.Is(err, replica.ErrFlush)
}

// release gives the lock up where a session ended without doing so.
func (s *session) release() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Release()
}

// pause waits for delay, or until a change among the other agents makes another
// look worth while.
func (a *Agent) pause(ctx context.Context, delay time.Duration) {
	var changed <-chan struct{}
	if a.cfg.Finder != nil {
		var stop func()
		changed, stop = a.cfg.Finder.Listen()
		defer stop()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}

// runSession opens the store and follows the source until the store has to be
// opened anew.
func (a *Agent) runSession(ctx context.Context, s *session, opened func()) error {
	options, err := a.storeOptions(ctx, s, opened)
	if err != nil {
		return err
	}
	if options.SegmentSize == 0 { // nobody to ask
		<-ctx.Done()
		return nil
	}
	store, err := replica.Open(options, s.lock)
	if errors.Is(err, replica.ErrBrokerWrote) && s.held {
		// Under our lock no broker got as far as messages: the next session undoes it.
		err = fmt.Errorf("%s: %w", err.Error(), replica.ErrDisturbed)
	}
	if err != nil {
		return replica.Problem(a.cfg.Dir, err)
	}
	s.doubted = false
	s.held = true
	a.tellRewound(store)
	opened()
	config, err := newMetadataLoop(a, store)
	if err != nil {
		return errors.Join(replica.Problem(a.cfg.Dir, err), store.Abandon())
	}
	err = a.replicate(ctx, s, store, config)
	defer func() { // last, with the ends that closing leaves
		ends, segments := store.Ends(), store.Segments()
		a.cond.know(func(c *condition) { c.fill = remembered(ends, segments, config) })
	}()
	switch {
	case errors.Is(err, errDone):
		return err
	case ctx.Err() != nil:
		a.cond.set(state.Stopping, nil)
		s.lock = nil
		s.closing = replica.Problem(a.cfg.Dir, store.Close())
		return s.closing
	}
	return errors.Join(err, store.Abandon())
}

// tellRewound says what opening the store has cut off, if anything.
func (a *Agent) tellRewound(store *replica.Store) {
	n := store.Rewound()
	if n <= 0 {
		return
	}
	r := &control.Rewound{At: store.Ends().Verified, Bytes: n, Salvage: filepath.Join(replica.AgentDir(a.cfg.Dir), "salvage"), Time: time.Now().UTC()}
	a.log.Warn("the replica was cut back to where it parted from its source", "offset", r.At, "bytes", int64(n), "kept", r.Salvage)
	a.cond.know(func(c *condition) { c.rewound = r })
}

// storeOptions admits the directory, takes the lock, and finds out whose log of
// which segment size is to be held: from what was given, from what the replica
// remembers, or from the source. A size of 0 says that there is no source. It calls
// opened where the store has a place for the socket already.
func (a *Agent) storeOptions(ctx context.Context, s *session, opened func()) (replica.Options, error) {
	dir := a.cfg.Dir
	if s.lock == nil { // a store in use is that before anything else
		if err := replica.CheckLock(dir); err != nil {
			return replica.Options{}, replica.Problem(dir, err)
		}
	}
	kind, err := a.admit()
	if err != nil {
		return replica.Options{}, err
	}
	if s.lock == nil {
		// What was handed over is a broker's, which must not find it locked.
		if err := a.handedOver(kind); err != nil {
			return replica.Options{}, err
		}
		if s.lock, err = replica.AcquireLock(dir); err != nil {
			return replica.Options{}, replica.Problem(dir, err)
		}
	}
	o := replica.Options{Dir: dir, CommitLogDir: a.cfg.CommitLogDir, Ack: a.cfg.Ack,
		SegmentSize: a.cfg.SegmentSize, Cluster: a.cfg.Cluster, BrokerName: a.cfg.BrokerName, Fsync: a.counts.Fsync, OnlySynced: s.doubted}
	if p := state.AsProblem(s.after); p != nil {
		o.Disturbed = p.State == state.Disturbed && errors.Is(p.Err, replica.ErrDisturbed)
		o.Verify = o.Disturbed
		if at, ok := replica.PartedAt(p); ok && a.cfg.OnDivergence == DivergenceRewind {
			o.Rewind = at
		}
	}
	if kind == replica.KindReplica {
		opened() // the place for the socket is there, and ours
		err = a.remember(&o)
	} else {
		err = a.askSource(ctx, s, &o)
	}
	return o, err
}

// remember fills in what the replica's own state says.
func (a *Agent) remember(o *replica.Options) error {
	st, err := replica.ReadState(o.Dir)
	if err != nil {
		return &state.Problem{State: state.IOError, Code: "state_unreadable", Reason: "the replica's own state cannot be used",
			Try: "haagent resync --dir " + o.Dir + " starts anew; the log is set aside", Err: err}
	}
	for _, w := range []struct{ flag, given, held, code string }{
		{"cluster", a.cfg.Cluster, st.Cluster, "wrong_cluster"},
		{"broker-name", a.cfg.BrokerName, st.BrokerName, "wrong_broker"},
	} {
		if w.given != "" && w.held != "" && w.given != w.held {
			return &state.Problem{State: state.Incompatible, Code: w.code, Try: "give --" + w.flag + " " + w.held + ", or another --dir",
				Reason: fmt.Sprintf("the replica at %s holds %s %q, not %q", o.Dir, w.flag, w.held, w.given)}
		}
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = st.SegmentSize
	}
	o.Cluster, o.BrokerName = st.Cluster, st.BrokerName
	return nil
}

// askSource fills in what the source says. An empty replica cannot be laid out
// without it.
func (a *Agent) askSource(ctx context.Context, s *session, o *replica.Options) error {
	if s.from == nil {
		a.cond.set(state.Searching, fmt.Errorf("no master is known: %s", tryGiveMaster))
		o.SegmentSize = 0
		return nil
	}
	if s.after == nil {
		a.cond.set(state.Connecting, nil)
	}
	return s.from.survey(ctx, o)
}

// replicate runs the parts of one session.
func (a *Agent) replicate(ctx context.Context, s *session, store *replica.Store, config *metadataLoop) error {
	st := store.State()
	group, run := errgroup.WithContext(ctx)
	a.cond.know(func(c *condition) {
		c.cluster, c.brokerName, c.segmentSize = st.Cluster, st.BrokerName, store.SegmentSize()
		c.fill = remembered(store.Ends(), store.Segments(), config)
	})
	if s.from == nil {
		a.cond.set(state.Searching, fmt.Errorf("no master is known: %s", tryGiveMaster))
	} else {
		follower := s.from.follower(store, config)
		config.collect = s.from.collect()
		a.cond.know(func(c *condition) { c.source, c.fill = s.from.source(), filled(store, s.from, follower, config) })
		a.cond.set(state.Connecting, nil)
		a.announce(func(m *Member) { m.Cluster, m.BrokerName, m.Epoch = st.Cluster, st.BrokerName, st.Epoch })
		group.Go(func() error { return follower.Run(run) })
		group.Go(func() error { return config.Run(run) })
	}
	var waiting *promotion
	group.Go(func() error { return replica.Problem(a.cfg.Dir, store.Run(run)) })
	group.Go(func() error { return a.watchStore(run, store, config) })
	group.Go(func() error {
		select {
		case <-run.Done():
			return nil
		case p := <-a.promotions:
			waiting = &p
			return errDone
		}
	})
	err := group.Wait()
	if waiting == nil {
		return err
	}
	p, err := promoteStore(a.cfg.Dir, store)
	if err == nil {
		s.lock = nil // released with the store
		err = errDone
		a.cond.set(state.Promoted, nil)
		waiting.answer <- promoted{Promotion: p}
	} else {
		waiting.answer <- promoted{err: err}
	}
	return err
}

// announce tells the other agents, where there are any.
func (a *Agent) announce(edit func(*Member)) {
	if a.cfg.Finder == nil {
		return
	}
	if err := a.cfg.Finder.Announce(edit); err != nil {
		a.log.Warn("the other agents are not told", "cause", err)
	}
}

// watchStore looks for others' writes in the replica. A broker that is started
// on it finds the lock, but only after it has recovered: it has deleted and
// rewritten files by then.
func (a *Agent) watchStore(ctx context.Context, store *replica.Store, config *metadataLoop) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	defer a.pulse.rest()
	for {
		a.pulse.turn(turnWithin)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := store.Intact(); err != nil {
			return replica.Problem(a.cfg.Dir, err)
		}
		if err := config.intact(); err != nil {
			return replica.Problem(a.cfg.Dir, err)
		}
	}
}

// retention returns how the replica's beginning follows the source's.
func (a *Agent) retention(store *replica.Store) func(wire.PhyOffset) error {
	r := a.cfg.Retention
	if !r.Follow && r.Age == 0 {
		return nil
	}
	return func(sourceMin wire.PhyOffset) error {
		limit := sourceMin
		if r.Age > 0 {
			var err error
			if limit, err = olderThan(store, time.Now().Add(-r.Age)); err != nil {
				return err
			}
		}
		n, err := store.DropBefore(limit)
		if n > 0 {
			a.log.Info("dropped old segments", "count", n, "min", store.Ends().Min)
		}
		return err
	}
}

// olderThan returns the end of the run of oldest segments last written before t.
func olderThan(store *replica.Store, t time.Time) (wire.PhyOffset, error) {
	segments, err := commitlog.List(store.CommitLogDir())
	if err != nil {
		return 0, err
	}
	limit := wire.PhyOffset(0)
	for _, seg := range segments {
		if !seg.ModTime.Before(t) || filepath.Base(seg.Path) == "" {
			break
		}
		limit = seg.End()
	}
	return limit, nil
}
