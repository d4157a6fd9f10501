package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"pgregory.net/rapid"
)

// entryOf is a table's entry of a member that says that epoch.
func entryOf(t testing.TB, name string, port uint16, state memberlist.NodeStateType, epoch int64) memberlist.Node {
	t.Helper()
	meta, err := encodeMeta(Member{Role: "slave", Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	return memberlist.Node{Name: name, Addr: []byte{10, 0, 0, 1}, Port: port, State: state, Meta: meta}
}

func TestRoster_TellsWhatHasChanged(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	r := newRoster("self")
	alive := entryOf(t, "n", 1, memberlist.StateAlive, 1)
	steps := []struct {
		what   string
		table  []memberlist.Node
		status string
		since  int // the step that Since is of
		change bool
	}{
		{"it comes", []memberlist.Node{alive}, Alive, 0, true},
		{"nothing", []memberlist.Node{alive}, Alive, 0, false},
		{"oneself and the reader", []memberlist.Node{alive, {Name: "self"}, {Name: readerName}}, Alive, 0, false},
		{"it says another epoch", []memberlist.Node{entryOf(t, "n", 1, memberlist.StateAlive, 2)}, Alive, 0, true},
		{"it is suspect", []memberlist.Node{entryOf(t, "n", 1, memberlist.StateSuspect, 2)}, Suspect, 4, true},
		{"it is cleared", []memberlist.Node{entryOf(t, "n", 1, memberlist.StateAlive, 2)}, Alive, 5, true},
		{"it moves", []memberlist.Node{entryOf(t, "n", 2, memberlist.StateAlive, 2)}, Alive, 5, true},
		{"it leaves", []memberlist.Node{entryOf(t, "n", 2, memberlist.StateLeft, 2)}, Left, 7, true},
		{"it is forgotten", nil, Left, 7, false},
		{"it comes back", []memberlist.Node{alive}, Alive, 9, true},
		{"it is lost alive", nil, Dead, 10, true},
		{"its meta is garbage", []memberlist.Node{{Name: "n", Addr: alive.Addr, Port: 1, Meta: []byte{9}}}, Alive, 11, true},
		{"its meta is other garbage", []memberlist.Node{{Name: "n", Addr: alive.Addr, Port: 1, Meta: []byte{8}}}, Alive, 11, false},
	}
	for i, s := range steps {
		changes := r.apply(s.table, now.Add(time.Duration(i)*time.Second))
		if got := len(changes) == 1; got != s.change || len(changes) > 1 {
			t.Errorf("%s: changes are %+v", s.what, changes)
		}
		m := r.members["n"]
		if m.Status != s.status || !m.Since.Equal(now.Add(time.Duration(s.since)*time.Second)) {
			t.Errorf("%s: it is %s since %v", s.what, m.Status, m.Since.Sub(now))
		}
		if len(r.members) != 1 {
			t.Errorf("%s: there are %+v", s.what, r.list(Member{Node: "self"}))
		}
	}
}

// News that is older than a suspicion does not end it; the table does.
func TestRoster_NewsDoesNotEndASuspicion(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	r := newRoster("self")
	r.apply([]memberlist.Node{entryOf(t, "n", 1, memberlist.StateSuspect, 1)}, now)
	r.update([]memberlist.Node{entryOf(t, "n", 1, memberlist.StateAlive, 2), {Name: "self"}}, now)
	if m := r.members["n"]; m.Status != Suspect || m.Epoch != 2 || len(r.members) != 1 {
		t.Errorf("it is %+v", m)
	}
	r.apply([]memberlist.Node{entryOf(t, "n", 1, memberlist.StateAlive, 2)}, now)
	if m := r.members["n"]; m.Status != Alive {
		t.Errorf("it is %+v", m)
	}
}

// What is heard of joins and changes comes to the same as reading the table.
func TestRoster_NewsAndTableAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_000_000, 0)
		table := make(map[string]memberlist.Node)
		heard, read := newRoster("self"), newRoster("self")
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			var news []memberlist.Node
			for range rapid.IntRange(0, 4).Draw(rt, "news") {
				name := rapid.SampledFrom([]string{"a", "b", "c", "self"}).Draw(rt, "name")
				n := entryOf(t, name, uint16(rapid.IntRange(1, 2).Draw(rt, "port")), memberlist.StateAlive, rapid.Int64Range(0, 2).Draw(rt, "epoch"))
				table[name] = n
				news = slices.DeleteFunc(news, func(x memberlist.Node) bool { return x.Name == name })
				news = append(news, n)
			}
			all := make([]memberlist.Node, 0, len(table))
			for _, n := range table {
				all = append(all, n)
			}
			a, b := heard.update(news, now), read.apply(all, now)
			if !slices.Equal(a, b) {
				rt.Fatalf("heard %+v\nread  %+v", a, b)
			}
			if a, b := heard.list(Member{}), read.list(Member{}); !slices.Equal(a, b) {
				rt.Fatalf("heard %+v\nread  %+v", a, b)
			}
			now = now.Add(time.Second)
		}
	})
}

// The dead are listed for an hour, the latest 64 of them, and so many addresses
// are remembered, the latest.
func TestRoster_IsBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	r := newRoster("self")
	const many = maxSeen + 100
	for i := range many {
		r.apply([]memberlist.Node{entryOf(t, fmt.Sprintf("n%03d", i), uint16(i+1), memberlist.StateAlive, 0)}, now.Add(time.Duration(i)*time.Second))
	}
	last := now.Add(many * time.Second)
	r.apply(nil, last)
	if n := len(r.members); n != maxGone {
		t.Errorf("%d are listed, %d are the limit", n, maxGone)
	}
	if _, ok := r.members[fmt.Sprintf("n%03d", many-1)]; !ok {
		t.Error("the last one that went is not listed")
	}
	former := r.formerly()
	if len(former) != maxSeen || former[0].Port() != many || former[maxSeen-1].Port() != many-maxSeen+1 {
		t.Errorf("%d addresses are remembered, from %v to %v", len(former), former[0], former[len(former)-1])
	}
	r.apply(nil, last.Add(goneFor+time.Second))
	if len(r.members) != 0 {
		t.Errorf("after an hour %d are listed", len(r.members))
	}
	if !r.alone() || len(r.here()) != 0 {
		t.Error("it is not alone")
	}
	r.update([]memberlist.Node{entryOf(t, "n", 7, memberlist.StateAlive, 0)}, last)
	if at := netip.MustParseAddrPort("10.0.0.1:7"); r.alone() || !r.here()[at] {
		t.Errorf("the one that came is not here: %v", r.here())
	}
}
