package acks

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in returns marks with both ends at o, as a node reports that syncs at once.
func in(o wire.PhyOffset) Marks { return Marks{Memory: o, Disk: o} }

// failer is what check needs of a test, of whatever kind.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// check holds the parts of a table against each other.
func check(t failer, table *Table) {
	t.Helper()
	table.mu.Lock()
	defer table.mu.Unlock()
	if len(table.conns) != len(table.order) {
		t.Fatalf("%d nodes in %d rows", len(table.conns), len(table.order))
	}
	for i, c := range table.order {
		if c.place != i || table.conns[c.node] != c {
			t.Fatalf("row %d is %s, which thinks it is row %d", i, c.node, c.place)
		}
		if i > 0 && table.order[i-1].acked() < c.acked() {
			t.Fatalf("row %d has %d, the one before it %d", i, c.acked(), table.order[i-1].acked())
		}
	}
	for n, q := range table.queues {
		if q.Len() == 0 {
			t.Fatalf("an empty queue for %d nodes is kept", n)
		}
		for i, w := range *q {
			if w.place != i || len(w.answer) != 0 || (*q)[(i-1+i%2)/2].offset > w.offset && i > 0 {
				t.Fatalf("waiter %d for %d nodes: %+v", i, n, w)
			}
			if table.rank(n) >= w.offset || table.closed || len(table.order) == 0 {
				t.Fatalf("waiter for %d by %d nodes was not answered", w.offset, n)
			}
		}
	}
}

// waiting returns how many wait.
func (t *Table) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := 0
	for _, q := range t.queues {
		sum += q.Len()
	}
	return sum
}

// ranks returns Rank(0), Rank(1), ... up to one more than there are nodes.
func ranks(t *Table) []wire.PhyOffset {
	var all []wire.PhyOffset
	for n := 0; n <= t.InReach()+1; n++ {
		all = append(all, t.Rank(n))
	}
	return all
}

func TestRank(t *testing.T) {
	t.Parallel()
	const no = wire.NoOffset
	for _, c := range []struct {
		name string
		do   func(*Table)
		want []wire.PhyOffset // by n, from 0 on
	}{
		{"nobody", func(*Table) {}, []wire.PhyOffset{no, no}},
		{"joined and silent", func(t *Table) { t.Join("a", Memory) }, []wire.PhyOffset{no, no, no}},
		{"one", func(t *Table) { t.Join("a", Memory).Report(in(10)) }, []wire.PhyOffset{no, 10, no}},
		{"offset 0 is held, and more than nothing", func(t *Table) { t.Join("a", Memory).Report(in(0)) }, []wire.PhyOffset{no, 0, no}},
		{"three, in any order", func(t *Table) {
			t.Join("a", Memory).Report(in(20))
			t.Join("b", Memory).Report(in(30))
			t.Join("c", Memory).Report(in(10))
		}, []wire.PhyOffset{no, 30, 20, 10, no}},
		{"equal acks", func(t *Table) {
			t.Join("a", Memory).Report(in(20))
			t.Join("b", Memory).Report(in(20))
		}, []wire.PhyOffset{no, 20, 20, no}},
		{"a silent one drags nobody, Fault25", func(t *Table) {
			t.Join("a", Memory).Report(in(20))
			t.Join("new", Memory)
			t.Join("b", Memory).Report(in(30))
		}, []wire.PhyOffset{no, 30, 20, no, no}},
		{"two leave together, Fault25", func(t *Table) {
			a, b, c := t.Join("a", Memory), t.Join("b", Memory), t.Join("c", Memory)
			a.Report(in(1))
			b.Report(in(2))
			c.Report(in(3))
			c.Leave()
			b.Leave()
		}, []wire.PhyOffset{no, 1, no}},
		{"levels", func(t *Table) {
			t.Join("memory", Memory).Report(Marks{Memory: 50, Disk: 10})
			t.Join("disk", Disk).Report(Marks{Memory: 90, Disk: 40})
		}, []wire.PhyOffset{no, 50, 40, no}},
		{"an unknown level claims what is synced", func(t *Table) {
			t.Join("a", 7).Report(Marks{Memory: 90, Disk: 40})
		}, []wire.PhyOffset{no, 40, no}},
		{"falling reports", func(t *Table) {
			a := t.Join("a", Memory)
			a.Report(in(20))
			a.Report(in(10))
			a.Report(in(wire.NoOffset))
		}, []wire.PhyOffset{no, 20, no}},
		{"each mark is monotonic by itself", func(t *Table) {
			a := t.Join("a", Disk)
			a.Report(Marks{Memory: 20, Disk: 5})
			a.Report(Marks{Memory: 10, Disk: 7})
		}, []wire.PhyOffset{no, 7, no}},
		{"overtaking", func(t *Table) {
			a, b, c := t.Join("a", Memory), t.Join("b", Memory), t.Join("c", Memory)
			a.Report(in(10))
			b.Report(in(20))
			c.Report(in(30))
			a.Report(in(40))
			b.Report(in(25))
			b.Report(in(35))
		}, []wire.PhyOffset{no, 40, 35, 30, no}},
		{"left twice", func(t *Table) {
			a := t.Join("a", Memory)
			t.Join("b", Memory).Report(in(5))
			a.Leave()
			a.Leave()
		}, []wire.PhyOffset{no, 5, no}},
		{"a report after leaving", func(t *Table) {
			a := t.Join("a", Memory)
			t.Join("b", Memory).Report(in(5))
			a.Leave()
			a.Report(in(100))
		}, []wire.PhyOffset{no, 5, no}},
		{"closed", func(t *Table) {
			a := t.Join("a", Memory)
			t.Join("b", Memory)
			t.Close()
			a.Report(in(100))
			a.Leave()
			t.Join("c", Memory).Report(in(5))
			t.Close()
		}, []wire.PhyOffset{no, no}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := NewTable()
			c.do(table)
			check(t, table)
			if got := ranks(table); !slices.Equal(got, c.want) {
				t.Errorf("ranks %d, want %d", got, c.want)
			}
			if got := table.Rank(-1); got != wire.NoOffset {
				t.Errorf("Rank(-1) is %d", got)
			}
		})
	}
}

// I4: a node that connects again has one row, which starts with nothing, and its
// old connection moves nothing any more, whether it reports or ends.
func TestI4_OneNodeOneAck_Fault37(t *testing.T) {
	t.Parallel()
	table := NewTable()
	other := table.Join("other", Memory)
	other.Report(in(10))
	old := table.Join("a", Memory)
	old.Report(in(100))
	anew := table.Join("a", Disk)
	check(t, table)
	if got, want := ranks(table), []wire.PhyOffset{wire.NoOffset, 10, wire.NoOffset, wire.NoOffset}; !slices.Equal(got, want) {
		t.Errorf("after joining again: ranks %d, want %d", got, want)
	}
	anew.Report(Marks{Memory: 40, Disk: 30})
	old.Report(in(1000))
	old.Leave()
	check(t, table)
	want := []Node{
		{Name: "a", Level: Disk, Marks: Marks{Memory: 40, Disk: 30}, Acked: 30},
		{Name: "other", Level: Memory, Marks: in(10), Acked: 10},
	}
	if got := table.Nodes(); !slices.Equal(got, want) {
		t.Errorf("nodes %+v, want %+v", got, want)
	}
}

func TestNodes_AreSorted(t *testing.T) {
	t.Parallel()
	table := NewTable()
	if got := table.Nodes(); len(got) != 0 {
		t.Errorf("an empty table has %+v", got)
	}
	for i, name := range []string{"m", "a", "z", "k"} {
		table.Join(name, Memory).Report(in(wire.PhyOffset(i)))
	}
	var names []string
	for _, n := range table.Nodes() {
		names = append(names, n.Name)
	}
	if want := []string{"a", "k", "m", "z"}; !slices.Equal(names, want) {
		t.Errorf("nodes %q, want %q", names, want)
	}
}

func TestLevel_String(t *testing.T) {
	t.Parallel()
	for level, want := range map[Level]string{Memory: "memory", Disk: "disk", 0: "level 0", 9: "level 9"} {
		if got := level.String(); got != want {
			t.Errorf("%d is %q, want %q", level, got, want)
		}
	}
}

// Every change leaves one value for each listener; what changes nothing leaves
// none; who stopped listening gets none.
func TestListen(t *testing.T) {
	t.Parallel()
	table := NewTable()
	slow, stopSlow := table.Listen()
	defer stopSlow()
	moved, stop := table.Listen()
	woken := func() bool {
		select {
		case <-moved:
			return true
		default:
			return false
		}
	}
	var a, old *Conn
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"join", func() { old = table.Join("a", Memory) }, true},
		{"join again", func() { a = table.Join("a", Memory) }, true},
		{"report", func() { a.Report(Marks{Memory: 5, Disk: 1}) }, true},
		{"the mark that is not acked", func() { a.Report(Marks{Memory: 5, Disk: 5}) }, true},
		{"the same again", func() { a.Report(in(5)) }, false},
		{"less", func() { a.Report(in(4)) }, false},
		{"the old connection", func() { old.Report(in(9)); old.Leave() }, false},
		{"two at once", func() { a.Report(in(6)); a.Report(in(7)) }, true},
		{"leave", func() { a.Leave() }, true},
		{"leave again", func() { a.Leave() }, false},
		{"close", func() { table.Close() }, true},
		{"close again", func() { table.Close() }, false},
	} {
		step.do()
		if got := woken(); got != step.want {
			t.Errorf("%s: woken is %v", step.name, got)
		}
		if woken() {
			t.Errorf("%s: woken twice", step.name)
		}
	}
	stop()
	stop()
	fresh := NewTable()
	gone, end := fresh.Listen()
	end()
	fresh.Join("a", Memory)
	if len(gone) != 0 {
		t.Error("woken after the end")
	}
	if len(slow) != 1 {
		t.Error("who never looks is not woken")
	}
}

// TestTable_SinceBelievesThoseWhoJoinedLater: connections up to a join are passed
// over, and count again when their nodes join again.
func TestTable_SinceBelievesThoseWhoJoinedLater(t *testing.T) {
	t.Parallel()
	table := NewTable()
	check := func(joins uint64, n, inReach int, rank wire.PhyOffset) {
		t.Helper()
		if gotReach, gotRank := table.Since(joins, n); gotReach != inReach || gotRank != rank {
			t.Errorf("since %d joins, %d nodes: %d in reach at %d, want %d at %d", joins, n, gotReach, gotRank, inReach, rank)
		}
	}
	check(0, 1, 0, wire.NoOffset)
	for i, name := range []string{"a", "b", "c"} {
		c := table.Join(name, Memory)
		c.Report(Marks{Memory: wire.PhyOffset(300 - 100*i), Disk: wire.NoOffset})
	}
	for n, rank := range []wire.PhyOffset{wire.NoOffset, 300, 200, 100, wire.NoOffset} {
		check(0, n, 3, rank)
		if got := table.Rank(n); got != rank {
			t.Errorf("rank %d is %d, want %d", n, got, rank)
		}
	}
	check(1, 1, 2, 200)
	check(2, 1, 1, 100)
	check(2, 2, 1, wire.NoOffset)
	now := table.Joins()
	check(now, 1, 0, wire.NoOffset)
	a := table.Join("a", Memory)
	check(now, 1, 1, wire.NoOffset)
	a.Report(Marks{Memory: 50, Disk: wire.NoOffset})
	check(now, 1, 1, 50)
	check(0, 1, 3, 200)
	a.Leave()
	check(now, 1, 0, wire.NoOffset)
}
