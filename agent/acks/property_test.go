package acks

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
)

// modelNode is a node in reach, told the slow way.
type modelNode struct {
	conn  *Conn // the newest connection
	level Level
	marks Marks
}

func (n modelNode) acked() wire.PhyOffset {
	if n.level == Memory {
		return n.marks.Memory
	}
	return n.marks.Disk
}

// modelWaiter is somebody who waits; result is empty as long as they do.
type modelWaiter struct {
	waiter *waiter
	offset wire.PhyOffset
	n      int
	result Result
}

// model holds a table against lists that are gone through from end to end.
type model struct {
	table   *Table
	closed  bool
	nodes   map[string]*modelNode
	conns   []*Conn // all there ever were
	waiters []*modelWaiter
}

// TestTable_IsTheNaiveModel does anything in any order, and asks the model after
// every step who should have been answered what.
func TestTable_IsTheNaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{table: NewTable(), nodes: map[string]*modelNode{}}
		t.Repeat(map[string]func(*rapid.T){
			"join":    m.join,
			"report":  m.report,
			"report2": m.report,
			"report3": m.report,
			"leave":   m.leave,
			"wait":    m.wait,
			"wait2":   m.wait,
			"wait3":   m.wait,
			"abandon": m.abandon,
			"close":   m.close,
			"":        m.check,
		})
	})
}

func anyOffset(t *rapid.T, label string) wire.PhyOffset {
	return wire.PhyOffset(rapid.Int64Range(-2, 12).Draw(t, label))
}

func (m *model) join(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "node")
	level := rapid.SampledFrom([]Level{Memory, Disk}).Draw(t, "level")
	c := m.table.Join(name, level)
	m.conns = append(m.conns, c)
	if !m.closed {
		m.nodes[name] = &modelNode{conn: c, level: level, marks: Marks{Memory: -1, Disk: -1}}
	}
}

// conn draws a connection, which may have been superseded or have left; and its
// node where it counts.
func (m *model) conn(t *rapid.T) (*Conn, *modelNode) {
	if len(m.conns) == 0 {
		t.SkipNow()
	}
	c := rapid.SampledFrom(m.conns).Draw(t, "connection")
	if n := m.nodes[c.node]; n != nil && n.conn == c {
		return c, n
	}
	return c, nil
}

func (m *model) report(t *rapid.T) {
	c, n := m.conn(t)
	marks := Marks{Memory: anyOffset(t, "memory"), Disk: anyOffset(t, "disk")}
	c.Report(marks)
	if n != nil {
		n.marks.Memory = max(n.marks.Memory, marks.Memory)
		n.marks.Disk = max(n.marks.Disk, marks.Disk)
	}
	m.settle()
}

func (m *model) leave(t *rapid.T) {
	c, n := m.conn(t)
	c.Leave()
	if n != nil {
		delete(m.nodes, c.node)
	}
	m.settle()
}

func (m *model) close(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "really") != 0 {
		return
	}
	m.table.Close()
	m.closed = true
	clear(m.nodes)
	m.settle()
}

// answer says what somebody who waits should be told now; "" means to wait on.
func (m *model) answer(offset wire.PhyOffset, n int) Result {
	holders := 0
	for _, node := range m.nodes {
		if offset >= 0 && node.acked() >= offset {
			holders++
		}
	}
	switch {
	case m.closed:
		return NotMaster
	case n <= 0:
		return PutOK
	case len(m.nodes) == 0:
		return SlaveNotAvailable
	case holders >= n:
		return PutOK
	}
	return ""
}

// settle answers everybody who waits and can be told something.
func (m *model) settle() {
	for _, w := range m.waiters {
		if w.result == "" {
			w.result = m.answer(w.offset, w.n)
		}
	}
}

func (m *model) wait(t *rapid.T) {
	offset, n := anyOffset(t, "offset"), rapid.IntRange(-1, 5).Draw(t, "n")
	asked := offset
	if asked < 0 {
		asked = nobodyHolds // as Wait does
	}
	w, result := m.table.enter(asked, n)
	if want := m.answer(offset, n); result != want || (w == nil) != (want != "") {
		t.Fatalf("wait for %d by %d: %q, want %q", offset, n, result, want)
	}
	if w != nil {
		m.waiters = append(m.waiters, &modelWaiter{waiter: w, offset: offset, n: n})
	}
}

func (m *model) abandon(t *rapid.T) {
	if len(m.waiters) == 0 {
		t.SkipNow()
	}
	i := rapid.IntRange(0, len(m.waiters)-1).Draw(t, "waiter")
	w := m.waiters[i]
	if got := m.table.abandon(w.waiter, w.n); got != (w.result == "") {
		t.Fatalf("abandoned %v, answered %q", got, w.result)
	}
	if w.result != "" {
		if got := <-w.waiter.answer; got != w.result {
			t.Fatalf("answered %q, want %q", got, w.result)
		}
	}
	m.waiters = slices.Delete(m.waiters, i, i+1)
}

func (m *model) check(t *rapid.T) {
	var acked []wire.PhyOffset
	var nodes []Node
	for name, n := range m.nodes {
		acked = append(acked, n.acked())
		nodes = append(nodes, Node{Name: name, Level: n.level, Marks: n.marks, Acked: n.acked()})
	}
	slices.SortFunc(nodes, func(a, b Node) int { return int(a.Name[0]) - int(b.Name[0]) })
	if got := m.table.Nodes(); !slices.Equal(got, nodes) {
		t.Fatalf("nodes %+v, want %+v", got, nodes)
	}
	slices.Sort(acked)
	slices.Reverse(acked)
	for n := -1; n <= len(acked)+2; n++ {
		want := wire.NoOffset
		if n >= 1 && n <= len(acked) {
			want = acked[n-1]
		}
		if got := m.table.Rank(n); got != want {
			t.Fatalf("Rank(%d) is %d, want %d of %d", n, got, want, acked)
		}
	}
	waiting := 0
	for _, w := range m.waiters {
		if w.result == "" {
			waiting++
		}
		if answered := len(w.waiter.answer) == 1; answered != (w.result != "") {
			t.Fatalf("wait for %d by %d: answered %v, should have been told %q", w.offset, w.n, answered, w.result)
		}
	}
	if got := m.table.waiting(); got != waiting {
		t.Fatalf("%d are waiting, want %d", got, waiting)
	}
	if got := m.table.InReach(); got != len(m.nodes) {
		t.Fatalf("%d in reach, want %d", got, len(m.nodes))
	}
	check(t, m.table)
}
