package source

import (
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// TestTail_OldRecordsBehindTheEnd_I1 loses a record in the middle, as a power cut
// does, and lets a broker recover before it and write on in records of the same
// size: an old record behind the newest one is not its successor.
func TestTail_OldRecordsBehindTheEnd_I1(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step   commitlog.Millis // from one record to the next
		back   commitlog.Millis // of the clock, by the power cut
		word   bool             // whether the broker tells its end
		behind int              // how many records the confirmed end may lag
	}{
		"the clock goes on":                  {1, -5000, false, 1},
		"the clock goes on, the broker says": {1, -5000, true, 0},
		"the clock goes back, it says":       {1, 5000, true, 0},
		"the clock goes back":                {1, 5000, false, 100},
		"the clock stands":                   {0, 0, false, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			clock := commitlog.Millis(1_700_000_000_000)
			next := func() forge.Message {
				clock += c.step
				m := whole
				m.StoreTimestamp = clock
				return m
			}
			w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
			var starts []wire.PhyOffset
			for range 20 {
				starts = append(starts, w.End())
				if _, err := w.Append(next()); err != nil {
					t.Fatal(err)
				}
			}
			lost := starts[10]
			scribble(t, dir, lost, testSegment, make([]byte, starts[11].Sub(lost)))
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			if ends := e.settleDown(); ends.Confirmed != starts[9] || ends.Visible != lost {
				t.Fatalf("record 10 is lost at %d: %+v", lost, ends)
			}
			v := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
			if v.End() != lost {
				t.Fatalf("the broker recovered %d instead of %d", v.End(), lost)
			}
			clock -= c.back
			written := starts[:10:10]
			for range 30 {
				start := v.End()
				written = append(written, start)
				m := next()
				end, err := v.AppendSlowly(m, func(string) {
					if ends := e.look(10 * time.Millisecond); ends.Confirmed > start || ends.Visible > start.Add(m.Size()) {
						t.Fatalf("half a record at %d: %+v", start, ends)
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				if c.word {
					e.word.end = end
				}
				ends := e.look(maxRetry)
				if at := written[max(len(written)-c.behind, 0)%len(written)]; c.behind > 0 && ends.Confirmed < at || c.behind == 0 && ends.Confirmed != end || ends.Confirmed > end {
					t.Fatalf("the log ends at %d: %+v", end, ends)
				}
				e.word.end = wire.NoOffset
			}
			// Behind the old records the log is like any other.
			if ends := e.settleDown(); ends.Confirmed < written[len(written)-1] || ends.Visible != v.End() {
				t.Errorf("the log reaches to %d: %+v", v.End(), ends)
			}
			if e.src.Incarnation() != 1 {
				t.Errorf("incarnation %d", e.src.Incarnation())
			}
		})
	}
}

// TestTail_ClockWentBackIsTold lets a broker that cannot be asked come back with
// its clock behind, and write over old records: what it writes cannot be told
// from them, and that is said. Old records alone are nothing to be told.
func TestTail_ClockWentBackIsTold(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]commitlog.Millis{"an hour": 3_600_000, "some milliseconds": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Ahead: -1})
			m := whole
			for range 20 {
				m.StoreTimestamp++
				if _, err := w.Append(m); err != nil {
					t.Fatal(err)
				}
			}
			lost := wire.PhyOffset(10 * m.Size())
			scribble(t, dir, lost, testSegment, make([]byte, m.Size()))
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			e.settleDown()
			e.wantProblem("")
			m.StoreTimestamp -= back
			for at := lost; at < lost.Add(3*m.Size()); at = at.Add(m.Size()) {
				scribble(t, dir, at, testSegment, forge.AppendMessage(nil, m, at))
			}
			if ends := e.settleDown(); ends.Visible > lost.Add(m.Size()) {
				t.Errorf("what looks old was taken for new: %+v", ends)
			}
			e.wantProblem("source_clock_back")
			e.word.end = lost.Add(3 * m.Size())
			if ends := e.settleDown(); ends.Confirmed != e.word.end {
				t.Errorf("the broker says %d: %+v", e.word.end, ends)
			}
			e.wantProblem("")
		})
	}
}
