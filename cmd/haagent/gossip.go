package main

import (
	"log/slog"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/cmd/haagent/options"
	"github.com/haagent/haagent/discovery"
)

// connect gives the agent what it needs to talk to others: keys, the protection
// of the link, and gossip. A slave that was told whom to follow gossips only
// where it was told to.
func connect(set *options.Set, cfg *agent.Config, log *slog.Logger) error {
	opt, err := protect(set, cfg, log)
	if err != nil || opt == nil {
		return err
	}
	gossip, err := discovery.New(*opt)
	if err != nil {
		return err
	}
	cfg.Finder = finder{gossip}
	return nil
}

// protect checks the config, reads the keys and certificates, and returns the
// options of the gossip, nil where there is to be none. It opens nothing.
func protect(set *options.Set, cfg *agent.Config, log *slog.Logger) (*discovery.Options, error) {
	*cfg = cfg.WithDefaults()
	if !gossips(set) || cfg.Role == "" {
		return nil, nil
	}
	early := *cfg
	early.Finder = finder{} // nothing is opened for options that cannot be used
	if err := early.Validate(); err != nil {
		return nil, err
	}
	var keys link.Keys
	var err error
	if path := set.Text("key-file"); path != "" {
		if keys, err = link.ReadKeys(path); err != nil {
			return nil, err
		}
	}
	if cfg.Security, err = link.NewSecurity(securityOptions(set, keys, log)); err != nil {
		return nil, err
	}
	return &discovery.Options{
		Self: discovery.Member{Node: cfg.Node, Role: string(cfg.Role), Cluster: cfg.Cluster, BrokerName: cfg.BrokerName, BrokerID: cfg.BrokerID, Version: cfg.Version},
		Bind: set.Text("gossip-bind"), Advertise: set.Text("gossip-advertise"), Join: set.List("join"), Keys: keys.Bytes(), Insecure: set.Switch("insecure"), Log: log,
	}, nil
}

// finder is gossip as an agent wants it.
type finder struct{ *discovery.Gossip }

// Members implements agent.Finder.
func (f finder) Members() []agent.Member {
	list := f.Gossip.Members()
	out := make([]agent.Member, len(list))
	for i, m := range list {
		out[i] = agent.Member(m)
	}
	return out
}

// Announce implements agent.Finder.
func (f finder) Announce(edit func(*agent.Member)) error {
	return f.SetSelf(func(m *discovery.Member) {
		self := agent.Member(*m)
		edit(&self)
		*m = discovery.Member(self)
	})
}
