package meter_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever is observed, each bucket holds what is at most as long as its bound.
func TestHistogram_AgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(1, 1000).Draw(t, "bound"))
		}), 0, 8, rapid.ID).Draw(t, "bounds")
		slices.Sort(bounds)
		h := meter.NewHistogram(bounds...)
		spans := rapid.SliceOf(rapid.Int64Range(-5, 1100)).Draw(t, "spans")
		sum := time.Duration(0)
		for _, s := range spans {
			h.Observe(time.Duration(s))
			sum += max(0, time.Duration(s))
		}
		got := h.Read()
		if got.Count != uint64(len(spans)) || got.Sum != sum {
			t.Fatalf("%d spans of %d, told %d of %d", len(spans), sum, got.Count, got.Sum)
		}
		for i, b := range bounds {
			want := uint64(0)
			for _, s := range spans {
				if time.Duration(s) <= b {
					want++
				}
			}
			if got.Buckets[i] != want {
				t.Fatalf("%d spans up to %d, told %d", want, b, got.Buckets[i])
			}
		}
	})
}

// What is read while others observe is never out of order.
func TestHistogram_ReadWhileObserved(t *testing.T) {
	h := meter.NewHistogram(1, 2, 3)
	const each = 2000
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range each {
				h.Observe(time.Duration(i + 1))
			}
		})
	}
	for {
		d := h.Read()
		if !slices.IsSorted(append(slices.Clone(d.Buckets), d.Count)) {
			t.Fatalf("buckets %v of %d", d.Buckets, d.Count)
		}
		if d.Count == 4*each {
			break
		}
	}
	group.Wait()
}

// One offset is timed from its mark to its ack; those between are not.
func TestStopwatch_TimesOneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &meter.Traffic{Latency: meter.NewHistogram(time.Second, time.Minute)}
		w := tr.Stopwatch()
		w.Mark(wire.NoOffset, time.Now()) // nothing is known of it
		w.Mark(100, time.Now())
		<-time.After(2 * time.Second)
		w.Mark(200, time.Now())
		w.Acked(99)
		if n := tr.Latency.Read().Count; n != 0 || w.Idle() {
			t.Errorf("%d samples before the ack", n)
		}
		w.Acked(150)
		w.Acked(200)
		if d := tr.Latency.Read(); d.Count != 1 || d.Sum != 2*time.Second || !w.Idle() {
			t.Errorf("after the ack: %+v", d)
		}
	})
}

func TestNil_CountsNothing(t *testing.T) {
	var tr *meter.Traffic
	tr.Frame(10)
	tr.Damage()
	w := tr.Stopwatch()
	w.Mark(10, time.Now())
	w.Acked(10)
	var h *meter.Histogram
	h.Observe(time.Second)
	var c *meter.Counter
	c.Add(1)
	if c.Value() != 0 || h.Read().Count != 0 || w.Idle() || (&meter.Traffic{}).Stopwatch() != nil {
		t.Error("nil counts")
	}
	one := &meter.Traffic{}
	one.Frame(10)
	one.Frame(0)
	one.Damage()
	if one.Bytes.Value() != 10 || one.Frames.Value() != 1 || one.Corrupt.Value() != 1 {
		t.Errorf("%d bytes, %d frames, %d corrupt", one.Bytes.Value(), one.Frames.Value(), one.Corrupt.Value())
	}
}
