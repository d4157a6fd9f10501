package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

const testSegment = 16 * wire.KiB

func TestTail_ServesUpToTheHole_Fault14(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	fillSegments(t, w, randomOf(1), testSegment, 3)
	if err := os.Remove(segmentFile(dir, wire.PhyOffset(2*testSegment))); err != nil {
		t.Fatal(err)
	}
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	ends := e.settleDown()
	// Nothing begins behind the BLANK of segment 1, so it is where the log ends.
	if ends.Min != 0 || ends.Confirmed <= wire.PhyOffset(testSegment) || ends.Visible > wire.PhyOffset(2*testSegment) {
		t.Errorf("with segment 2 missing: %+v", ends)
	}
	e.wantProblem("source_hole")
	p := state.AsProblem(e.told[len(e.told)-1])
	var hole *commitlog.HoleError
	if p.State != state.Gap || !errors.As(p, &hole) || hole.After != wire.PhyOffset(2*testSegment) || hole.Before != wire.PhyOffset(3*testSegment) {
		t.Errorf("the hole is told as %v", p)
	}
}

// TestTail_HoleBelow_Fault14 loses a segment that is long confirmed: the tail goes
// on, and the hole is told.
func TestTail_HoleBelow_Fault14(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	r := randomOf(2)
	fillSegments(t, w, r, testSegment, 3)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.settleDown()
	e.wantProblem("")
	if err := os.Remove(segmentFile(dir, wire.PhyOffset(testSegment))); err != nil {
		t.Fatal(err)
	}
	last := add(t, w, r, 2)[1]
	if ends := e.settleDown(); ends.Confirmed != last || e.src.Incarnation() != 1 {
		t.Errorf("%+v in incarnation %d, want confirmed %d", ends, e.src.Incarnation(), last)
	}
	e.wantProblem("source_hole")
}

func TestTail_StartsAnywhere_Fault12(t *testing.T) {
	t.Parallel()
	for _, start := range []wire.PhyOffset{0, 3145728, 4 << 30, 1 << 50} {
		dir := t.TempDir()
		w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Start: start})
		starts := add(t, w, randomOf(3), 5)
		e := newEye(t, Options{Dir: dir, Settle: -1})
		if ends := e.settleDown(); ends.Min != start || ends.Confirmed != starts[4] || ends.Visible != w.End() {
			t.Errorf("a log from %d to %d: %+v", start, w.End(), ends)
		}
		e.word.end = w.End()
		if ends := e.look(time.Millisecond); ends.Confirmed != w.End() {
			t.Errorf("the broker says %d: %+v", w.End(), ends)
		}
		e.close()
	}
}

// TestTail_ReplacedStore_Fault15 puts another store in the place of the one that
// is followed: shorter, equally long, longer, and one that starts later.
func TestTail_ReplacedStore_Fault15(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]struct {
		start   wire.PhyOffset
		records int
	}{
		"shorter": {0, 5}, "as long": {0, 40}, "longer": {0, 400}, "later": {wire.PhyOffset(64 * testSegment), 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: filepath.Join(dir, "store"), SegmentSize: testSegment})
			add(t, w, randomOf(4), 40)
			v := forged(t, forge.Options{Dir: filepath.Join(dir, "other"), SegmentSize: testSegment, Start: other.start})
			starts := add(t, v, randomOf(5), other.records)
			e := newEye(t, Options{Dir: filepath.Join(dir, "store"), Settle: -1})
			defer e.close()
			e.settleDown()
			for _, move := range [][2]string{{"store", "old"}, {"other", "store"}} {
				if err := os.Rename(filepath.Join(dir, move[0]), filepath.Join(dir, move[1])); err != nil {
					t.Fatal(err)
				}
			}
			ends := e.settleDown()
			if ends.Min != other.start || ends.Confirmed != starts[len(starts)-1] || ends.Visible != v.End() {
				t.Errorf("now the log reaches from %d to %d: %+v", other.start, v.End(), ends)
			}
			if e.src.Incarnation() != 2 {
				t.Errorf("incarnation %d", e.src.Incarnation())
			}
			e.wantProblem("")
		})
	}
}

// TestTail_SameBytesInNewFiles_Fault72 replaces the files by copies of themselves:
// what counts is name and content, not the inode.
func TestTail_SameBytesInNewFiles_Fault72(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	fillSegments(t, w, randomOf(6), testSegment, 2)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.word.end = w.End()
	before := e.settleDown()
	copyDir(t, filepath.Join(dir, "commitlog"))
	if ends := e.settleDown(); ends != before || e.src.Incarnation() != 1 {
		t.Errorf("%+v became %+v in incarnation %d", before, ends, e.src.Incarnation())
	}
	// The copies are what is followed from now on.
	v := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	last := add(t, v, randomOf(7), 2)[1]
	if ends := e.settleDown(); ends.Confirmed != last {
		t.Errorf("%+v, want confirmed %d", ends, last)
	}
}

// copyDir replaces a directory by a copy of it.
func copyDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.CopyFS(dir+".new", os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".new", dir); err != nil {
		t.Fatal(err)
	}
}

// TestTail_StaleRecord_Fault22 puts a good record with another offset in it, and
// one without a valid body, where the next record belongs.
func TestTail_StaleRecord_Fault22(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	starts := add(t, w, randomOf(8), 10)
	m := forge.Message{Topic: "t", Body: []byte("stale")}
	scribble(t, dir, w.End(), testSegment, forge.AppendMessage(nil, m, w.End().Add(512)))
	e := newEye(t, Options{Dir: dir, Settle: time.Second})
	defer e.close()
	ends := e.settleDown()
	if ends.Confirmed != starts[9] || ends.Settled != w.End() || ends.Visible != w.End() {
		t.Errorf("a stale record behind %d: %+v", w.End(), ends)
	}
}

func TestTail_DamageIsTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	r := randomOf(9)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	add(t, w, r, 3)
	e.settleDown()
	bad := w.End()
	if _, err := w.Append(forge.Message{Topic: "t", Body: []byte("will be damaged")}); err != nil {
		t.Fatal(err)
	}
	scribble(t, dir, w.End().Add(-8), testSegment, []byte("!"))
	add(t, w, r, 3)
	if ends := e.settleDown(); ends.Confirmed != bad || ends.Visible != bad {
		t.Errorf("damage at %d: %+v", bad, ends)
	}
	e.wantProblem("source_corrupt")
	// A broker that recovers cuts its log there, and writes on.
	end := bad.SegmentBase(testSegment).Add(testSegment)
	scribble(t, dir, bad, testSegment, make([]byte, end.Sub(bad)))
	v := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	last := add(t, v, r, 3)[2]
	if ends := e.settleDown(); ends.Confirmed != last || e.src.Incarnation() != 1 {
		t.Errorf("after the repair %+v in incarnation %d, want confirmed %d", ends, e.src.Incarnation(), last)
	}
	e.wantProblem("")
}

// TestTail_FilesMadeAheadAreNoData_Fault67 has two empty segments ahead.
func TestTail_FilesMadeAheadAreNoData_Fault67(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Ahead: 2})
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	if ends := e.settleDown(); ends.Min != 0 || ends.Confirmed != 0 || ends.Visible != 0 {
		t.Errorf("only zeros: %+v", ends)
	}
	r := randomOf(10)
	for range 200 {
		starts := add(t, w, r, 1)
		if ends := e.look(time.Millisecond); ends.Confirmed != starts[0] || ends.Visible != w.End() {
			t.Fatalf("a record from %d to %d: %+v", starts[0], w.End(), ends)
		}
	}
	e.settleDown()
	e.wantProblem("")
}

func TestTail_CutShort_Fault73(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]int64{"to nothing": 0, "to one page": 4096, "by a byte": int64(testSegment) - 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Ahead: -1})
			r := randomOf(11)
			fillSegments(t, w, r, testSegment, 2)
			add(t, w, r, 10)
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			e.settleDown()
			tail := segmentFile(dir, wire.PhyOffset(2*testSegment))
			whole, err := os.ReadFile(tail)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(tail, left); err != nil {
				t.Fatal(err)
			}
			ends := e.settleDown()
			if ends.Visible > wire.PhyOffset(2*testSegment) || e.src.Incarnation() != 2 {
				t.Errorf("%+v in incarnation %d", ends, e.src.Incarnation())
			}
			if left > 0 {
				e.wantProblem("source_cut_short")
			} else { // it looks like one that is just being made, until the broker says more
				e.word.end = w.End()
				e.settleDown()
				e.wantProblem("source_behind_broker")
			}
			if err := os.WriteFile(tail, whole, 0o644); err != nil {
				t.Fatal(err)
			}
			e.word.end = w.End()
			if ends := e.settleDown(); ends.Confirmed != w.End() {
				t.Errorf("restored, and %+v", ends)
			}
			e.wantProblem("")
		})
	}
}

func TestTail_OnlySegmentCutShort_Fault73(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Ahead: -1})
	add(t, w, randomOf(12), 10)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.settleDown()
	if err := os.Truncate(segmentFile(dir, 0), 100); err != nil {
		t.Fatal(err)
	}
	ends := e.settleDown()
	if want := (Ends{Min: -1, Confirmed: -1, Settled: -1, Visible: -1}); ends != want || e.src.Incarnation() != 2 {
		t.Errorf("%+v in incarnation %d", ends, e.src.Incarnation())
	}
	e.wantProblem("source_cut_short")
}

func TestSource_SeveralDirectories_Fault74(t *testing.T) {
	t.Parallel()
	var told error
	s := New(Options{CommitLogDir: "/a/commitlog,/b/commitlog", OnState: func(err error) { told = err }})
	err := s.Run(context.Background())
	p := state.AsProblem(err)
	if p == nil || p.State != state.Incompatible || p.Code != "source_several_dirs" || p.Try == "" || state.AsProblem(told) != p {
		t.Errorf("Run returned %v and told %v", err, told)
	}
}
