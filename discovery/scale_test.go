package discovery

import (
	"fmt"
	"runtime/debug"
	"testing"
	"time"
)

// crowded is for so many members on one small machine: what 200 hosts would do
// is done by two cores.
var crowded = Timing{
	ProbeInterval: 15 * time.Second, ProbeTimeout: 10 * time.Second, SuspicionMult: 1,
	GossipInterval: 500 * time.Millisecond, PushPullInterval: 5 * time.Second, TCPTimeout: 30 * time.Second,
	Reclaim: time.Second, RetryMin: time.Second, SeedInterval: 10 * time.Minute, Refresh: 2 * time.Second,
}

// A ring of 200 (60 under the race detector) converges; its master dies without a word; another master comes
// at another address: everybody has exactly the new one.
func TestScale_LargeRingReplacesItsMaster(t *testing.T) {
	scale(t, crowd)
}

// BenchmarkConverge200 reports what TestScale measures.
func BenchmarkConverge200(b *testing.B) {
	for b.Loop() {
		converged, known, replaced := scale(b, crowd)
		b.ReportMetric(converged.Seconds(), "s/converged")
		b.ReportMetric(known.Seconds(), "s/death-known")
		b.ReportMetric(replaced.Seconds(), "s/master-replaced")
	}
}

// scale returns how long a ring of n took to converge, from the kill of its
// master until the first follower knew of the death, and from then until the
// last follower had the one new master.
func scale(t testing.TB, n int) (converged, known, replaced time.Duration) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // 200 heaps in one
	master := func(name string, seeds ...string) *node {
		opt := options(name, seeds...)
		opt.Timing = crowded
		opt.Self.Role, opt.Self.BrokerID = "master", 0
		return start(t, opt)
	}
	began := time.Now()
	seed := options("seed")
	seed.Timing = crowded
	nodes := []*node{start(t, seed)}
	old := master("master-old", nodes[0].Addr())
	for i := range n - 2 {
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
		within(t, 3*time.Minute, fmt.Sprintf("%s sees all %d", x.opt.Self.Node, n), func() bool { return x.alive("") == n },
			func() string { return fmt.Sprintf("it sees %d", x.alive("")) })
	}
	converged = time.Since(began)

	old.kill()
	began = time.Now()
	within(t, 3*time.Minute, "somebody knows that the master is dead", func() bool {
		for _, x := range nodes {
			if x.status("master-old") == Dead {
				return true
			}
		}
		return false
	})
	known = time.Since(began)

	began = time.Now()
	nodes = append(nodes, master("master-new", nodes[0].Addr()))
	for _, x := range nodes {
		within(t, 3*time.Minute, x.opt.Self.Node+" has the one new master", func() bool {
			return x.alive("master") == 1 && x.status("master-new") == Alive
		})
	}
	replaced = time.Since(began)
	t.Logf("%d members: converged after %v, death known after %v, master replaced %v later", n, converged, known, replaced)
	return converged, known, replaced
}

// alive returns how many members n takes for alive, of one role or of all.
func (n *node) alive(role string) int {
	count := 0
	for _, m := range n.Members() {
		if m.Status == Alive && (role == "" || m.Role == role) {
			count++
		}
	}
	return count
}
