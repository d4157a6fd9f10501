package discovery

import (
	"errors"
	"testing"
)

// TestReload_KeysChangeInThreeSteps: a ring stays together while its keys change
// one agent at a time, and at the end the old key opens nothing.
func TestReload_KeysChangeInThreeSteps(t *testing.T) {
	t.Parallel()
	one := func(name string, join ...string) *node {
		opt := options(name, join...)
		opt.Keys = [][]byte{key(1)}
		return start(t, opt)
	}
	a := one("a")
	nodes := []*node{a, one("b", a.Addr()), one("c", a.Addr())}
	for _, step := range [][][]byte{{key(1), key(2)}, {key(2), key(1)}, {key(2)}} {
		for _, n := range nodes {
			if err := n.SetKeys(step); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range nodes {
			n.sees(Alive, "a", "b", "c")
		}
	}
	opt := options("new", a.Addr())
	opt.Keys = [][]byte{key(2)}
	fresh := start(t, opt)
	fresh.sees(Alive, "a", "b", "c")
	for _, n := range nodes {
		n.sees(Alive, "new")
		if got := n.keys.GetKeys(); len(got) != 1 {
			t.Errorf("%d keys are accepted", len(got))
		}
	}
	if err := a.SetKeys(nil); err == nil {
		t.Error("keys were taken away")
	}
	if err := a.SetKeys([][]byte{[]byte("short")}); err == nil {
		t.Error("a short key was taken")
	}
	bare := start(t, options("bare"))
	if err := bare.SetKeys([][]byte{key(1)}); err == nil {
		t.Error("a key was given to a ring in clear text")
	}
	if err := bare.SetKeys(nil); err != nil {
		t.Error(err)
	}
}

// TestReload_SeedsAreJoinedAtOnce: an agent that is alone joins whom it is told
// while it runs.
func TestReload_SeedsAreJoinedAtOnce(t *testing.T) {
	t.Parallel()
	a := start(t, options("a"))
	opt := options("b", "127.0.0.1:1")
	b := start(t, opt)
	if err := b.SetSeeds([]string{a.Addr()}); err != nil {
		t.Fatal(err)
	}
	b.sees(Alive, "a")
	a.sees(Alive, "b")
	var option *OptionError
	for _, seed := range []string{"not a host", "10.0.0.1"} { // the second is elsewhere, and there is no key
		if err := b.SetSeeds([]string{seed}); !errors.As(err, &option) || option.Option != "join" || option.Try == "" {
			t.Errorf("%q: %v", seed, err)
		}
	}
}

// TestCheck_LeavesThePortFree: what Check says is what New would.
func TestCheck_LeavesThePortFree(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Bind = "127.0.0.1:0"
	a := start(t, opt)
	taken := options("b")
	taken.Bind = a.Addr()
	var option *OptionError
	if err := Check(taken); !errors.As(err, &option) || option.Option != "gossip-bind" {
		t.Errorf("a port in use: %v", err)
	}
	a.leave()
	if err := Check(taken); err != nil {
		t.Errorf("a free port: %v", err)
	}
	start(t, taken).sees(Alive)
}
