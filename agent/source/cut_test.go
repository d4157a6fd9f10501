package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// TestTail_CutBackAndGrownDifferently lets a recovering broker cut its log back
// and write on: by more or less than was cut, seen in between or not.
func TestTail_CutBackAndGrownDifferently(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut, grown int
		seen       bool
	}{
		"seen, grown shorter": {5, 2, true}, "seen, grown longer": {5, 20, true},
		"unseen, grown shorter": {5, 2, false}, "unseen, grown longer": {5, 20, false},
		"unseen, one record": {2, 6, false}, "seen, everything": {30, 40, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: 64 * wire.KiB})
			starts := add(t, w, randomOf(30), 30)
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			e.word.end = w.End()
			if ends := e.settleDown(); ends.Confirmed != w.End() {
				t.Fatalf("before: %+v", ends)
			}
			e.word.end = wire.NoOffset // it is down
			cut := starts[30-c.cut]
			scribble(t, dir, cut, 64*wire.KiB, make([]byte, w.End().Sub(cut)))
			if c.seen {
				if ends := e.look(10 * time.Millisecond); ends.Visible != cut || e.src.Incarnation() != 2 {
					t.Errorf("cut back to %d: %+v in incarnation %d", cut, ends, e.src.Incarnation())
				}
			}
			v := forged(t, forge.Options{Dir: dir, SegmentSize: 64 * wire.KiB})
			if v.End() != cut {
				t.Fatalf("the broker recovered %d instead of %d", v.End(), cut)
			}
			last := add(t, v, randomOf(31), c.grown)[c.grown-1]
			ends := e.settleDown()
			if ends.Confirmed != last || ends.Visible != v.End() {
				t.Errorf("the log ends at %d now: %+v", v.End(), ends)
			}
			if n := e.src.Incarnation(); n < 2 {
				t.Errorf("incarnation %d", n)
			}
			e.wantProblem("")
		})
	}
}

func TestTail_WaitsForALog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	if ends := e.settleDown(); ends != noEnds {
		t.Errorf("no directory: %+v", ends)
	}
	e.wantProblem("source_missing")
	if err := os.MkdirAll(filepath.Join(dir, "commitlog"), 0o755); err != nil {
		t.Fatal(err)
	}
	if ends := e.settleDown(); ends != noEnds || e.src.SegmentSize() != 0 {
		t.Errorf("an empty directory: %+v", ends)
	}
	e.wantProblem("")
	// A segment is born empty.
	if err := os.WriteFile(segmentFile(dir, 0), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if ends := e.settleDown(); ends != noEnds || e.src.SegmentSize() != 0 {
		t.Errorf("an empty segment: %+v", ends)
	}
	if err := os.Remove(segmentFile(dir, 0)); err != nil {
		t.Fatal(err)
	}
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Start: wire.PhyOffset(2 * testSegment)})
	starts := add(t, w, randomOf(32), 2)
	// What only looks like a broker that runs is no reason to wait (70).
	for _, name := range []string{"lock", "abort"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if ends := e.settleDown(); ends.Min != wire.PhyOffset(2*testSegment) || ends.Confirmed != starts[1] || e.src.SegmentSize() != testSegment {
		t.Errorf("a log: %+v in segments of %d", ends, e.src.SegmentSize())
	}
	if e.src.Incarnation() != 1 {
		t.Errorf("incarnation %d", e.src.Incarnation())
	}
	if err := os.RemoveAll(filepath.Join(dir, "commitlog")); err != nil {
		t.Fatal(err)
	}
	if ends := e.settleDown(); ends != noEnds || e.src.Incarnation() != 2 {
		t.Errorf("the log is gone: %+v in incarnation %d", ends, e.src.Incarnation())
	}
	e.wantProblem("source_missing")
}

// TestTail_AnotherLogComesLater sees a log vanish and another one being born: the
// second one is not taken for the first.
func TestTail_AnotherLogComesLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	add(t, w, randomOf(33), 5)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.settleDown()
	if err := os.RemoveAll(filepath.Join(dir, "commitlog")); err != nil {
		t.Fatal(err)
	}
	e.settleDown()
	v := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	starts := add(t, v, randomOf(34), 50)
	if ends := e.settleDown(); ends.Confirmed != starts[49] || e.src.Incarnation() < 2 {
		t.Errorf("%+v in incarnation %d", ends, e.src.Incarnation())
	}
}

func TestTail_DirectoryThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	add(t, w, randomOf(35), 5)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	before := e.settleDown()
	log := filepath.Join(dir, "commitlog")
	if err := os.Rename(log, log+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte("a file"), 0o644); err != nil {
		t.Fatal(err)
	}
	if ends := e.settleDown(); ends != before {
		t.Errorf("nothing can be known: %+v", ends)
	}
	e.wantProblem("source_unreadable")
	if err := errors.Join(os.Remove(log), os.Rename(log+".away", log)); err != nil {
		t.Fatal(err)
	}
	if ends := e.settleDown(); ends != before || e.src.Incarnation() != 1 {
		t.Errorf("it is back: %+v in incarnation %d", ends, e.src.Incarnation())
	}
	e.wantProblem("")
}

func TestTail_WrongSegmentSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Start: wire.PhyOffset(testSegment)})
	add(t, w, randomOf(36), 5)
	for _, size := range []wire.ByteSize{testSegment / 2, testSegment * 2} {
		e := newEye(t, Options{Dir: dir, SegmentSize: size})
		if ends := e.settleDown(); ends != noEnds {
			t.Errorf("segments of %v instead of %v: %+v", size, testSegment, ends)
		}
		e.wantProblem("source_segment_size")
		if p := state.AsProblem(e.told[len(e.told)-1]); p != nil && p.State != state.Incompatible {
			t.Errorf("state %s", p.State)
		}
		e.close()
	}
}

// TestTail_ForeignFiles has things in the directory that are no segments; a broker
// that runs does not mind.
func TestTail_ForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	starts := add(t, w, randomOf(37), 5)
	if err := os.WriteFile(filepath.Join(dir, "commitlog", ".DS_Store"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", segmentFile(dir, wire.PhyOffset(9*testSegment))); err != nil {
		t.Fatal(err)
	}
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	if ends := e.settleDown(); ends.Confirmed != starts[4] {
		t.Errorf("%+v", ends)
	}
	e.wantProblem("")
}

// TestTail_DamagedHeadIsTold damages the head of a record in the middle of the
// last segment, where nothing but a search can tell that more lies behind it.
func TestTail_DamagedHeadIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	starts := add(t, w, randomOf(38), 9)
	scribble(t, dir, starts[5].Add(4), testSegment, []byte("what?"))
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	if ends := e.settleDown(); ends.Confirmed != starts[4] || ends.Visible != starts[5] {
		t.Errorf("damage at %d: %+v", starts[5], ends)
	}
	// Nothing proves that the record before is complete.
	e.word.end = starts[5]
	if ends := e.settleDown(); ends.Confirmed != starts[5] {
		t.Errorf("damage at %d: %+v", starts[5], ends)
	}
	e.wantProblem("source_corrupt")
}
