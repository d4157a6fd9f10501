package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
)

// peers asks the agent that runs with these options whom it sees. Where none runs
// there is nothing to find.
func (d *doctor) peers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client := control.Dial(d.cfg.HTTP)
	if d.cfg.Dir != "" {
		client = control.DialSocket(replica.AgentDir(d.cfg.Dir))
	} else if d.cfg.HTTP == "" {
		return
	}
	s, err := client.Status(ctx)
	if err != nil || d.cfg.Role == agent.RoleObserver && s.Node != d.cfg.Node {
		return
	}
	d.versions(s, version)
}

// versions compares the programs of the agents in a gossip, and ours with that of
// the agent that runs.
func (d *doctor) versions(s control.Status, own string) {
	if s.Version != own {
		d.found("version", odd, "restart the agent", "the agent that runs is version %s, and this program is %s", s.Version, own)
	}
	nodes := map[string][]string{}
	for _, m := range s.Members {
		if m.Status == "alive" && m.Version != "" {
			nodes[m.Version] = append(nodes[m.Version], m.Node)
		}
	}
	var list []string
	for _, v := range slices.Sorted(maps.Keys(nodes)) {
		list = append(list, fmt.Sprintf("%s (%s)", v, strings.Join(slices.Sorted(slices.Values(nodes[v])), ", ")))
	}
	switch len(list) {
	case 0:
	case 1:
		d.found("versions", fine, "", "all agents in the gossip have one version: %s", list[0])
	default:
		d.found("versions", odd, "install one version on all, and restart them one at a time", "agents of several versions are in the gossip: %s", strings.Join(list, ", "))
	}
}
