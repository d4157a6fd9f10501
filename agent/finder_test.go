package agent

import (
	"errors"
	"testing"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
)

// member returns a live master of group c/b, changed by edits.
func member(node string, edits ...func(*Member)) Member {
	m := Member{Node: node, Role: string(RoleMaster), Cluster: "c", BrokerName: "b", Link: node + ":10915", Status: memberAlive}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

func status(s string) func(*Member) { return func(m *Member) { m.Status = s } }
func epoch(e int64) func(*Member)   { return func(m *Member) { m.Epoch = e } }
func broker(b string) func(*Member) { return func(m *Member) { m.BrokerName = b } }
func role(r Role) func(*Member)     { return func(m *Member) { m.Role = string(r) } }
func noLink(m *Member)              { m.Link = "" }

// TestChoose_OneLiveMasterOfTheGroup: exactly one is followed, none is searching,
// two are split_brain, and the higher epoch wins.
func TestChoose_OneLiveMasterOfTheGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		members             []Member
		cluster, brokerName string
		want                string // node to follow
		stuck               state.State
	}{
		{"nobody", nil, "c", "b", "", state.Searching},
		{"slaves and observers only", []Member{member("x", role(RoleSlave)), member("y", role(RoleObserver))}, "c", "b", "", state.Searching},
		{"the one", []Member{member("m"), member("x", role(RoleSlave))}, "c", "b", "m", ""},
		{"of another broker", []Member{member("m", broker("other"))}, "c", "b", "", state.Searching},
		{"of another cluster", []Member{member("m")}, "other", "b", "", state.Searching},
		{"any group, one there", []Member{member("m")}, "", "", "m", ""},
		{"any group, two there", []Member{member("m"), member("n", broker("other"))}, "", "", "", state.Searching},
		{"dead or gone", []Member{member("m", status("dead")), member("n", status("left"))}, "c", "b", "", state.Searching},
		{"suspect, for want of better", []Member{member("m", status(memberSuspect))}, "c", "b", "m", ""},
		{"suspect beside its successor", []Member{member("m", status(memberSuspect)), member("n")}, "c", "b", "n", ""},
		{"dead beside its successor", []Member{member("m", status("dead")), member("n")}, "c", "b", "n", ""},
		{"two of one epoch", []Member{member("m"), member("n")}, "c", "b", "", state.SplitBrain},
		{"two suspects of one epoch", []Member{member("m", status(memberSuspect)), member("n", status(memberSuspect))}, "c", "b", "", state.SplitBrain},
		{"the promoted one wins", []Member{member("m", epoch(3)), member("n", epoch(4))}, "c", "b", "n", ""},
		{"the promoted one is dead", []Member{member("m", epoch(3)), member("n", epoch(4), status("dead"))}, "c", "b", "", state.Searching},
		{"the promoted one is suspect", []Member{member("m", epoch(3)), member("n", epoch(4), status(memberSuspect))}, "c", "b", "", state.Searching},
		{"a higher epoch of another group is nothing", []Member{member("m"), member("n", epoch(4), status("dead"), broker("other"))}, "c", "b", "m", ""},
		{"two promoted", []Member{member("m", epoch(4)), member("n", epoch(4)), member("o", epoch(1))}, "c", "b", "", state.SplitBrain},
		{"not serving yet", []Member{member("m", noLink)}, "c", "b", "", state.Searching},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := choose(c.members, c.cluster, c.brokerName)
			if c.want != "" {
				if want := (link.Target{Node: c.want, Addr: c.want + ":10915"}); err != nil || got != want {
					t.Errorf("chose %v, %v, want %v", got, err, want)
				}
				return
			}
			var searching *errSearching
			switch p := state.AsProblem(err); {
			case c.stuck == state.Searching && !errors.As(err, &searching):
				t.Errorf("chose %v, %v, want to go on searching", got, err)
			case c.stuck == state.SplitBrain && (p == nil || p.State != state.SplitBrain || p.Try == ""):
				t.Errorf("chose %v, %v, want split_brain with a next step", got, err)
			}
		})
	}
}

// TestRival_HigherEpochWinsEqualOnesStop: a master serves nothing beside another
// one that was promoted, or that may be as right as itself. Gossip that only
// suspects one is no reason.
func TestRival_HigherEpochWinsEqualOnesStop(t *testing.T) {
	t.Parallel()
	self := member("m", epoch(2))
	for _, c := range []struct {
		name    string
		members []Member
		want    string // code
	}{
		{"alone", []Member{self}, ""},
		{"itself and slaves", []Member{self, member("x", role(RoleSlave), epoch(9))}, ""},
		{"an older one", []Member{self, member("n", epoch(1))}, ""},
		{"a newer one", []Member{self, member("n", epoch(3))}, "stale_epoch"},
		{"a newer one of another broker", []Member{self, member("n", epoch(3), broker("other"))}, ""},
		{"an equal one", []Member{self, member("n", epoch(2))}, "two_masters"},
		{"an equal one that is dead", []Member{self, member("n", epoch(2), status("dead"))}, ""},
		{"an equal one that is suspect", []Member{self, member("n", epoch(2), status(memberSuspect))}, ""},
		{"a newer one that is suspect", []Member{member("m", epoch(2)), member("n", epoch(3), status(memberSuspect))}, "stale_epoch"},
		{"a newer one that is dead", []Member{self, member("n", epoch(3), status("dead"))}, "stale_epoch"},
		{"a newer one before an equal one", []Member{self, member("o", epoch(2)), member("n", epoch(3))}, "stale_epoch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if p := rival(c.members, self); p != nil {
				if got = p.Code; p.State != state.SplitBrain || p.Try == "" {
					t.Errorf("%+v is not split_brain with a next step", p)
				}
			}
			if got != c.want {
				t.Errorf("code %q, want %q", got, c.want)
			}
		})
	}
}
