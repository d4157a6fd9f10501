package source_test

import (
	"slices"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
)

// BenchmarkTailRecord measures from the moment a broker begins to store a record
// until the record before it is known to be complete, with a producer that sends
// one message after the other.
func BenchmarkTailRecord(b *testing.B) {
	dir := b.TempDir()
	w := open(b, forge.Options{Dir: dir, SegmentSize: 256 * wire.MiB})
	s := start(b, source.Options{Dir: dir, Settle: -1})
	m := forge.Message{Topic: "bench", Body: make([]byte, 1024), QueueOffset: forge.NextQueueOffset}
	end := appendTo(b, w, m)
	s.until("the first record", func(e source.Ends) bool { return e.Visible == end })
	moved, stop := s.Listen()
	defer stop()
	took := make([]time.Duration, 0, b.N)
	b.ReportAllocs()
	for b.Loop() {
		before := end
		began := time.Now()
		end = appendTo(b, w, m)
		for s.Ends().Confirmed < before {
			<-moved
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
}
