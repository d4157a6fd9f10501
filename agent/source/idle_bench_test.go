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

// TestTail_LooksLessTheLongerNothingComes holds the pauses between looks to what
// latency near traffic and idle processors ask for.
func TestTail_LooksLessTheLongerNothingComes(t *testing.T) {
	t.Parallel()
	tail, _ := idleTail(t, Options{Settle: time.Millisecond})
	for _, c := range []struct{ idle, want time.Duration }{
		{0, nearPoll},
		{4 * time.Millisecond, nearPoll},
		{10 * time.Millisecond, time.Millisecond},
		{100 * time.Millisecond, 5 * time.Millisecond},
		{time.Second, idlePoll},
		{time.Hour, restPoll},
	} {
		tail.naps = 0
		if got := tail.pace(tail.active.Add(c.idle)); got != c.want {
			t.Errorf("after %v the next look comes in %v, want %v", c.idle, got, c.want)
		}
	}
	for range int(nearFor/nearPoll) + 1 {
		tail.pace(tail.active)
	}
	if got := tail.pace(tail.active); got != time.Millisecond {
		t.Errorf("a clock that stands keeps it awake: %v", got)
	}
}
