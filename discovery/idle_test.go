package discovery

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkIdle reports what share of one core a member takes of a ring in which
// nothing happens, with default timing. Run it once (-benchtime 1x).
func BenchmarkIdle(b *testing.B) {
	for _, size := range []int{3, 16} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var nodes []*node
			for i := range size {
				var seeds []string
				if i > 0 {
					seeds = []string{nodes[0].Addr()}
				}
				opt := options(fmt.Sprintf("n%d", i), seeds...)
				opt.Timing = Timing{}
				nodes = append(nodes, start(b, opt))
			}
			for _, n := range nodes {
				n.comesTo("see all", func(members []Member) bool { return alive(members, "") == size })
			}
			for b.Loop() {
				began, before := time.Now(), cpuTime(b)
				<-time.After(20 * time.Second) // what is measured is time going by
				share := (cpuTime(b) - before).Seconds() / time.Since(began).Seconds() / float64(size)
				b.ReportMetric(100*share, "%core/member")
			}
		})
	}
}

// cpuTime returns what this process has taken of all cores.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
