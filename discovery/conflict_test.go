package discovery

import (
	"slices"
	"testing"
	"time"
)

// A member that was killed comes back at another address at once, before anybody
// knows that it was dead. Default timing; 30 s are allowed.
func TestReplace_SameNameNewAddress_Fault82(t *testing.T) {
	t.Parallel()
	slow := func(o Options) Options { o.Timing = Timing{}; return o }
	a := start(t, slow(options("a")))
	c := start(t, slow(options("c", a.Addr())))
	b := start(t, slow(options("b", a.Addr())))
	for _, n := range []*node{a, b, c} {
		n.sees(Alive, "a", "b", "c")
	}
	b.kill()
	began := time.Now()
	b = start(t, slow(options("b", a.Addr())))
	for _, n := range []*node{a, b, c} {
		eventually(t, n.opt.Self.Node+" has b at its new address", func() bool {
			m := n.member("b")
			return m.Status == Alive && m.Addr == b.Addr()
		})
		t.Logf("%s has the new b after %v", n.opt.Self.Node, time.Since(began))
	}
	for _, n := range []*node{a, b, c} {
		if got := n.Conflicts(); len(got) > 0 {
			t.Errorf("%s: a move was taken for a conflict of %v", n.opt.Self.Node, got)
		}
	}
}

// Two live members with one name: it is said, once, with both addresses, and
// neither takes the other's place. Fault 82.
func TestConflict_TwoLiveMembersOfOneName_Fault82(t *testing.T) {
	t.Parallel()
	a := start(t, options("a"))
	first := start(t, options("b", a.Addr()))
	a.sees(Alive, "b")
	second := start(t, options("b", a.Addr()))
	for _, n := range []*node{a, second} {
		eventually(t, "the conflict is listed", func() bool { return slices.Equal(n.Conflicts(), []string{"b"}) })
		eventually(t, "the conflict is logged with both addresses", func() bool {
			return n.log.count("one name", "node=b", first.Addr(), second.Addr()) == 1
		})
	}
	stays(t, time.Second, "a keeps the first b", func() bool { return a.member("b").Addr == first.Addr() })
	if n := a.log.count("one name"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}

	// When the first one goes, the second one takes the name, and all is well.
	first.leave()
	eventually(t, "a has the second b", func() bool {
		m := a.member("b")
		return m.Addr == second.Addr() && m.Status == Alive
	})
	eventually(t, "the conflict is over", func() bool { return len(a.Conflicts()) == 0 })
}
