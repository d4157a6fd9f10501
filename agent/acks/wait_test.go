package acks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/wire"
)

// TestWait_AtOnce: what is known is answered without waiting, whether or not the
// context has ended; and what is not known ends with the context.
func TestWait_AtOnce(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	two := func(t *Table) {
		t.Join("a", Memory).Report(in(100))
		t.Join("b", Disk).Report(Marks{Memory: 100, Disk: 50})
	}
	for _, c := range []struct {
		name   string
		do     func(*Table)
		offset wire.PhyOffset
		n      int
		want   Result
	}{
		{"nobody in reach", func(*Table) {}, 0, 1, SlaveNotAvailable},
		{"nobody in reach, many wanted", func(*Table) {}, 0, 5, SlaveNotAvailable},
		{"nobody in reach, nobody wanted", func(*Table) {}, 1 << 40, 0, PutOK},
		{"less than nobody wanted", func(*Table) {}, 1 << 40, -3, PutOK},
		{"everybody left", func(t *Table) { t.Join("a", Memory).Leave() }, 0, 1, SlaveNotAvailable},
		{"held", two, 100, 1, PutOK},
		{"held by two", two, 50, 2, PutOK},
		{"offset 0 of an empty log", func(t *Table) { t.Join("a", Memory).Report(in(0)) }, 0, 1, PutOK},
		{"one byte more", two, 101, 1, FlushSlaveTimeout},
		{"one byte more for two", two, 51, 2, FlushSlaveTimeout},
		{"more nodes than there are", two, 0, 3, FlushSlaveTimeout},
		{"a silent node holds nothing", func(t *Table) { t.Join("a", Memory) }, 0, 1, FlushSlaveTimeout},
		{"an unknown offset", two, wire.NoOffset, 1, FlushSlaveTimeout},
		{"an unknown offset and a silent node", func(t *Table) { t.Join("a", Memory) }, wire.NoOffset, 1, FlushSlaveTimeout},
		{"an unknown offset and nobody in reach", func(*Table) {}, wire.NoOffset, 1, SlaveNotAvailable},
		{"closed", func(t *Table) { two(t); t.Close() }, 0, 1, NotMaster},
		{"closed, nobody wanted", func(t *Table) { t.Close() }, 0, 0, NotMaster},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := NewTable()
			c.do(table)
			if got := table.Wait(ended, c.offset, c.n); got != c.want {
				t.Errorf("ended context: %s, want %s", got, c.want)
			}
			if c.want != FlushSlaveTimeout {
				if got := table.Wait(context.Background(), c.offset, c.n); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
			}
			if got := table.waiting(); got != 0 {
				t.Errorf("%d are left waiting", got)
			}
		})
	}
}

// TestWait_Later: each script ends the wait of one that waits for 100 by two
// nodes, and not a step before its last one.
func TestWait_Later(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps []func(table *Table, a, b *Conn)
		want  Result
	}{
		{"reported", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(100)) },
			func(table *Table, a, b *Conn) { b.Report(in(99)) },
			func(table *Table, a, b *Conn) { b.Report(in(100)) },
		}, PutOK},
		{"synced", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(500)) },
			func(table *Table, a, b *Conn) { b.Report(Marks{Memory: 500, Disk: wire.NoOffset}) },
			func(table *Table, a, b *Conn) { b.Report(Marks{Memory: 500, Disk: 100}) },
		}, PutOK},
		{"one that holds it leaves before the other does", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(100)) },
			func(table *Table, a, b *Conn) { a.Leave() },
			func(table *Table, a, b *Conn) { b.Report(in(100)) },
			func(table *Table, a, b *Conn) { a.Report(in(200)) },
			func(table *Table, a, b *Conn) { table.Join("a", Memory).Report(in(100)) },
		}, PutOK},
		{"one with two connections is one, Fault37", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(100)) },
			func(table *Table, a, b *Conn) { table.Join("a", Memory).Report(in(100)) },
			func(table *Table, a, b *Conn) { a.Report(in(200)) },
			func(table *Table, a, b *Conn) { b.Report(in(100)) },
		}, PutOK},
		{"one that lost its log does not count with what it had", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(100)) },
			func(table *Table, a, b *Conn) { table.Join("a", Memory).Report(in(0)) },
			func(table *Table, a, b *Conn) { b.Report(in(100)) },
			func(table *Table, a, b *Conn) { table.Join("c", Memory).Report(in(100)) },
		}, PutOK},
		{"the last one leaves", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(100)) },
			func(table *Table, a, b *Conn) { a.Leave() },
			func(table *Table, a, b *Conn) { a.Leave() },
			func(table *Table, a, b *Conn) { b.Leave() },
		}, SlaveNotAvailable},
		{"the only one connects again, which is not leaving", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Leave() },
			func(table *Table, a, b *Conn) { table.Join("b", Memory) },
			func(table *Table, a, b *Conn) { b.Leave() },
			func(table *Table, a, b *Conn) { table.Close() },
		}, NotMaster},
		{"closed", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(100)) },
			func(table *Table, a, b *Conn) { table.Close() },
		}, NotMaster},
		{"the context ends", []func(table *Table, a, b *Conn){
			func(table *Table, a, b *Conn) { a.Report(in(100)) },
			func(table *Table, a, b *Conn) { b.Report(in(99)) },
			nil,
		}, FlushSlaveTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				table := NewTable()
				a, b := table.Join("a", Memory), table.Join("b", Disk)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				answer := make(chan Result, 1)
				go func() { answer <- table.Wait(ctx, 100, 2) }()
				for i, step := range c.steps {
					synctest.Wait()
					if len(answer) != 0 {
						t.Fatalf("answered %s before step %d", <-answer, i)
					}
					check(t, table)
					if step == nil {
						<-ctx.Done()
						continue
					}
					step(table, a, b)
				}
				synctest.Wait()
				select {
				case got := <-answer:
					if got != c.want {
						t.Errorf("%s, want %s", got, c.want)
					}
				default:
					t.Error("still waiting")
					cancel()
				}
				check(t, table)
				if got := table.waiting(); got != 0 {
					t.Errorf("%d are left waiting", got)
				}
			})
		})
	}
}

// An answer that comes together with the end of the context is the one that
// counts: it must neither be lost nor left behind.
func TestWait_AnswerBeatsEndOfContext(t *testing.T) {
	t.Parallel()
	table := NewTable()
	a := table.Join("a", Memory)
	w, _ := table.enter(10, 1)
	a.Report(in(10))
	if table.abandon(w, 1) {
		t.Error("taken out although it was answered")
	}
	if got := <-w.answer; got != PutOK {
		t.Error(got)
	}
	// The same by Wait: whichever of the two it sees first.
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		end := table.Rank(1) + 1
		answer := make(chan Result)
		go func() { answer <- table.Wait(ctx, end, 1) }()
		go cancel()
		a.Report(in(end))
		if got := <-answer; got != PutOK && got != FlushSlaveTimeout {
			t.Error(got)
		}
	}
	if got := table.waiting(); got != 0 {
		t.Errorf("%d are left waiting", got)
	}
}

// One hundred thousand wait for different offsets and numbers of nodes: each is
// answered by the report that fulfils it.
func TestWait_HundredThousand(t *testing.T) {
	t.Parallel()
	const waiters, nodes = 100_000, 5
	table := NewTable()
	var conns []*Conn
	for i := range nodes {
		conns = append(conns, table.Join(fmt.Sprint("node", i), Memory))
	}
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]*waiter, waiters)
	wanted := make([]int, waiters)
	for i := range all {
		wanted[i] = 1 + random.IntN(nodes)
		all[i], _ = table.enter(wire.PhyOffset(1+random.IntN(waiters)), wanted[i])
	}
	check(t, table)
	for end := wire.PhyOffset(0); end < waiters; end += 20_000 {
		for i, c := range conns {
			c.Report(in(end + wire.PhyOffset(i)*1000))
		}
	}
	check(t, table)
	for i, w := range all {
		if held := table.Rank(wanted[i]) >= w.offset; held != (len(w.answer) == 1) {
			t.Fatalf("waiter for %d by %d nodes: held %v, answers %d", w.offset, wanted[i], held, len(w.answer))
		}
	}
	if table.waiting() == 0 {
		t.Fatal("nobody is left")
	}
	for i, w := range all {
		if i%2 == 0 {
			table.abandon(w, wanted[i])
		}
	}
	check(t, table)
	for _, c := range conns {
		c.Leave()
	}
	check(t, table)
	for i, w := range all {
		if i%2 == 1 && len(w.answer) != 1 {
			t.Fatalf("waiter for %d by %d nodes has no answer", w.offset, wanted[i])
		}
	}
}

// TestRaces lets reports, new connections, leaving, cancelling and waiting meet,
// and closes the table at last. Everybody is answered, nothing is left behind.
func TestRaces(t *testing.T) {
	t.Parallel()
	for round := range 4 {
		table := NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		var nodes, waiters sync.WaitGroup
		for i := range 4 {
			nodes.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				for ctx.Err() == nil {
					c := table.Join(fmt.Sprint("node", random.IntN(3)), Memory)
					for end := range wire.PhyOffset(random.IntN(50)) {
						c.Report(in(end))
					}
					if random.IntN(2) == 0 {
						c.Leave()
					}
				}
			})
		}
		const all, cancelled = 400, 150
		var answered atomic.Int32
		results := make(chan Result, all)
		impatient, stop := context.WithCancel(t.Context())
		for i := range all {
			mine := t.Context()
			if i < cancelled {
				mine = impatient
			}
			waiters.Go(func() {
				results <- table.Wait(mine, wire.PhyOffset(i%80), 1+i%4)
				if answered.Add(1) == all/20 {
					stop()
				}
			})
		}
		for range cancelled { // the others may need the table to be closed
			<-results
		}
		table.Close()
		waiters.Wait()
		stop()
		cancel()
		nodes.Wait()
		check(t, table)
		if table.waiting() != 0 || table.InReach() != 0 {
			t.Fatalf("left behind: %d waiters, %d nodes", table.waiting(), table.InReach())
		}
	}
}

// PutOK is never said of what is not held: with nodes that only go forward, who
// was answered finds the rank at or above what was asked.
func TestI9_PutOKIsSo(t *testing.T) {
	t.Parallel()
	const end = 2000
	table := NewTable()
	var all sync.WaitGroup
	var conns []*Conn
	for i := range 3 {
		conns = append(conns, table.Join(fmt.Sprint("node", i), Memory))
	}
	for i := range end {
		offset, n := wire.PhyOffset(i+1), 1+i%3
		all.Go(func() {
			if got := table.Wait(t.Context(), offset, n); got != PutOK || table.Rank(n) < offset {
				t.Errorf("%d by %d: %s at rank %d", offset, n, got, table.Rank(n))
			}
		})
	}
	for _, c := range conns {
		all.Go(func() {
			for o := range wire.PhyOffset(end + 1) {
				c.Report(in(o))
			}
		})
	}
	all.Wait()
}
