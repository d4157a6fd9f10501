// Package meter counts what rooms do: how often, how many bytes, how long. It is
// plain atomics, so that whoever works pays next to nothing, and knows nothing of
// who reads: the metrics are made of it elsewhere.
//
// A nil *Counter, *Histogram, *Traffic or *Stopwatch counts nothing, so that a
// room needs no question where nobody reads.
package meter

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/wire"
)

// Counter counts up from 0. The zero value is ready.
type Counter struct{ n atomic.Uint64 }

// Add counts n more.
func (c *Counter) Add(n uint64) {
	if c != nil {
		c.n.Add(n)
	}
}

// Value returns how much was counted.
func (c *Counter) Value() uint64 {
	if c == nil {
		return 0
	}
	return c.n.Load()
}

// Traffic counts the parts of a log that travel in one direction. The zero value
// is ready; Latency may be set before it is used.
type Traffic struct {
	Bytes, Frames Counter // of the log, without heads and heartbeats
	Corrupt       Counter // frames and messages that failed their checks
	// Latency is how long it took from bytes being sent, or received, until they
	// were acked; nil: nobody asks.
	Latency *Histogram
}

// Frame counts a frame of n bytes.
func (t *Traffic) Frame(n wire.ByteSize) {
	if t != nil && n > 0 {
		t.Frames.Add(1)
		t.Bytes.Add(uint64(n))
	}
}

// Damage counts what failed its checks.
func (t *Traffic) Damage() {
	if t != nil {
		t.Corrupt.Add(1)
	}
}

// Stopwatch returns a watch for one connection, which tells Latency.
func (t *Traffic) Stopwatch() *Stopwatch {
	if t == nil || t.Latency == nil {
		return nil
	}
	w := &Stopwatch{to: t.Latency}
	w.offset.Store(int64(wire.NoOffset))
	return w
}

// Histogram counts spans by how long they are. It is made by NewHistogram.
type Histogram struct {
	bounds []time.Duration
	counts []atomic.Uint64 // one more than bounds: what is above the last one
	sum    atomic.Int64    // nanoseconds
}

// NewHistogram returns a histogram with these upper bounds, which ascend.
func NewHistogram(bounds ...time.Duration) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts one span. One below 0, from a clock that went back, is 0.
func (h *Histogram) Observe(d time.Duration) {
	if h == nil {
		return
	}
	d = max(d, 0)
	i, _ := slices.BinarySearch(h.bounds, d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Distribution is what a Histogram has counted.
type Distribution struct {
	Bounds  []time.Duration
	Buckets []uint64 // how many were at most so long, one for each of Bounds
	Count   uint64
	Sum     time.Duration
}

// Read returns what was counted so far. Buckets ascend up to Count, also while
// others observe.
func (h *Histogram) Read() Distribution {
	if h == nil {
		return Distribution{}
	}
	d := Distribution{Bounds: h.bounds, Buckets: make([]uint64, len(h.bounds)), Sum: time.Duration(h.sum.Load())}
	for i := range h.counts {
		d.Count += h.counts[i].Load()
		if i < len(d.Buckets) {
			d.Buckets[i] = d.Count
		}
	}
	return d
}

// Stopwatch takes samples of how long acks take: one offset is timed at once, and
// what is marked meanwhile is not. One goroutine marks and one acks.
type Stopwatch struct {
	to     *Histogram
	offset atomic.Int64 // PhyOffset that is waited for; NoOffset: none
	since  time.Time    // written before offset is set, read before it is cleared
}

// Idle reports whether the next Mark would count.
func (w *Stopwatch) Idle() bool { return w != nil && w.offset.Load() == int64(wire.NoOffset) }

// Mark begins to time an offset, unless one is timed already. since is when its
// bytes came or went.
func (w *Stopwatch) Mark(offset wire.PhyOffset, since time.Time) {
	if w.Idle() && offset >= 0 {
		w.since = since
		w.offset.Store(int64(offset))
	}
}

// Acked ends the timing where everything up to the offset is acked.
func (w *Stopwatch) Acked(end wire.PhyOffset) {
	if w == nil {
		return
	}
	if timed := wire.PhyOffset(w.offset.Load()); timed != wire.NoOffset && end >= timed {
		w.to.Observe(time.Since(w.since))
		w.offset.Store(int64(wire.NoOffset))
	}
}
