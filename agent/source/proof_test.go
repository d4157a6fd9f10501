package source

import (
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// rewrite stores other records of the size of m in the place of those that start
// at the given offset.
func rewrite(t check, dir string, size wire.ByteSize, at wire.PhyOffset, m forge.Message) {
	t.Helper()
	m.StoreTimestamp += 60_000
	scribble(t, dir, at, size, forge.AppendMessage(nil, m, at))
}

// TestTail_CutBackAndGrownInTheSameSizes_I9 lets the log be cut back and grow again
// record by record, each as long as the one that was there: nothing is confirmed
// behind other bytes than those that were confirmed, without a new incarnation.
func TestTail_CutBackAndGrownInTheSameSizes_I9(t *testing.T) {
	t.Parallel()
	const size = 256 * wire.KiB
	m := whole
	m.Body = make([]byte, 1000)
	for name, c := range map[string]struct {
		cut, grown int           // records
		pause      time.Duration // from one to the next
	}{
		"fast":           {10, 12, time.Millisecond},
		"slowly":         {10, 12, 20 * time.Millisecond},
		"last but one":   {2, 3, 10 * time.Millisecond},
		"fifty":          {50, 55, time.Millisecond},
		"not to the end": {50, 30, 2 * time.Millisecond},
		"at once":        {50, 70, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: size, Ahead: -1})
			starts := make([]wire.PhyOffset, 0, 100)
			for range 100 {
				starts = append(starts, w.End())
				if _, err := w.Append(m); err != nil {
					t.Fatal(err)
				}
			}
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			confirmed := e.settleDown().Confirmed
			cut := starts[100-c.cut]
			for i := range c.grown {
				rewrite(t, dir, size, cut.Add(wire.ByteSize(i)*m.Size()), m)
				if c.pause > 0 {
					if ends := e.look(c.pause); ends.Confirmed > confirmed && e.src.Incarnation() == 1 {
						t.Fatalf("confirmed went from %d to %d over other bytes", confirmed, ends.Confirmed)
					}
				}
			}
			e.look(defaultRescan)
			if n := e.src.Incarnation(); n < 2 {
				t.Errorf("incarnation %d", n)
			}
		})
	}
}

// TestTail_OldBytesChange_I9 changes bytes that are far behind the end already.
func TestTail_OldBytesChange_I9(t *testing.T) {
	t.Parallel()
	const size = 4 * wire.MiB
	for _, age := range []time.Duration{3 * time.Second, 12 * time.Second} {
		t.Run(age.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: size, Ahead: -1})
			m := whole
			m.Body = make([]byte, 8000)
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			var ends []wire.PhyOffset
			for range 30 * 10 { // 30 s
				if _, err := w.Append(m); err != nil {
					t.Fatal(err)
				}
				ends = append(ends, w.End())
				e.look(100 * time.Millisecond)
			}
			if n := e.src.Incarnation(); n != 1 {
				t.Fatalf("nothing has changed, but this is incarnation %d", n)
			}
			from, until := ends[len(ends)-1-int(age/(100*time.Millisecond))], w.End().Add(-maxProof-m.Size())
			for at := from; at < until; at = at.Add(m.Size()) {
				rewrite(t, dir, size, at, m)
			}
			e.look(defaultRescan)
			e.look(defaultRescan)
			if n := e.src.Incarnation(); n != 2 {
				t.Errorf("the bytes from %d to %d changed, and this is incarnation %d", from, until, n)
			}
		})
	}
}

// TestTail_ProofsExpireWithTheirSegments drops the segments that proofs lie in.
func TestTail_ProofsExpireWithTheirSegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	r := randomOf(70)
	for i := range 400 {
		add(t, w, r, 1)
		e.look(50 * time.Millisecond)
		if i%30 == 29 {
			if _, err := w.DropOldest(); err != nil && w.Min() < w.End().SegmentBase(testSegment) {
				t.Fatal(err)
			}
		}
	}
	if n := e.src.Incarnation(); n != 1 {
		t.Errorf("incarnation %d", n)
	}
	e.wantProblem("")
}

// TestTail_KeepingProofsAllocatesNothing holds the proofs to the memory that they
// have.
func TestTail_KeepingProofsAllocatesNothing(t *testing.T) {
	tail, _ := idleTail(t, Options{Settle: time.Millisecond})
	now := tail.active
	for range 40 {
		now = now.Add(time.Second)
		tail.keepProof(now)
	}
	if n := testing.AllocsPerRun(100, func() { now = now.Add(time.Second); tail.keepProof(now) }); n != 0 {
		t.Errorf("a proof allocates %v times", n)
	}
}
