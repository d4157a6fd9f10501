package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// origin is where a slave's log comes from: a stock broker, or another agent.
type origin interface {
	// survey fills in what must be known before an empty replica can be laid out.
	survey(ctx context.Context, o *replica.Options) error
	// follower returns what keeps the store equal to the source.
	follower(store *replica.Store, config *metadataLoop) follower
	// collect asks for a snapshot of the config files; nil where they come by
	// themselves, or not at all.
	collect() collector
	// source says who it is.
	source() control.Source
	close()
}

// follower keeps a store equal to a source's log.
type follower interface {
	Run(ctx context.Context) error
	Received() wire.PhyOffset
	SourceEnd() wire.PhyOffset
}

// collector takes one snapshot of a source's config files.
type collector func(ctx context.Context) (metadata.Snapshot, []metadata.Missing, error)

// origin returns where the log comes from; nil where nobody was named and nobody
// can be found.
func (a *Agent) origin() origin {
	switch {
	case a.cfg.Master != "":
		return &brokerOrigin{a: a, broker: stock.NewBroker(a.cfg.Master, a.cfg.brokerOptions(0)),
			// A connection of its own: a large table must not delay the log.
			tables: stock.NewBroker(a.cfg.Master, a.cfg.brokerOptions(30*time.Second))}
	case a.cfg.MasterHA != "":
		return &brokerOrigin{a: a}
	case a.cfg.Finder != nil:
		return &agentOrigin{a: a}
	}
	return nil
}

// brokerOrigin is an unmodified broker.
type brokerOrigin struct {
	a              *Agent
	broker, tables *stock.Broker // nil where only the HA port is known
}

func (b *brokerOrigin) survey(ctx context.Context, o *replica.Options) error {
	if b.broker == nil {
		if o.SegmentSize == 0 {
			o.SegmentSize = commitlog.DefaultSegmentSize
		}
		return nil
	}
	survey, err := stock.SurveyBroker(ctx, b.broker, b.expectation(o.Cluster, o.BrokerName, o.SegmentSize))
	if err != nil {
		return err
	}
	o.SegmentSize = survey.Config.SegmentSize
	o.Cluster, o.BrokerName = survey.Config.ClusterName, survey.Config.BrokerName
	return nil
}

func (b *brokerOrigin) expectation(cluster, brokerName string, size wire.ByteSize) stock.Expectation {
	return stock.Expectation{Cluster: cluster, BrokerName: brokerName, SegmentSize: size, HAAddr: b.a.cfg.MasterHA}
}

func (b *brokerOrigin) follower(store *replica.Store, _ *metadataLoop) follower {
	st := store.State()
	return stock.NewFollower(stock.FollowerOptions{
		Limits: b.a.limits,
		Broker: b.broker, Want: b.expectation(st.Cluster, st.BrokerName, store.SegmentSize()),
		Store: store, Timing: b.a.cfg.Timing, Retention: b.a.retention(store), OnState: b.a.following, Traffic: &b.a.counts.Received,
	})
}

func (b *brokerOrigin) collect() collector {
	if b.tables == nil {
		b.a.log.Warn("no config files: only the HA port of the source is known", "try", "give --master HOST:PORT too")
		return nil
	}
	return func(ctx context.Context) (metadata.Snapshot, []metadata.Missing, error) {
		return stock.CollectMetadata(ctx, b.tables)
	}
}

func (b *brokerOrigin) source() control.Source {
	addr := b.a.cfg.Master
	if addr == "" {
		addr = b.a.cfg.MasterHA
	}
	return control.Source{Kind: "broker", Addr: addr}
}

func (b *brokerOrigin) close() {
	if b.broker != nil {
		_ = errors.Join(b.broker.Close(), b.tables.Close()) // ends of connections that were only read
	}
}

// agentOrigin is whatever master agent of the group is found.
type agentOrigin struct {
	a  *Agent
	of *link.Follower // of the present session
}

func (g *agentOrigin) survey(ctx context.Context, o *replica.Options) error {
	target, err := find(g.a.cfg.Finder, o.Cluster, o.BrokerName)
	if err != nil {
		return err
	}
	self := link.Identity{Cluster: o.Cluster, BrokerName: o.BrokerName, Node: g.a.cfg.Node, Version: g.a.cfg.Version}
	w, err := link.Survey(ctx, target.Addr, self, g.a.cfg.Ack, g.a.cfg.Security, g.a.cfg.LinkTiming)
	if err != nil {
		return err
	}
	if w.SegmentSize <= 0 {
		return fmt.Errorf("%s does not know yet how long its segments are", target.Addr)
	}
	if o.SegmentSize != 0 && o.SegmentSize != w.SegmentSize {
		return state.Problemf(state.Incompatible, "segment_size", "leave --segment-size away, or give "+w.SegmentSize.String(), nil,
			"segments have %s at %s, not %s", w.SegmentSize, target.Addr, o.SegmentSize)
	}
	o.SegmentSize, o.Cluster, o.BrokerName = w.SegmentSize, w.Cluster, w.BrokerName
	return nil
}

func (g *agentOrigin) follower(store *replica.Store, config *metadataLoop) follower {
	st, cfg := store.State(), g.a.cfg
	changed, stop := cfg.Finder.Listen()
	g.of = link.NewFollower(link.FollowerOptions{
		Security: cfg.Security, Ack: cfg.Ack, Store: store, Changed: changed, Timing: cfg.LinkTiming, Log: g.a.log,
		Limits: g.a.limits, Rewind: cfg.OnDivergence == DivergenceRewind,
		Self:   link.Identity{Cluster: st.Cluster, BrokerName: st.BrokerName, Node: cfg.Node, Version: cfg.Version},
		Target: func() (link.Target, error) { return find(cfg.Finder, st.Cluster, st.BrokerName) },
		Offer:  func(s metadata.Snapshot) error { return config.offer(g.of.Target().Node, s) }, ConfigState: config.failed,
		Retention: g.a.retention(store), OnState: g.a.following, Traffic: &g.a.counts.Received,
	})
	return &listening{Follower: g.of, stop: stop}
}

// following tells the condition how a follower fares. Nobody to follow is a state
// of its own.
func (a *Agent) following(s state.State, err error) {
	var searching *errSearching
	if errors.As(err, &searching) {
		s = state.Searching
	} else if err != nil {
		a.counts.Reconnect(err)
	}
	a.cond.set(s, err)
}

// listening is a Follower whose ear to the gossip closes with it.
type listening struct {
	*link.Follower
	stop func()
}

// Run implements follower.
func (l *listening) Run(ctx context.Context) error {
	defer l.stop()
	return l.Follower.Run(ctx)
}

func (g *agentOrigin) collect() collector { return nil }

func (g *agentOrigin) source() control.Source {
	s := control.Source{Kind: "agent"}
	if g.of != nil {
		if t := g.of.Target(); t != nil {
			s.Addr, s.Node = t.Addr, t.Node
		}
	}
	return s
}

func (g *agentOrigin) close() {}
