package acks

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/haagent/haagent/wire"
)

// crowd returns a table of three nodes with n who wait for offsets that are far
// away, evenly for one to three of the nodes.
func crowd(n int) (*Table, []*Conn) {
	table := NewTable()
	var conns []*Conn
	for i := range 3 {
		conns = append(conns, table.Join(fmt.Sprint("node", i), Memory))
	}
	for i := range n {
		table.enter(1<<60+wire.PhyOffset(i), 1+i%3)
	}
	return table, conns
}

// A report allocates nothing, whether it answers somebody or not.
func TestReport_AllocatesNothing(t *testing.T) {
	_, conns := crowd(10_000)
	end := wire.PhyOffset(0)
	if got := testing.AllocsPerRun(500, func() {
		end++
		for _, c := range conns {
			c.Report(in(end))
		}
	}); got != 0 {
		t.Errorf("%v allocations with nobody to answer", got)
	}
	end = 1 << 60
	table, conns := crowd(10_000)
	if got := testing.AllocsPerRun(500, func() {
		end += 3
		for _, c := range conns {
			c.Report(in(end))
		}
	}); got != 0 {
		t.Errorf("%v allocations while answering", got)
	}
	if got := table.waiting(); got > 9000 || got == 0 {
		t.Errorf("%d are still waiting", got)
	}
}

// BenchmarkReport is one report of one of three nodes, with so many waiting.
func BenchmarkReport(b *testing.B) {
	for _, waiters := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			_, conns := crowd(waiters)
			b.ReportAllocs()
			end := wire.PhyOffset(0)
			for b.Loop() {
				end++
				conns[int(end)%3].Report(in(end))
			}
		})
	}
}

// BenchmarkWait is one wait that is answered by a report, with so many others
// waiting. It includes waking the goroutine.
func BenchmarkWait(b *testing.B) {
	for _, waiters := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			table, conns := crowd(waiters)
			b.ReportAllocs()
			asked := make(chan wire.PhyOffset)
			var reporter sync.WaitGroup
			reporter.Go(func() {
				for end := range asked {
					conns[0].Report(in(end))
				}
			})
			end := wire.PhyOffset(0)
			for b.Loop() {
				end++
				asked <- end
				if got := table.Wait(context.Background(), end, 1); got != PutOK {
					b.Fatal(got)
				}
			}
			close(asked)
			reporter.Wait()
		})
	}
}

// BenchmarkLastLeaves answers ten thousand goroutines at once.
func BenchmarkLastLeaves(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		table := NewTable()
		c := table.Join("a", Memory)
		var all sync.WaitGroup
		for i := range 10_000 {
			all.Go(func() { table.Wait(context.Background(), wire.PhyOffset(i), 1) })
		}
		for table.waiting() < 10_000 {
			runtime.Gosched()
		}
		b.StartTimer()
		c.Leave()
		all.Wait()
	}
}
