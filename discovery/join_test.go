package discovery

import (
	"testing"
	"time"
)

func TestJoin_SeedsDownAtStart_Fault84(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	b := start(t, options("b", addr, "no-such-host.invalid:1"))
	stays(t, time.Second, "b works alone", func() bool { return b.status("b") == Alive && len(b.Members()) == 1 })
	opt := options("a")
	opt.Bind = addr
	a := start(t, opt)
	b.sees(Alive, "a")
	a.sees(Alive, "b")
	// One line for each kind of trouble, however often it was tried, and one that it lasts.
	eventually(t, "b says that it has joined", func() bool { return b.log.count("joined the ring") == 1 })
	if n := b.log.count("no other member answers"); n < 1 || n > 3 {
		t.Errorf("%d lines about seeds that do not answer", n)
	}
}

func TestJoin_OneselfIsNoJoin(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	opt := options("a", addr)
	opt.Bind = addr
	a := start(t, opt)
	stays(t, 500*time.Millisecond, "a is alone", func() bool { return len(a.Members()) == 1 })
	if a.log.count("joined the ring") > 0 {
		t.Error("it has joined itself")
	}
}

// Alone again, a member goes back to those that it has seen, though they are no
// seeds of its own.
func TestJoin_AloneAgainTriesFormerMembers(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	opt := options("b")
	opt.Bind = addr
	b := start(t, opt)
	a := start(t, options("a", addr)) // b has no seeds
	b.sees(Alive, "a")
	a.sees(Alive, "b")
	a.log.buf.Reset()
	aAddr := a.Addr()
	a.kill()
	b.sees(Dead, "a")
	opt = options("a")
	opt.Bind = aAddr // and neither has the new a
	a = start(t, opt)
	a.sees(Alive, "b")
	b.sees(Alive, "a")
	if b.log.count("alone") == 0 {
		t.Error("b never said that it was alone")
	}
}

// A seed that is missing is tried while others are there, so that two rings that
// came up apart become one.
func TestJoin_SplitRingsHeal(t *testing.T) {
	t.Parallel()
	meet := freeAddr(t)
	a1 := start(t, options("a1"))
	a2 := start(t, options("a2", a1.Addr(), meet))
	opt := options("b1")
	opt.Bind = meet
	a1.sees(Alive, "a2")
	a2.sees(Alive, "a1")
	b1 := start(t, opt)
	b2 := start(t, options("b2", meet))
	for _, n := range []*node{a1, a2, b1, b2} {
		n.sees(Alive, "a1", "a2", "b1", "b2")
	}
}

// A seed that comes back with its name at another port is found by those that it
// finds, and takes its own place again.
func TestJoin_SeedComesBackElsewhere(t *testing.T) {
	t.Parallel()
	seed := start(t, options("seed"))
	b := start(t, options("b", seed.Addr()))
	c := start(t, options("c", seed.Addr()))
	for _, n := range []*node{seed, b, c} {
		n.sees(Alive, "seed", "b", "c")
	}
	old := seed.Addr()
	seed.leave()
	b.sees(Left, "seed")
	c.sees(Left, "seed")
	seed = start(t, options("seed", b.Addr()))
	if seed.Addr() == old {
		t.Fatalf("it is at %s again", old)
	}
	for _, n := range []*node{seed, b, c} {
		n.sees(Alive, "seed", "b", "c")
		if m := n.member("seed"); m.Addr != seed.Addr() {
			t.Errorf("%s has the seed at %s, not %s", n.opt.Self.Node, m.Addr, seed.Addr())
		}
	}
}
