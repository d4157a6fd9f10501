package main

import (
	"log/slog"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/discovery"
)

// connect gives the agent what it needs to talk to others: keys, the protection
// of the link, and gossip. A slave that was told whom to follow gossips only
// where it was told to.
func connect(c *cli.Context, cfg *agent.Config, log *slog.Logger) error {
	*cfg = cfg.WithDefaults()
	told := cfg.Master != "" || cfg.MasterHA != ""
	if told && c.String("join") == "" && c.String("gossip-bind") == "" || cfg.Role == "" {
		return nil
	}
	early := *cfg
	early.Finder = finder{} // nothing is opened for options that cannot be used
	if err := early.Validate(); err != nil {
		return err
	}
	var keys link.Keys
	var err error
	if path := c.String("key-file"); path != "" {
		if keys, err = link.ReadKeys(path); err != nil {
			return err
		}
	}
	if cfg.Security, err = link.NewSecurity(link.SecurityOptions{Mode: c.String("link-security"), Keys: keys,
		Cert: c.String("tls-cert"), Key: c.String("tls-key"), CA: c.String("tls-ca"), Insecure: c.Bool("insecure"), Log: log}); err != nil {
		return err
	}
	var seeds []string
	for _, seed := range strings.Split(c.String("join"), ",") {
		if seed = strings.TrimSpace(seed); seed != "" {
			seeds = append(seeds, seed)
		}
	}
	gossip, err := discovery.New(discovery.Options{
		Self: discovery.Member{Node: cfg.Node, Role: string(cfg.Role), Cluster: cfg.Cluster, BrokerName: cfg.BrokerName, BrokerID: cfg.BrokerID, Version: cfg.Version},
		Bind: c.String("gossip-bind"), Advertise: c.String("gossip-advertise"), Join: seeds, Keys: keys.Bytes(), Insecure: c.Bool("insecure"), Log: log,
	})
	if err != nil {
		return err
	}
	cfg.Finder = finder{gossip}
	return nil
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
