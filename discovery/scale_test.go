package discovery

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"
)

// crowded gives two cores time to do what 200 hosts would do: members that do not
// get to run for seconds must not be taken for dead. That makes a death known
// after about half a minute; nothing else depends on it.
var crowded = Timing{
	ProbeInterval: 8 * time.Second, ProbeTimeout: 7 * time.Second, SuspicionMult: 1,
	GossipInterval: 500 * time.Millisecond, TCPTimeout: 30 * time.Second,
}

// followed bounds how long after it has learned of its master's death a member
// may have no master: the promise is 3 s.
const followed = 3 * time.Second

// patient bounds what a large ring waits for.
const patient = 4 * time.Minute

// A large ring converges. Its master is killed without a word, and another one
// starts at once at another address. Whoever learns that the old one is dead has
// the new one within 3 s: in fact long before, because news of a start travels
// while a death is still in doubt.
func TestScale_LargeRingFollowsTheNewMaster(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // that many heaps in one
	began := time.Now()
	master := func(name, seed string) *node {
		opt := options(name, seed)
		opt.Timing = crowded
		opt.Self.Role, opt.Self.BrokerID = "master", 0
		return start(t, opt)
	}
	opt := options("seed")
	opt.Timing = crowded
	nodes := []*node{start(t, opt)}
	old := master("master-old", nodes[0].Addr())
	for i := range crowd - 2 {
		opt := options(fmt.Sprintf("slave-%03d", i), nodes[i/16].Addr())
		opt.Timing = crowded
		nodes = append(nodes, start(t, opt))
	}
	defer func() { // all at once: good-byes take a while
		for _, x := range nodes {
			x.cancel()
		}
	}()
	for _, x := range append(nodes, old) {
		x.comesTo(fmt.Sprintf("see all %d", crowd), func(members []Member) bool { return alive(members, "") == crowd })
	}
	converged := time.Since(began)

	var wg sync.WaitGroup
	seen := make([]sights, len(nodes))
	killed := time.Now()
	old.kill()
	for i, x := range nodes {
		wg.Go(func() { seen[i] = x.watchReplacement() })
	}
	nodes = append(nodes, master("master-new", nodes[0].Addr()))
	wg.Wait()

	var met, dead, lag []time.Duration
	for i, s := range seen {
		if s.dead.IsZero() || s.followed.IsZero() {
			t.Fatalf("%s never came to have the one new master: %+v", nodes[i].opt.Self.Node, nodes[i].masters())
		}
		dead = append(dead, s.dead.Sub(killed))
		lag = append(lag, max(0, s.followed.Sub(s.dead)))
		met = append(met, s.met.Sub(killed))
	}
	t.Logf("%d members, converged %.1f s after the first start", crowd, converged.Seconds())
	t.Logf("since the kill: new master known after %v; old one known dead after %v; without a master: %v",
		spread(met), spread(dead), spread(lag))
	if worst := slices.Max(lag); worst > followed {
		t.Errorf("a member was without a master for %v after it knew of the death", worst)
	}
}

// sights is when a member first took the old master for dead, and when it first
// had the new one alive and no other.
type sights struct{ dead, met, followed time.Time }

// watchReplacement looks at each change, as an agent does, until both are seen.
func (n *node) watchReplacement() sights {
	var s sights
	changed, stop := n.Listen()
	defer stop()
	deadline := time.NewTimer(patient)
	defer deadline.Stop()
	for {
		members, now := n.Members(), time.Now()
		if s.dead.IsZero() && statusOf(members, "master-old") == Dead {
			s.dead = now
		}
		if s.met.IsZero() && present(members, "master-new") {
			s.met = now
		}
		if s.followed.IsZero() && present(members, "master-new") && live(members, "master") == 1 {
			s.followed = now
		}
		if !s.dead.IsZero() && !s.followed.IsZero() {
			return s
		}
		select {
		case <-changed:
		case <-deadline.C:
			return s
		}
	}
}

// comesTo waits until what n sees is ok.
func (n *node) comesTo(what string, ok func([]Member) bool) {
	n.t.Helper()
	changed, stop := n.Listen()
	defer stop()
	deadline := time.NewTimer(patient)
	defer deadline.Stop()
	for !ok(n.Members()) {
		select {
		case <-changed:
		case <-deadline.C:
			n.t.Fatalf("%s did not come to %s: of %d members it sees %d alive",
				n.opt.Self.Node, what, len(n.Members()), alive(n.Members(), ""))
		}
	}
}

func (n *node) masters() []Member {
	return slices.DeleteFunc(n.Members(), func(m Member) bool { return m.Role != "master" })
}

// alive counts those that are alive, of one role or of all.
func alive(members []Member, role string) int {
	count := 0
	for _, m := range members {
		if m.Status == Alive && (role == "" || m.Role == role) {
			count++
		}
	}
	return count
}

// live counts those of a role that are not gone.
func live(members []Member, role string) int {
	count := 0
	for _, m := range members {
		if !gone(m.Status) && m.Role == role {
			count++
		}
	}
	return count
}

func present(members []Member, name string) bool {
	s := statusOf(members, name)
	return s == Alive || s == Suspect
}

func statusOf(members []Member, name string) string {
	for _, m := range members {
		if m.Node == name {
			return m.Status
		}
	}
	return ""
}

// spread tells the least, the middle and the most of some spans.
func spread(d []time.Duration) string {
	slices.Sort(d)
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%v to %v, median %v", round(d[0]), round(d[len(d)-1]), round(d[len(d)/2]))
}
