package source

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// whole is a message of which every part is more than zeros.
var whole = forge.Message{
	Topic: "topic", Body: []byte("body"), Properties: forge.AppendProperty("", "KEYS", "k"),
	QueueOffset: 7, BornTimestamp: 1_700_000_000_000, StoreTimestamp: 1_700_000_000_001,
}

// TestTail_RecordThatAppearsSlowly_I1 shows a record part by part, in both orders,
// with long looks in between and nothing behind it: it is never confirmed, and not
// settled before the last part has stood for long enough.
func TestTail_RecordThatAppearsSlowly_I1(t *testing.T) {
	t.Parallel()
	const settle = time.Second
	forwards := forge.Parts()
	backwards := forge.Parts()
	slices.Reverse(backwards)
	for _, order := range [][]string{forwards, backwards} {
		for _, records := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s first, behind %d", order[0], records), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
				add(t, w, randomOf(20), records)
				start := w.End()
				e := newEye(t, Options{Dir: dir, SegmentSize: testSegment, Settle: settle})
				defer e.close()
				e.settleDown()
				watch := func(part string) {
					for range 18 { // 900 ms
						ends := e.look(50 * time.Millisecond)
						if ends.Confirmed > start || ends.Settled > start {
							t.Fatalf("%s stood for less than %v, and the ends are %+v", part, settle, ends)
						}
					}
				}
				end, err := w.AppendSlowly(whole, watch, order...)
				if err != nil {
					t.Fatal(err)
				}
				watch("the last part")
				e.look(maxRetry)
				ends := e.look(maxRetry)
				if ends.Confirmed > start || ends.Settled != end || ends.Visible != end || !e.word.wanted {
					t.Errorf("the record stood for long, and the ends are %+v", ends)
				}
				if _, err := w.Append(whole); err != nil {
					t.Fatal(err)
				}
				if ends := e.look(time.Millisecond); ends.Confirmed != end || ends.Resettled != 0 {
					t.Errorf("something follows it, and the ends are %+v", ends)
				}
			})
		}
	}
}

// TestTail_PartMissingForLong shows a record without its properties for longer
// than it takes to settle: what is not well formed does not.
func TestTail_PartMissingForLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	e := newEye(t, Options{Dir: dir, SegmentSize: testSegment, Settle: time.Second})
	defer e.close()
	record := forge.AppendMessage(nil, whole, 0)
	scribble(t, dir, 0, testSegment, record[:len(record)-5])
	if ends := e.settleDown(); ends.Confirmed != 0 || ends.Settled != 0 {
		t.Errorf("half of the properties are missing: %+v", ends)
	}
	scribble(t, dir, 0, testSegment, record)
	if ends := e.settleDown(); ends.Settled != wire.PhyOffset(len(record)) {
		t.Errorf("all is there: %+v", ends)
	}
	_ = w
}

// TestTail_SettledRecordChanges takes a settled record back when its bytes change,
// whether or not the change is seen before something follows it.
func TestTail_SettledRecordChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	e := newEye(t, Options{Dir: dir, SegmentSize: testSegment, Settle: time.Second})
	defer e.close()
	var ends Ends
	for round := range uint64(4) {
		start := w.End()
		end, err := w.Append(whole)
		if err != nil {
			t.Fatal(err)
		}
		if ends = e.settleDown(); ends.Settled != end || ends.Resettled != round {
			t.Fatalf("not settled: %+v", ends)
		}
		scribble(t, dir, end.Add(-2), testSegment, []byte("K"))
		if round%2 == 0 { // seen
			if ends = e.look(time.Second); ends.Settled != start || ends.Confirmed != start || ends.Visible != end || ends.Resettled != round+1 {
				t.Fatalf("a settled record changed: %+v", ends)
			}
			if ends = e.settleDown(); ends.Settled != end || ends.Resettled != round+1 {
				t.Fatalf("it stood again: %+v", ends)
			}
		}
		next, err := w.Append(whole)
		if err != nil {
			t.Fatal(err)
		}
		if ends = e.look(time.Millisecond); ends.Confirmed != end || ends.Resettled != round+1 {
			t.Fatalf("followed by another: %+v", ends)
		}
		e.word.end = next
		e.look(time.Millisecond)
		e.word.end = wire.NoOffset
	}
	if n := e.src.Incarnation(); n != 1 {
		t.Errorf("incarnation %d", n)
	}
}

// TestTail_FewBytes_Fault8 ends 1 to 7 bytes into a record for a while.
func TestTail_FewBytes_Fault8(t *testing.T) {
	t.Parallel()
	for n := 1; n < 8; n++ {
		dir := t.TempDir()
		w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
		add(t, w, randomOf(21), 3)
		start := w.End()
		e := newEye(t, Options{Dir: dir, SegmentSize: testSegment, Settle: -1})
		record := forge.AppendMessage(nil, whole, start)
		scribble(t, dir, start, testSegment, record[:n])
		e.settleDown()
		e.wantProblem("")
		scribble(t, dir, start, testSegment, record)
		if ends := e.look(time.Second); ends.Visible != start.Add(wire.ByteSize(len(record))) {
			t.Errorf("the rest came after %d bytes, and the ends are %+v", n, ends)
		}
		e.close()
	}
}

// TestTail_Bursts_Fault68 releases whole pages of a log now and then, the last
// one cut anywhere, as a broker with a direct-memory pool does.
func TestTail_Bursts_Fault68(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	w := forged(t, forge.Options{Dir: from, SegmentSize: 64 * wire.KiB})
	v := forged(t, forge.Options{Dir: to, SegmentSize: 64 * wire.KiB})
	starts := append(add(t, w, randomOf(22), 60), w.End())
	log := bytesAt(t, from, 0, 64*wire.KiB, wire.ByteSize(w.End()))
	e := newEye(t, Options{Dir: to, SegmentSize: 64 * wire.KiB, Settle: -1})
	defer e.close()
	r := randomOf(23)
	for released := 0; released < len(log); {
		n := min(released+1+r.IntN(6000), len(log))
		scribble(t, to, wire.PhyOffset(released), 64*wire.KiB, log[released:n])
		released = n
		ends := e.look(200 * time.Millisecond)
		i, whole := slices.BinarySearch(starts, wire.PhyOffset(released))
		if !whole {
			i--
		}
		if ends.Visible != starts[i] || ends.Confirmed > starts[i] || i > 0 && ends.Confirmed < starts[i-1] {
			t.Fatalf("%d bytes are released, whole up to %d: %+v", released, starts[i], ends)
		}
	}
	_ = v
}

// TestTail_BlankNeedsTheNextSegment ends a segment with garbage behind the BLANK,
// and waits for the next segment's first record, or the broker's word.
func TestTail_BlankNeedsTheNextSegment(t *testing.T) {
	t.Parallel()
	for _, byWord := range []bool{false, true} {
		dir := t.TempDir()
		w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Garbage: randomOf(24)})
		add(t, w, randomOf(25), 3)
		end := w.End()
		if err := w.Roll(); err != nil {
			t.Fatal(err)
		}
		e := newEye(t, Options{Dir: dir, SegmentSize: testSegment})
		if ends := e.settleDown(); ends.Confirmed != end || ends.Visible != end {
			t.Errorf("nothing is behind the BLANK at %d: %+v", end, ends)
		}
		e.wantProblem("")
		if byWord {
			e.word.end = w.End()
		} else {
			add(t, w, randomOf(26), 1)
		}
		if ends := e.look(time.Millisecond); ends.Confirmed != wire.PhyOffset(testSegment) || ends.Visible != w.End() {
			t.Errorf("the broker is in the next segment: %+v", ends)
		}
		e.close()
	}
}
