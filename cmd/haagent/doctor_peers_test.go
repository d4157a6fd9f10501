package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/haagent/haagent/agent/control"
)

// TestDoctor_Versions: agents of several versions are told by their names.
func TestDoctor_Versions(t *testing.T) {
	t.Parallel()
	member := func(node, version, status string) control.Member {
		return control.Member{Node: node, Version: version, Status: status}
	}
	for name, c := range map[string]struct {
		running string
		members []control.Member
		want    []string
	}{
		"nobody":        {"1.2.0", nil, nil},
		"all alike":     {"1.2.0", []control.Member{member("b", "1.2.0", "alive"), member("a", "1.2.0", "alive")}, []string{"ok versions: all agents in the gossip have one version: 1.2.0 (a, b)"}},
		"several":       {"1.2.0", []control.Member{member("a", "1.2.0", "alive"), member("b", "1.1.0", "alive"), member("c", "1.1.0", "alive")}, []string{"warn versions: agents of several versions are in the gossip: 1.1.0 (b, c), 1.2.0 (a)"}},
		"one that went": {"1.2.0", []control.Member{member("a", "1.2.0", "alive"), member("b", "1.1.0", "dead")}, []string{"ok versions: all agents in the gossip have one version: 1.2.0 (a)"}},
		"not told":      {"1.2.0", []control.Member{member("a", "", "alive")}, nil},
		"not restarted": {"1.1.0", []control.Member{member("a", "1.1.0", "alive")}, []string{"warn version: the agent that runs is version 1.1.0, and this program is 1.2.0", "ok versions: all agents in the gossip have one version: 1.1.0 (a)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &doctor{}
			d.versions(control.Status{Version: c.running, Members: c.members}, "1.2.0")
			var got []string
			for _, f := range d.findings {
				if f.Verdict != fine && f.Try == "" {
					t.Errorf("no next step: %+v", f)
				}
				got = append(got, fmt.Sprintf("%s %s: %s", f.Verdict, f.Check, f.Text))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
