package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
)

// Finder finds other agents, and tells them about this one.
type Finder interface {
	// Run works until ctx ends, and then says good-bye.
	Run(ctx context.Context) error
	// Addr is the HOST:PORT that others reach this agent's Finder at.
	Addr() string
	// Members returns everybody who is known, this agent included.
	Members() []Member
	// Listen returns a channel that gets a value after Members have changed, and a
	// function that ends it.
	Listen() (changed <-chan struct{}, stop func())
	// Announce changes what the others are told of this agent.
	Announce(edit func(*Member)) error
	// Conflicts returns the names that two live agents claim.
	Conflicts() []string
	// Trouble returns why nobody is found although others answer: they have none of
	// our keys. It is nil otherwise.
	Trouble() error
}

// Member is one agent, as others know it.
type Member struct {
	Node, Addr          string
	Role                string
	Cluster, BrokerName string
	BrokerID            int64
	Link, HA, Remoting  string
	Epoch               int64
	Version             string
	Status              string // alive, suspect, dead or left
	Since               time.Time
}

// masterOf reports whether m is, or was, a master of just this group.
func (m Member) masterOf(cluster, brokerName string) bool {
	return m.Role == string(RoleMaster) && m.Cluster == cluster && m.BrokerName == brokerName
}

// The words of Member.Status that matter here.
const (
	memberAlive   = "alive"
	memberSuspect = "suspect"
)

// members returns what the status says of the others.
func members(f Finder) []control.Member {
	if f == nil {
		return []control.Member{}
	}
	list := f.Members()
	out := make([]control.Member, len(list))
	for i, m := range list {
		out[i] = control.Member{Node: m.Node, Addr: m.Addr, Role: m.Role, Cluster: m.Cluster, BrokerName: m.BrokerName, BrokerID: m.BrokerID, Status: m.Status, Version: m.Version}
	}
	return out
}

// masters returns the masters of a group that are alive, or, where none is, those
// that may be. An empty cluster or brokerName stands for any.
func masters(list []Member, cluster, brokerName string) []Member {
	var alive, suspect []Member
	for _, m := range list {
		if m.Role != string(RoleMaster) || cluster != "" && m.Cluster != cluster || brokerName != "" && m.BrokerName != brokerName {
			continue
		}
		switch m.Status {
		case memberAlive:
			alive = append(alive, m)
		case memberSuspect:
			suspect = append(suspect, m)
		}
	}
	if len(alive) > 0 {
		return alive
	}
	return suspect
}

// newest returns those of the highest epoch.
func newest(list []Member) []Member {
	var out []Member
	for _, m := range list {
		if len(out) > 0 && m.Epoch < out[0].Epoch {
			continue
		}
		if len(out) > 0 && m.Epoch > out[0].Epoch {
			out = out[:0]
		}
		out = append(out, m)
	}
	return out
}

// errSearching says that no master of the group is known.
type errSearching struct{ why string }

func (e *errSearching) Error() string { return e.why }

// find picks the one master that a slave of the group follows, or says what keeps
// it from knowing any.
func find(f Finder, cluster, brokerName string) (link.Target, error) {
	target, err := choose(f.Members(), cluster, brokerName)
	if err == nil && slices.Contains(f.Conflicts(), target.Node) {
		return link.Target{}, nameConflict(target.Node)
	}
	var searching *errSearching
	if trouble := f.Trouble(); trouble != nil && errors.As(err, &searching) {
		return target, state.Problemf(state.Unauthorized, "wrong_key", "give all agents of the group the same --key-file", trouble,
			"the agents that were named in --join have none of our keys")
	}
	return target, err
}

// choose is pick for a slave, which needs the master's link.
func choose(list []Member, cluster, brokerName string) (link.Target, error) {
	m, ok, err := pick(list, cluster, brokerName)
	switch {
	case err != nil:
		return link.Target{}, err
	case !ok:
		return link.Target{}, &errSearching{fmt.Sprintf("no master of %s is known", group(cluster, brokerName))}
	case m.Link == "":
		return link.Target{}, &errSearching{fmt.Sprintf("master %s tells no link address yet", m.Node)}
	}
	return link.Target{Node: m.Node, Addr: m.Link}, nil
}

// pick returns the one master that those of the group follow; ok says whether there
// is any. A master of a higher epoch that is away is waited for: whoever it replaced
// is not followed.
func pick(list []Member, cluster, brokerName string) (m Member, ok bool, err error) {
	found := newest(masters(list, cluster, brokerName))
	if err := replaced(list, found); err != nil {
		return Member{}, false, err
	}
	switch {
	case len(found) == 0:
		return Member{}, false, nil
	case len(found) > 1 && !sameGroup(found):
		return Member{}, false, &errSearching{fmt.Sprintf("masters of several groups are known (%s): give --cluster and --broker-name", names(found))}
	case len(found) > 1:
		return Member{}, false, splitBrain(found)
	}
	return found[0], true, nil
}

// replaced says which master, wherever it is now, has replaced what was found.
func replaced(list, found []Member) error {
	if len(found) == 0 {
		return nil
	}
	for _, m := range list {
		if m.masterOf(found[0].Cluster, found[0].BrokerName) && m.Epoch > found[0].Epoch {
			return &errSearching{fmt.Sprintf("%s was promoted (epoch %d) and is %s; %s (epoch %d) was replaced by it and is not followed",
				m.Node, m.Epoch, m.Status, found[0].Node, found[0].Epoch)}
		}
	}
	return nil
}

func sameGroup(list []Member) bool {
	for _, m := range list[1:] {
		if m.Cluster != list[0].Cluster || m.BrokerName != list[0].BrokerName {
			return false
		}
	}
	return true
}

func group(cluster, brokerName string) string {
	switch {
	case cluster == "" && brokerName == "":
		return "any group"
	case cluster == "":
		return brokerName
	case brokerName == "":
		return "cluster " + cluster
	}
	return cluster + "/" + brokerName
}

func names(list []Member) string {
	out := make([]string, len(list))
	for i, m := range list {
		out[i] = fmt.Sprintf("%s at %s", m.Node, m.Link)
	}
	return strings.Join(out, ", ")
}

func splitBrain(list []Member) *state.Problem {
	return state.Problemf(state.SplitBrain, "two_masters", "stop the master agent that should not be one; haagent members shows all", nil,
		"%d masters claim %s with epoch %d: %s; nothing is acked until one is left", len(list), group(list[0].Cluster, list[0].BrokerName), list[0].Epoch, names(list))
}

// rival returns why the master self must not serve: another one with a higher
// epoch, alive or not, or one with the same epoch that is alive.
func rival(list []Member, self Member) *state.Problem {
	var equal *state.Problem
	for _, m := range list {
		switch {
		case !m.masterOf(self.Cluster, self.BrokerName) || m.Node == self.Node:
		case m.Epoch > self.Epoch:
			return staleEpoch(m.Node, m.Epoch, self.Epoch)
		case m.Epoch == self.Epoch && m.Status == memberAlive && equal == nil:
			equal = splitBrain([]Member{self, m})
		}
	}
	return equal
}

func staleEpoch(node string, epoch, own int64) *state.Problem {
	return state.Problemf(state.SplitBrain, "stale_epoch", "stop this broker, and make it a replica: haagent resync --dir DIR, then --role slave. Where that promotion was a mistake and nothing was written there, remove DIR/.haagent/"+memoryName, nil,
		"%s was promoted (epoch %d) and this master has epoch %d; it serves and acks nothing", node, epoch, own)
}

func nameConflict(node string) *state.Problem {
	return state.Problemf(state.SplitBrain, "node_name_conflict", "give each agent a --node of its own (the default is made of host, --broker-name and --broker-id)", nil,
		"two live agents are called %s, and nobody can tell which of them is meant", node)
}
