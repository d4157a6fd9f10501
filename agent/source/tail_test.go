package source_test

import (
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
)

// TestTail_NextRecordConfirms_Fault76 appends through a memory map, which makes no
// file event: Confirmed is behind the last but one record, and at the end once the
// broker says so.
func TestTail_NextRecordConfirms_Fault76(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: 64 * wire.KiB})
	word := newAuthority()
	s := start(t, source.Options{Dir: dir, Settle: -1, Authority: word})
	r := random(1)
	for range 200 {
		last, end := fill(t, w, r, 1)
		e := s.until("the record", func(e source.Ends) bool { return e.Visible == end })
		if e.Confirmed != last || e.Settled != last {
			t.Fatalf("the last record is from %d to %d and nothing follows it: %+v", last, end, e)
		}
		if !word.wanted.Load() {
			t.Fatal("nobody asks the broker")
		}
	}
	word.say(w.End())
	s.untilConfirmed(w.End())
	s.untilWell()
	if s.SegmentSize() != 64*wire.KiB {
		t.Errorf("segments of %d", s.SegmentSize())
	}
}

// TestTail_WalksToTheEndAtStart starts behind 5 segments.
func TestTail_WalksToTheEndAtStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: 64 * wire.KiB, Start: 3 << 32, Garbage: random(3)})
	last, end := fill(t, w, random(2), 300)
	s := start(t, source.Options{Dir: dir, Settle: 50 * time.Millisecond})
	e := s.until("the settled end", func(e source.Ends) bool { return e.Settled == end })
	if want := (source.Ends{Min: 3 << 32, Confirmed: last, Settled: end, Visible: end}); e != want {
		t.Errorf("%+v, want %+v", e, want)
	}
}
