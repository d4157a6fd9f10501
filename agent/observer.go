package agent

import (
	"context"
	"slices"

	"github.com/haagent/haagent/agent/state"
)

// observer takes part in the gossip and writes nothing.
func (a *Agent) observer(ctx context.Context, _ func()) error {
	ports, err := a.openStockPorts(ctx)
	if err != nil {
		return err
	}
	defer ports.close()
	a.cond.set(state.Observing, nil)
	a.announce(func(m *Member) {
		m.Role = string(RoleObserver)
		ports.announce(m)
	})
	err = ports.observe(ctx)
	a.cond.set(state.Stopping, nil)
	return err
}

// warnOfConflicts logs each name that two live agents claim, once.
func (a *Agent) warnOfConflicts(ctx context.Context) error {
	changed, stop := a.cfg.Finder.Listen()
	defer stop()
	var known []string
	for {
		now := a.cfg.Finder.Conflicts()
		for _, name := range now {
			if !slices.Contains(known, name) {
				a.log.Error("two live agents have the same name; neither takes the other's place. Try: give one of them another --node", "node", name)
			}
		}
		known = now
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
