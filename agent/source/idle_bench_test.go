package source

import (
	"context"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// BenchmarkTailIdlePoll measures one look at a tail where nothing comes.
func BenchmarkTailIdlePoll(b *testing.B) {
	t, _ := idleTail(b, Options{Settle: time.Millisecond})
	now := t.active.Add(time.Second)
	b.ReportAllocs()
	for b.Loop() {
		t.turn(context.Background(), now)
	}
}

// TestTail_IdlePollAllocatesNothing holds the steady path to what it may cost.
func TestTail_IdlePollAllocatesNothing(t *testing.T) {
	tail, end := idleTail(t, Options{Settle: time.Millisecond})
	if e := tail.src.Ends(); e.Settled != end || e.Visible != end {
		t.Fatalf("not idle: %+v, want all at %d", e, end)
	}
	now := tail.active.Add(time.Second)
	if n := testing.AllocsPerRun(1000, func() { tail.turn(context.Background(), now) }); n != 0 {
		t.Errorf("a look at an idle tail allocates %v times", n)
	}
}

// idleTail returns a tail that has settled behind a few records.
func idleTail(tb testing.TB, o Options) (*tail, wire.PhyOffset) {
	tb.Helper()
	o.Dir, o.Rescan = tb.TempDir(), time.Hour
	w, err := forge.Open(forge.Options{Dir: o.Dir, SegmentSize: 64 * wire.MiB})
	if err != nil {
		tb.Fatal(err)
	}
	for range 100 {
		m := forge.Message{Topic: "idle", Properties: forge.AppendProperty("", "TAGS", "a"), Body: make([]byte, 1024), QueueOffset: forge.NextQueueOffset}
		if _, err := w.Append(m); err != nil {
			tb.Fatal(err)
		}
	}
	end := w.End()
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	t := newTail(New(o))
	tb.Cleanup(t.close)
	now := time.Now()
	for range 4 {
		now = now.Add(100 * time.Millisecond)
		t.turn(context.Background(), now)
	}
	return t, end
}
