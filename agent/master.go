package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/agent/watch"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// DefaultLink is where a master serves its replicas unless told otherwise. Where
// nothing protects the link it is on loopback instead.
const (
	DefaultLink  = "0.0.0.0:10915"
	loopbackLink = "127.0.0.1:10915"
)

// nameWait is how long a master whose group was not named waits for its broker
// to tell it.
const nameWait = 5 * time.Second

// The names of a broker group that has none, as brokers have them.
const (
	defaultCluster    = "DefaultCluster"
	defaultBrokerName = "broker-a"
)

// master is an agent beside a broker.
type master struct {
	a         *Agent
	broker    *stock.Broker
	authority *stock.Authority
	relay     *stock.Relay // nil: none
	watcher   *watch.Watcher
	source    *source.Source
	config    *metadata.Snapshotter
	acks      *acks.Table
	server    *link.Server
	ports     *stockPorts
	epoch     int64

	cluster, brokerName string
	addr                string // of the link, as others are told
	mu                  sync.Mutex
	past                memory                        // guarded by mu
	rival               atomic.Pointer[state.Problem] // why nothing is served now
	tail                atomic.Pointer[state.Problem] // why the tail stands
}

// errRenamed ends a master whose broker has other names than it was served under.
var errRenamed = errors.New("the broker has another name")

// master is the role loop of an agent beside a broker.
func (a *Agent) master(ctx context.Context, opened func()) error {
	lock, err := replica.AcquireAgentLock(a.cfg.Dir)
	switch {
	case errors.Is(err, replica.ErrLocked):
		return replica.Problem(a.cfg.Dir, err)
	case err != nil:
		a.log.Warn("nothing is remembered over a restart: the store cannot be written to", "cause", err)
	default:
		defer lock.Release() //nolint:errcheck // the process gives it up in any case
		opened()
	}
	for {
		if err := a.serveStore(ctx); !errors.Is(err, errRenamed) {
			return err
		}
	}
}

// serveStore serves the store under the names that are known when it begins.
func (a *Agent) serveStore(ctx context.Context) error {
	m := &master{a: a, acks: acks.NewTable()}
	defer a.serving.CompareAndSwap(m, nil)
	defer m.acks.Close() // leaving the role answers everybody (I4)
	if err := m.remember(); err != nil {
		return err
	}
	var err error
	if m.ports, err = a.openStockPorts(ctx); err != nil {
		return err
	}
	defer m.ports.close()
	listener, err := a.listenLink(ctx)
	if err != nil {
		return err
	}
	if a.cfg.LinkBind == "" {
		a.tellFallback("link-bind", DefaultLink, listener)
	}
	m.broker = stock.NewBroker(a.cfg.Broker, a.cfg.brokerOptions(0))
	defer m.broker.Close()
	m.build()
	a.cond.know(func(c *condition) { c.fill = m.fill })

	group, run := errgroup.WithContext(ctx)
	group.Go(func() error { return m.authority.Run(run) })
	group.Go(func() error {
		m.tellGuarantee(run)
		return nil
	})
	group.Go(func() error { return m.watcher.Run(run) })
	group.Go(func() error { return m.source.Run(run) })
	group.Go(func() error {
		defer listener.Close()
		if err := m.introduce(run, listener); err != nil || run.Err() != nil {
			return err
		}
		return m.serve(run, listener)
	})
	err = group.Wait()
	if !errors.Is(err, errRenamed) {
		a.cond.set(state.Stopping, nil)
	}
	return err
}

// remember finds out what earlier runs knew: names, and how often this line of
// masters was promoted.
func (m *master) remember() error {
	st, err := promotedState(m.a.cfg.Dir)
	if err != nil {
		return err
	}
	m.epoch = st.Epoch
	if m.past, err = recall(m.a.cfg.Dir); err != nil {
		m.a.log.Warn("going on without it", "cause", err)
	}
	m.cluster = firstOf(m.a.cfg.Cluster, m.past.Cluster, st.Cluster)
	m.brokerName = firstOf(m.a.cfg.BrokerName, m.past.BrokerName, st.BrokerName)
	return nil
}

// listenLink opens the port that replicas dial. Without anything that protects it,
// that port is on loopback.
func (a *Agent) listenLink(ctx context.Context) (net.Listener, error) {
	bind := a.cfg.LinkBind
	switch {
	case bind != "":
		if host, _, _ := net.SplitHostPort(bind); !a.cfg.Security.Abroad() && !loopback(host) {
			return nil, &ConfigError{"link-bind", bind, "without a key anybody could read the log there", "give --key-file (haagent keygen writes one), bind to 127.0.0.1, or say --insecure"}
		}
		return listen(ctx, "link-bind", bind, "")
	case a.cfg.Security.Abroad():
		return listen(ctx, "link-bind", DefaultLink, DefaultLink)
	}
	return listen(ctx, "link-bind", loopbackLink, loopbackLink)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// promotedState returns what is known of a store that was a replica. One that was
// not promoted is no master's store.
func promotedState(dir string) (replica.State, error) {
	st, err := replica.ReadState(dir)
	switch {
	case errors.Is(err, replica.ErrNoState):
		return replica.State{}, nil
	case err != nil:
		return st, replica.Problem(dir, err)
	case !st.Promoted:
		return st, state.Problemf(state.Incompatible, "not_promoted", "haagent promote --dir "+dir+" makes it a broker's store; or give --role slave", nil,
			"%s is a replica of %s/%s and was not promoted", dir, st.Cluster, st.BrokerName)
	}
	return st, nil
}

// build makes the parts that read the store.
func (m *master) build() {
	m.ports.book = newStockBook(m.acks, func() wire.PhyOffset { return m.source.Ends().Confirmed }, m.a.log)
	cfg, log := m.a.cfg, m.a.log
	m.relay = m.newRelay()
	m.authority = stock.NewAuthority(stock.AuthorityOptions{Broker: m.broker, CommitLogDir: cfg.CommitLogDir, Timing: cfg.Timing, Relay: m.relay, Log: log})
	m.watcher = watch.New(watch.Options{CommitLogDir: cfg.CommitLogDir, ConfigDir: metadata.ConfigDir(cfg.Dir), Log: log})
	m.source = source.New(source.Options{Dir: cfg.Dir, CommitLogDir: cfg.CommitLogDir, SegmentSize: cfg.SegmentSize, Settle: cfg.TailSettle,
		Authority: m.authority, Hints: m.watcher.Segments(), Log: log, OnState: m.tailState})
	m.config = metadata.NewSnapshotter(metadata.SnapshotterOptions{Dir: cfg.Dir, End: m.end, Interval: cfg.MetadataInterval, Changed: m.watcher.Config(), Log: log,
		Ask: func(ctx context.Context, code remoting.RequestCode) (remoting.Command, error) {
			return m.broker.Raw(ctx, code, nil, nil)
		}})
}

// end is where the log ends, for a snapshot.
func (m *master) end(ctx context.Context) wire.PhyOffset {
	end, _ := m.source.Now(ctx) // the snapshot ends with ctx too
	return end
}

// introduce finds out which group this is.
func (m *master) introduce(ctx context.Context, listener net.Listener) error {
	if m.cluster == "" || m.brokerName == "" {
		if !m.askNames(ctx) {
			return nil
		}
	}
	m.a.cond.know(func(c *condition) { c.cluster, c.brokerName = m.cluster, m.brokerName })
	addr, err := m.advertised(listener.Addr())
	if err != nil {
		return err
	}
	m.addr = addr
	m.a.log.Info("replicas are served", "link", listener.Addr().String(), "advertised", addr, "security", m.a.cfg.Security.Mode().String(),
		"cluster", m.cluster, "brokerName", m.brokerName, "epoch", m.epoch)
	m.a.announce(func(self *Member) {
		self.Role, self.Cluster, self.BrokerName, self.BrokerID = string(RoleMaster), m.cluster, m.brokerName, m.a.cfg.BrokerID
		self.Link, self.Epoch = addr, m.epoch
		m.ports.announce(self)
	})
	return nil
}

// askNames waits a while for the broker to say its names. It returns false where
// ctx has ended.
func (m *master) askNames(ctx context.Context) bool {
	m.a.cond.set(state.Connecting, waiting("asking the broker at "+m.a.cfg.Broker+" for its cluster and name"))
	wait, cancel := context.WithTimeout(ctx, nameWait)
	defer cancel()
	told, stop := m.authority.Listen()
	defer stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for m.authority.Status().BrokerName == "" && wait.Err() == nil {
		select {
		case <-wait.Done():
		case <-told:
		case <-tick.C:
		}
	}
	s := m.authority.Status()
	if s.BrokerName == "" && ctx.Err() == nil {
		m.a.log.Warn("no broker has told its names; the default ones are used. Try: give --cluster and --broker-name", "broker", m.a.cfg.Broker)
	}
	m.cluster = firstOf(m.cluster, s.Cluster, defaultCluster)
	m.brokerName = firstOf(m.brokerName, s.BrokerName, defaultBrokerName)
	return ctx.Err() == nil
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// advertised is where replicas reach the listener.
func (m *master) advertised(bound net.Addr) (string, error) {
	if m.a.cfg.LinkAdvertise != "" {
		return m.a.cfg.LinkAdvertise, nil
	}
	return reachable(bound, m.a.cfg.Finder.Addr())
}

// serve lets replicas follow until ctx ends.
func (m *master) serve(ctx context.Context, listener net.Listener) error {
	m.server = link.NewServer(link.ServerOptions{
		Listener: listener, Security: m.a.cfg.Security, Source: m.source, Acks: m.acks, Config: m.config,
		Self:        link.Identity{Cluster: m.cluster, BrokerName: m.brokerName, Node: m.a.cfg.Node, Version: m.a.cfg.Version},
		Epoch:       func() int64 { return m.epoch },
		Limits:      m.a.limits,
		Compress:    m.a.cfg.Compress,
		SegmentSize: func() wire.ByteSize { return m.authority.Status().SegmentSize },
		Admit:       m.admit, Traffic: &m.a.counts.Sent, Timing: m.a.cfg.LinkTiming, Log: m.a.log,
	})
	m.a.serving.Store(m)
	group, run := errgroup.WithContext(ctx)
	group.Go(func() error { return m.server.Run(run) })
	group.Go(func() error { return m.config.Run(run) })
	group.Go(func() error { return m.ports.serve(run, m) })
	group.Go(func() error {
		m.watchRivals(run)
		return nil
	})
	group.Go(func() error { return m.watchNames(run) })
	return group.Wait()
}

// fill adds what a master knows to its status.
func (m *master) fill(s *control.Status, _ time.Time) {
	ends := m.source.Ends()
	s.Offsets = control.Offsets{Min: ends.Min, Received: ends.Visible, Written: ends.Visible, Verified: ends.Confirmed, Flushed: wire.NoOffset,
		Acked: m.acks.Rank(1), Source: max(ends.Visible, m.authority.End())}
	s.SegmentSize = max(m.source.SegmentSize(), m.authority.Status().SegmentSize)
	if size := s.SegmentSize; size > 0 && ends.Min >= 0 && ends.Visible > ends.Min {
		s.Segments = int((ends.Visible-1).SegmentBase(size).Sub(ends.Min)/size) + 1 // those that hold messages
	}
	broker := m.authority.Status()
	s.Source = control.Source{Kind: "broker", Addr: broker.Addr, Connected: broker.Mode != stock.AuthorityNone}
	if s.State == state.Serving && s.Reason == "" && broker.Mode == stock.AuthorityNone {
		s.Reason = fmt.Sprintf("no broker at %s says where its log ends: a last record counts only when the next one begins", broker.Addr)
		s.Try = "start the broker that writes to " + s.Dir + ", or give its listenPort as --broker HOST:PORT; if it is lost, promote a replica"
	}
	m.guarantee(s)
	snapshot := m.config.Status()
	s.Metadata = control.Metadata{Generation: snapshot.Generation, AgeSeconds: snapshot.Age.Seconds(), Files: metadataFiles(snapshot.Files)}
	if snapshot.Generation == 0 {
		s.Metadata.AgeSeconds = -1
	}
	if snapshot.Err != nil {
		s.Metadata.Error = snapshot.Err.Error()
	}
	if m.a.serving.Load() != m {
		return
	}
	s.Replicas = append(s.Replicas, m.ports.replicas()...)
	for _, r := range m.server.Replicas() {
		s.Replicas = append(s.Replicas, control.Replica{Node: r.Node, Kind: "agent", Addr: r.Addr, State: r.State, Acked: r.Acked, Flushed: r.Flushed,
			LagBytes: int64(r.Lag), LagSeconds: r.Behind.Seconds(), Ack: r.Ack.String()})
	}
}

// wait answers whoever waits for replicas.
func (a *Agent) wait(ctx context.Context, r control.WaitRequest) (control.WaitAnswer, error) {
	m := a.serving.Load()
	if m == nil {
		return control.WaitAnswer{Result: acks.SlaveNotAvailable, Acked: wire.NoOffset, Offset: max(r.Offset, 0), Reason: "the agent is not serving yet"}, nil
	}
	if p := m.rival.Load(); p != nil {
		return refused(r, p), nil
	}
	offset := r.Offset
	if r.Now {
		end, looked := m.source.Now(ctx)
		if p := m.tail.Load(); looked && p != nil && m.source.Ends().Min != wire.NoOffset {
			return refused(r, p), nil // messages may lie behind what can be read
		}
		if offset = max(end, 0); !looked {
			offset = wire.NoOffset // which nobody holds
		}
	}
	result := acks.PutOK
	if n := m.acks.InReach(); offset != 0 || n < r.Acks { // an empty log is held by whoever is in reach
		result = m.acks.Wait(ctx, offset, r.Acks)
	}
	if p := m.rival.Load(); p != nil { // whatever was acked meanwhile
		return refused(r, p), nil
	}
	ends := m.source.Ends()
	return control.WaitAnswer{Result: result, Offset: max(offset, 0), Acked: m.acks.Rank(r.Acks), InReach: m.acks.InReach(),
		Provisional: result != acks.PutOK && offset > ends.Confirmed && offset <= ends.Visible}, nil
}

// refused answers a wait at a master that must not serve: no replica is in reach.
func refused(r control.WaitRequest, p *state.Problem) control.WaitAnswer {
	return control.WaitAnswer{Result: acks.SlaveNotAvailable, Offset: max(r.Offset, 0), Acked: wire.NoOffset, Reason: p.Reason}
}
