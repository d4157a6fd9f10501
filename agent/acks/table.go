package acks

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// Level says which of its marks a node acks.
type Level uint8

// The levels, with the numbers that they have on the link. What is neither counts
// as Disk, the weaker claim.
const (
	Memory Level = 1 // verified, in the page cache
	Disk   Level = 2 // verified and synced
)

// String returns the level as it stands on the command line and in the status.
func (l Level) String() string {
	switch l {
	case Memory:
		return "memory"
	case Disk:
		return "disk"
	}
	return "level " + strconv.Itoa(int(l))
}

// Marks are the ends of what a node holds; wire.NoOffset stands for nothing.
type Marks struct {
	Memory wire.PhyOffset // verified
	Disk   wire.PhyOffset // verified and synced
}

// nothing is what a node holds before it has reported.
var nothing = Marks{Memory: wire.NoOffset, Disk: wire.NoOffset}

// Node is one row of the table.
type Node struct {
	Name  string
	Level Level
	Marks Marks
	Acked wire.PhyOffset // the mark of its level
}

// A Table knows the nodes in reach and whoever waits for them. It is made by
// NewTable, and may be used by many goroutines at once.
type Table struct {
	mu     sync.Mutex
	closed bool
	joins  uint64           // how many there were
	conns  map[string]*Conn // in reach, by node
	order  []*Conn          // the same, the largest ack first
	queues map[int]*queue   // who waits, by the number of nodes; none is empty
	moved  wake.Listeners
}

// NewTable returns a table without nodes.
func NewTable() *Table {
	return &Table{conns: map[string]*Conn{}, queues: map[int]*queue{}}
}

// A Conn is one connection of a node. Its reports count until it leaves, until
// the node joins again, or until the table is closed.
type Conn struct {
	table *Table
	node  string
	level Level
	join  uint64 // its number among the table's joins, from 1 on
	marks Marks  // guarded by table.mu, as is place
	place int    // in table.order; -1 once it counts no more
}

func (c *Conn) acked() wire.PhyOffset {
	if c.level == Memory {
		return c.marks.Memory
	}
	return c.marks.Disk
}

// Join puts a connection of node into the table, with nothing held. An older
// connection of the same node counts no more (I4). In a closed table the new one
// counts neither.
func (t *Table) Join(node string, level Level) *Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &Conn{table: t, node: node, level: level, marks: nothing, place: -1}
	if t.closed {
		return c
	}
	if old := t.conns[node]; old != nil {
		t.drop(old)
	}
	t.joins++
	c.join = t.joins
	c.place = len(t.order)
	t.order = append(t.order, c)
	t.conns[node] = c
	t.moved.Wake()
	return c
}

// drop takes a row out, which only lowers ranks. t.mu is held.
func (t *Table) drop(c *Conn) {
	t.order = slices.Delete(t.order, c.place, c.place+1)
	for i := c.place; i < len(t.order); i++ {
		t.order[i].place = i
	}
	c.place = -1
	delete(t.conns, c.node)
}

// Report says what the node holds. Marks below those that this connection has
// reported before change nothing. It allocates nothing, and looks only at those
// waiters that it answers.
func (c *Conn) Report(m Marks) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	m = Marks{Memory: max(m.Memory, c.marks.Memory), Disk: max(m.Disk, c.marks.Disk)}
	if c.place < 0 || m == c.marks {
		return
	}
	c.marks = m
	last := c.place
	for c.place > 0 && t.order[c.place-1].acked() < c.acked() {
		other := t.order[c.place-1]
		t.order[c.place-1], t.order[c.place] = c, other
		other.place, c.place = c.place, other.place
	}
	for i := c.place; i <= last; i++ {
		t.answer(i+1, t.order[i].acked())
	}
	t.moved.Wake()
}

// Leave takes the node out of reach, unless it has joined again. Whoever waits
// for more nodes than are left goes on waiting, because they may come back;
// with the last one gone everybody is answered SlaveNotAvailable.
func (c *Conn) Leave() {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.place < 0 {
		return
	}
	t.drop(c)
	if len(t.order) == 0 {
		t.answerAll(SlaveNotAvailable)
	}
	t.moved.Wake()
}

// Close answers everybody NotMaster, now and from now on, and forgets the nodes.
// It may be called again.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	for len(t.order) > 0 {
		t.drop(t.order[len(t.order)-1])
	}
	t.answerAll(NotMaster)
	t.moved.Wake()
}

// InReach returns how many nodes are in reach.
func (t *Table) InReach() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.order)
}

// Rank returns the largest offset that n nodes in reach have acked; NoOffset
// where there are fewer, where one of them has acked nothing, and for n <= 0.
func (t *Table) Rank(n int) wire.PhyOffset {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rank(n)
}

func (t *Table) rank(n int) wire.PhyOffset {
	if n <= 0 || n > len(t.order) {
		return wire.NoOffset
	}
	return t.order[n-1].acked()
}

// Joins returns how many connections have joined so far, for Since.
func (t *Table) Joins() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joins
}

// Since is InReach and Rank together, of those connections alone that joined
// after the first so many joins. It is for who has reason to doubt what earlier
// ones have said, until they join again; 0 doubts nobody.
func (t *Table) Since(joins uint64, n int) (inReach int, rank wire.PhyOffset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rank = wire.NoOffset
	for _, c := range t.order {
		if c.join <= joins {
			continue
		}
		if inReach++; inReach == n {
			rank = c.acked()
		}
	}
	return inReach, rank
}

// Nodes returns the nodes in reach, sorted by name.
func (t *Table) Nodes() []Node {
	t.mu.Lock()
	defer t.mu.Unlock()
	nodes := make([]Node, len(t.order))
	for i, c := range t.order {
		nodes[i] = Node{Name: c.node, Level: c.level, Marks: c.marks, Acked: c.acked()}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// Listen returns a channel that gets a value after every change of the table
// (changes that come faster than they are taken are one), and a function that
// ends it.
func (t *Table) Listen() (moved <-chan struct{}, stop func()) { return t.moved.Listen() }
