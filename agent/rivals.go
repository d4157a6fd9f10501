package agent

import (
	"context"
	"slices"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// watchNames ends the serving where the broker says that its names are others
// than those that were remembered or guessed, and remembers them. Names that were
// given stand.
func (m *master) watchNames(ctx context.Context) error {
	if m.a.cfg.Cluster != "" && m.a.cfg.BrokerName != "" {
		return nil
	}
	tick := time.NewTicker(nameLook)
	defer tick.Stop()
	for {
		if s := m.authority.Status(); s.BrokerName != "" {
			cluster, name := firstOf(m.a.cfg.Cluster, s.Cluster), firstOf(m.a.cfg.BrokerName, s.BrokerName)
			if past := m.known(); past.Cluster != cluster || past.BrokerName != name {
				m.learn(func(p *memory) { p.Cluster, p.BrokerName = cluster, name })
			}
			if cluster != m.cluster || name != m.brokerName {
				m.a.log.Warn("the broker has other names than it was served under; serving anew", "cluster", cluster, "brokerName", name, "before", m.cluster+"/"+m.brokerName)
				return errRenamed
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// nameLook is how often the broker's names are compared with those served under.
const nameLook = time.Second

// known returns what is remembered.
func (m *master) known() memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.past
}

// learn changes what is remembered, and writes it down.
func (m *master) learn(change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.past)
	if err := m.past.keep(m.a.cfg.Dir); err != nil {
		m.a.log.Warn("it is forgotten at the end of this process", "cause", err)
	}
}

// admit returns why no replica may follow now: another master, or a log that
// cannot be read and would look like an empty one.
func (m *master) admit() *state.Problem {
	if p := m.rival.Load(); p != nil {
		return p
	}
	if p := m.tail.Load(); p != nil && m.source.Ends().Min == wire.NoOffset {
		return p
	}
	return nil
}

// watchRivals looks for other masters of the group.
func (m *master) watchRivals(ctx context.Context) {
	changed, stop := m.a.cfg.Finder.Listen()
	defer stop()
	for {
		before, now := m.rival.Load(), m.findRival()
		m.rival.Store(now)
		if now != nil && (before == nil || before.Code != now.Code) {
			m.server.Recheck()
		}
		m.settle()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// findRival returns why this master must not serve. A higher epoch that was seen
// once is enough: whoever has it may have taken messages since.
func (m *master) findRival() *state.Problem {
	self := Member{Node: m.a.cfg.Node, Cluster: m.cluster, BrokerName: m.brokerName, Epoch: m.epoch, Role: string(RoleMaster), Link: m.addr}
	list := m.a.cfg.Finder.Members()
	for _, other := range list {
		if other.masterOf(m.cluster, m.brokerName) && other.Node != self.Node && other.Epoch > max(m.epoch, m.known().SeenEpoch) {
			m.learn(func(p *memory) {
				if other.Epoch > p.SeenEpoch { // others look too
					p.SeenEpoch, p.SeenNode = other.Epoch, other.Node
				}
			})
		}
	}
	if past := m.known(); past.SeenEpoch > m.epoch {
		return staleEpoch(past.SeenNode, past.SeenEpoch, m.epoch)
	}
	if slices.Contains(m.a.cfg.Finder.Conflicts(), self.Node) {
		return nameConflict(self.Node)
	}
	return rival(list, self)
}

// tailState is told why the tail stands.
func (m *master) tailState(err error) {
	m.tail.Store(state.AsProblem(err))
	if m.a.serving.Load() == m {
		m.server.Recheck()
		m.settle()
	}
}

// settle derives the state: a rival outweighs trouble with the files.
func (m *master) settle() {
	for _, p := range []*state.Problem{m.rival.Load(), m.tail.Load()} {
		if p != nil {
			m.a.cond.set(p.State, p)
			return
		}
	}
	m.a.cond.set(state.Serving, nil)
}
