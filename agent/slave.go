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
	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// watchInterval is how often the replica is looked at for others' writes.
const watchInterval = time.Second

// session is one opening of the store, and why it had to be opened anew.
type session struct {
	lock   *replica.Lock
	broker *stock.Broker
	after  error // what ended the session before, nil for the first
	held   bool  // the store was open before, and the lock ours ever since
}

// slave is the role loop: session after session until ctx ends or the replica
// is promoted.
func (a *Agent) slave(ctx context.Context, opened func()) error {
	s := &session{}
	if a.cfg.Master != "" {
		s.broker = stock.NewBroker(a.cfg.Master, stock.BrokerOptions{Credentials: a.cfg.Credentials})
		defer s.broker.Close()
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
		if ctx.Err() != nil {
			return errors.Join(ignoreCanceled(err), s.release())
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
		if p != nil {
			a.cond.set(p.State, err)
			delay = max(delay, p.State.RetryAfter())
		} else {
			a.cond.set(state.Connecting, err)
		}
		s.after = err
		retry.Sleep(ctx, delay)
	}
	return s.release()
}

// release gives the lock up where a session ended without doing so.
func (s *session) release() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Release()
}

func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// runSession opens the store and follows the source until the store has to be
// opened anew.
func (a *Agent) runSession(ctx context.Context, s *session, opened func()) error {
	options, err := a.storeOptions(ctx, s)
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
	s.held = true
	opened()
	err = a.replicate(ctx, s, store)
	defer a.forget(store) // last, with the ends that closing leaves
	switch {
	case errors.Is(err, errDone):
		return err
	case ctx.Err() != nil:
		a.cond.set(state.Stopping, nil)
		s.lock = nil
		return replica.Problem(a.cfg.Dir, store.Close())
	}
	return errors.Join(err, store.Abandon())
}

// forget takes the store out of the status and keeps its last ends there.
func (a *Agent) forget(store *replica.Store) {
	a.cond.mu.Lock()
	defer a.cond.mu.Unlock()
	a.cond.ends = store.Ends()
	a.cond.store, a.cond.follower = nil, nil
}

// storeOptions admits the directory, takes the lock, and finds out whose log of
// which segment size is to be held: from what was given, from what the replica
// remembers, or from the source. A size of 0 says that there is no source.
func (a *Agent) storeOptions(ctx context.Context, s *session) (replica.Options, error) {
	dir := a.cfg.Dir
	if s.lock == nil { // a store in use is that before anything else
		if err := replica.CheckLock(dir); err != nil {
			return replica.Options{}, replica.Problem(dir, err)
		}
	}
	kind, err := replica.Classify(dir, a.cfg.CommitLogDir)
	if err != nil {
		return replica.Options{}, replica.Problem(dir, err)
	}
	switch kind {
	case replica.KindStore:
		err = fmt.Errorf("%s: %w", a.cfg.CommitLogDir, replica.ErrForeignStore)
		if _, listed := commitlog.List(a.cfg.CommitLogDir); listed != nil {
			err = listed
		}
	case replica.KindNotStore:
		err = fmt.Errorf("%s: %w", dir, replica.ErrNotStore)
	}
	if err != nil {
		return replica.Options{}, replica.Problem(dir, err)
	}
	if s.lock == nil {
		if s.lock, err = replica.AcquireLock(dir); err != nil {
			return replica.Options{}, replica.Problem(dir, err)
		}
	}
	o := replica.Options{Dir: dir, CommitLogDir: a.cfg.CommitLogDir, Ack: a.cfg.Ack,
		SegmentSize: a.cfg.SegmentSize, Cluster: a.cfg.Cluster, BrokerName: a.cfg.BrokerName}
	if p := state.AsProblem(s.after); p != nil {
		o.Disturbed = p.State == state.Disturbed && errors.Is(p.Err, replica.ErrDisturbed)
		o.Verify = o.Disturbed
		o.OnlySynced = errors.Is(p.Err, replica.ErrFlush)
	}
	if kind == replica.KindReplica {
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
	switch {
	case s.broker != nil:
		if s.after == nil {
			a.cond.set(state.Connecting, nil)
		}
		survey, err := stock.SurveyBroker(ctx, s.broker, a.expectation(*o))
		if err != nil {
			return err
		}
		o.SegmentSize = survey.Config.SegmentSize
		o.Cluster, o.BrokerName = survey.Config.ClusterName, survey.Config.BrokerName
	case a.cfg.MasterHA != "":
		if o.SegmentSize == 0 {
			o.SegmentSize = commitlog.DefaultSegmentSize
		}
	default:
		a.cond.set(state.Searching, fmt.Errorf("no master is known: %s", tryGiveMaster))
		o.SegmentSize = 0
	}
	return nil
}

func (a *Agent) expectation(o replica.Options) stock.Expectation {
	return stock.Expectation{Cluster: o.Cluster, BrokerName: o.BrokerName, SegmentSize: o.SegmentSize, HAAddr: a.cfg.MasterHA}
}

// replicate runs the parts of one session.
func (a *Agent) replicate(ctx context.Context, s *session, store *replica.Store) error {
	st := store.State()
	follower := stock.NewFollower(stock.FollowerOptions{
		Broker: s.broker,
		Want:   stock.Expectation{Cluster: st.Cluster, BrokerName: st.BrokerName, SegmentSize: store.SegmentSize(), HAAddr: a.cfg.MasterHA},
		Store:  store, Timing: a.cfg.Timing,
		Retention: a.retention(store), OnState: a.cond.set,
	})
	config, err := newMetadataLoop(a, s.broker, store)
	if err != nil {
		return replica.Problem(a.cfg.Dir, err)
	}
	a.cond.mu.Lock()
	a.cond.store, a.cond.follower, a.cond.config = store, follower, config
	a.cond.cluster, a.cond.brokerName, a.cond.segmentSize = st.Cluster, st.BrokerName, store.SegmentSize()
	a.cond.source = control.Source{Kind: "broker", Addr: a.cfg.Master}
	if a.cfg.Master == "" {
		a.cond.source.Addr = a.cfg.MasterHA
	}
	a.cond.mu.Unlock()

	if a.cfg.Master == "" && a.cfg.MasterHA == "" {
		a.cond.set(state.Searching, fmt.Errorf("no master is known: %s", tryGiveMaster))
	} else {
		a.cond.set(state.Connecting, nil)
	}
	group, run := errgroup.WithContext(ctx)
	var waiting *promotion
	group.Go(func() error { return replica.Problem(a.cfg.Dir, store.Run(run)) })
	if a.cfg.Master != "" || a.cfg.MasterHA != "" {
		group.Go(func() error { return follower.Run(run) })
		group.Go(func() error { return config.Run(run) })
	}
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
	err = group.Wait()
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

// watchStore looks for others' writes in the replica. A broker that is started
// on it finds the lock, but only after it has recovered: it has deleted and
// rewritten files by then.
func (a *Agent) watchStore(ctx context.Context, store *replica.Store, config *metadataLoop) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
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
