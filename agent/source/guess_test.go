package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// TestTail_SizeGuessedFromACopyInTheMaking looks at the only segment while it is
// copied: a size that was guessed from half of it is not kept.
func TestTail_SizeGuessedFromACopyInTheMaking(t *testing.T) {
	t.Parallel()
	const size = 64 * wire.KiB
	full, dir := t.TempDir(), t.TempDir()
	w := forged(t, forge.Options{Dir: full, SegmentSize: size, Ahead: -1})
	starts := add(t, w, randomOf(80), 40)
	all := bytesAt(t, full, 0, size, size)
	if err := os.Mkdir(filepath.Join(dir, "commitlog"), 0o755); err != nil {
		t.Fatal(err)
	}
	copied := func(n wire.ByteSize) {
		t.Helper()
		if err := os.WriteFile(segmentFile(dir, 0), all[:n], 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	for n := 4 * wire.KiB; n <= 16*wire.KiB; n += 4 * wire.KiB { // it goes on
		copied(n)
		if ends := e.look(250 * time.Millisecond); ends != noEnds || e.src.SegmentSize() != 0 {
			t.Fatalf("a file that grows: %+v in segments of %d", ends, e.src.SegmentSize())
		}
	}
	copied(20*wire.KiB - 1) // it rests at a length that no segment has
	if ends := e.settleDown(); ends != noEnds || e.src.SegmentSize() != 0 {
		t.Errorf("half a page at the end: %+v in segments of %d", ends, e.src.SegmentSize())
	}
	e.wantProblem("source_segment_size")
	copied(20 * wire.KiB) // and at one that looks like one
	if e.settleDown(); e.src.SegmentSize() != 20*wire.KiB {
		t.Errorf("segments of %d", e.src.SegmentSize())
	}
	before := e.src.Incarnation()
	copied(size)
	if ends := e.settleDown(); ends.Confirmed != starts[39] || ends.Visible != w.End() || e.src.SegmentSize() != size {
		t.Errorf("it is whole: %+v in segments of %d", ends, e.src.SegmentSize())
	}
	if e.src.Incarnation() <= before {
		t.Errorf("incarnation %d", e.src.Incarnation())
	}
	e.wantProblem("")
}

// TestTail_AnotherSizeAfterTheLogWasReplaced puts a log in segments of another
// size into the place of one whose size was guessed, with and without being looked
// at in between.
func TestTail_AnotherSizeAfterTheLogWasReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size  wire.ByteSize
		ahead int
		seen  bool
	}{
		"larger, seen": {32 * wire.KiB, -1, true}, "larger, unseen": {32 * wire.KiB, -1, false},
		"smaller, seen": {8 * wire.KiB, -1, true}, "smaller, unseen": {8 * wire.KiB, -1, false},
		"smaller, two, unseen": {8 * wire.KiB, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Ahead: -1})
			add(t, w, randomOf(81), 3)
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			if ends := e.settleDown(); ends.Visible != w.End() {
				t.Fatalf("before: %+v", ends)
			}
			if err := os.RemoveAll(filepath.Join(dir, "commitlog")); err != nil {
				t.Fatal(err)
			}
			if c.seen {
				e.settleDown()
			}
			v := forged(t, forge.Options{Dir: dir, SegmentSize: c.size, Ahead: c.ahead})
			add(t, v, randomOf(82), 3)
			if ends := e.settleDown(); ends.Visible != v.End() || e.src.SegmentSize() != c.size || e.src.Incarnation() < 2 {
				t.Errorf("%+v in segments of %d, incarnation %d", ends, e.src.SegmentSize(), e.src.Incarnation())
			}
			e.wantProblem("")
		})
	}
}

// TestTail_CutShortIsNoOtherSize_Fault73 cuts the only segment to whole pages: its size is
// not guessed anew.
func TestTail_CutShortIsNoOtherSize_Fault73(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Ahead: -1})
	add(t, w, randomOf(83), 10)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.settleDown()
	if err := os.Truncate(segmentFile(dir, 0), 4096); err != nil {
		t.Fatal(err)
	}
	if ends := e.settleDown(); ends != noEnds || e.src.SegmentSize() != testSegment {
		t.Errorf("%+v in segments of %d", ends, e.src.SegmentSize())
	}
	e.wantProblem("source_cut_short")
}

// TestTail_LongerThanTheOthers has a segment that is too long: nothing was cut.
func TestTail_LongerThanTheOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	fillSegments(t, w, randomOf(84), testSegment, 2)
	if err := os.Truncate(segmentFile(dir, wire.PhyOffset(testSegment)), int64(testSegment)+4096); err != nil {
		t.Fatal(err)
	}
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.settleDown()
	e.wantProblem("source_segment_size")
	if text := e.told[len(e.told)-1].Error(); strings.Contains(text, "cut short") {
		t.Errorf("told as %q", text)
	}
}
