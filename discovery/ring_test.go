package discovery

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func TestRing_ThreeFindEachOther(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][][]byte{"clear": nil, "encrypted": {key(1), key(2)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := options("a")
			opt.Keys = keys
			opt.Self = Member{
				Node: "a", Role: "master", Cluster: "c", BrokerName: "b", Link: "10.0.0.1:10915", HA: "10.0.0.1:10912",
				Remoting: "10.0.0.1:10911", Epoch: 7, Version: "1.2.3",
			}
			a := start(t, opt)
			nodes := []*node{a}
			for _, name := range []string{"b", "c"} {
				opt := options(name, a.Addr())
				opt.Keys = keys
				nodes = append(nodes, start(t, opt))
			}
			for _, n := range nodes {
				n.sees(Alive, "a", "b", "c")
			}
			want := opt.Self
			want.Addr, want.Status = a.Addr(), Alive
			for _, n := range nodes {
				got := n.member("a")
				if got.Since.IsZero() {
					t.Error("a member without a time since when it is so")
				}
				got.Since = time.Time{}
				if got != want {
					t.Errorf("%s has of a\n%+v, not\n%+v", n.opt.Self.Node, got, want)
				}
			}
		})
	}
}

func TestRing_KeysChangeOneAgentAtATime(t *testing.T) {
	t.Parallel()
	opt := options("old")
	opt.Keys = [][]byte{key(1)}
	old := start(t, opt)
	opt = options("both", old.Addr())
	opt.Keys = [][]byte{key(1), key(2)}
	both := start(t, opt)
	old.sees(Alive, "both")
	both.sees(Alive, "old")
	opt = options("new", both.Addr())
	opt.Keys = [][]byte{key(2), key(1)}
	fresh := start(t, opt)
	both.sees(Alive, "old", "new")
	fresh.sees(Alive, "both")
}

func TestRing_ChangeOfSelfIsTold(t *testing.T) {
	t.Parallel()
	a := start(t, options("a"))
	b := start(t, options("b", a.Addr()))
	b.sees(Alive, "a")
	changed, stop := b.Listen()
	defer stop()
	for len(changed) > 0 {
		<-changed
	}
	for epoch := range int64(5) {
		err := a.SetSelf(func(m *Member) {
			m.Epoch, m.Role = epoch+1, "master"
			m.Node, m.Addr, m.Status, m.Since = "other", "1.2.3.4:5", Dead, time.Time{} // not to be had
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "b has the epoch", func() bool { return b.member("a").Epoch == 5 && b.member("a").Role == "master" })
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("nobody was woken")
	}
	if m := a.member("a"); m.Status != Alive || m.Addr != a.Addr() || m.Since.IsZero() || a.status("other") != "" {
		t.Errorf("it is %+v now", m)
	}
}

// Two masters of one group are no conflict of names: both are shown, and it is
// for the agents to tell that their group is split.
func TestRing_TwoMastersOfOneGroupAreBothShown(t *testing.T) {
	t.Parallel()
	seed := start(t, options("slave"))
	for _, name := range []string{"m1", "m2"} {
		opt := options(name, seed.Addr())
		opt.Self.Role, opt.Self.BrokerID = "master", 0
		start(t, opt)
	}
	seed.sees(Alive, "m1", "m2")
	for _, name := range []string{"m1", "m2"} {
		if m := seed.member(name); m.Role != "master" || m.Cluster != "c" || m.BrokerName != "b" {
			t.Errorf("it is %+v", m)
		}
	}
	if c := seed.Conflicts(); len(c) > 0 {
		t.Errorf("conflicts of %v", c)
	}
}

func TestRing_LeaveShowsLeft(t *testing.T) {
	t.Parallel()
	a := start(t, options("a"))
	b := start(t, options("b", a.Addr()))
	c := start(t, options("c", a.Addr()))
	for _, n := range []*node{a, b, c} {
		n.sees(Alive, "a", "b", "c")
	}
	addr := b.Addr()
	b.leave()
	if got := b.status("b"); got != Left {
		t.Errorf("b is %q to itself", got)
	}
	a.sees(Left, "b")
	c.sees(Left, "b")
	if m := a.member("b"); m.Addr != addr || m.Cluster != "c" {
		t.Errorf("what is left of it is %+v", m)
	}
	if a.log.count("member dead") > 0 {
		t.Error("it was taken for dead")
	}
}

// A member that is killed is suspect, then dead. With default timing that takes
// about 3 s.
func TestRing_KillShowsSuspectThenDead(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Timing = Timing{}
	a := start(t, opt)
	opt = options("b", a.Addr())
	opt.Timing = Timing{}
	b := start(t, opt)
	a.sees(Alive, "b")
	changed, stop := a.Listen()
	defer stop()
	killed := time.Now()
	b.kill()
	var seen []string
	for deadline := time.After(patience); !slices.Contains(seen, Dead); {
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("it was %v", seen)
		}
		if s := a.status("b"); !slices.Contains(seen, s) {
			seen = append(seen, s)
		}
	}
	t.Logf("dead after %v, by way of %v", time.Since(killed), seen)
	if seen = slices.DeleteFunc(seen, func(s string) bool { return s == Alive }); !slices.Equal(seen, []string{Suspect, Dead}) {
		t.Errorf("it was %v", seen)
	}
}
