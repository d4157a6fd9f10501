package commitlog_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

const testSize = 64 * wire.KiB

func makeFIFO(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

// forgeStore writes n random messages to a new directory and returns it, the end
// of the log and the boundaries between its records.
func forgeStore(t testing.TB, o forge.Options, n int) (dir string, ends []wire.PhyOffset) {
	t.Helper()
	if o.SegmentSize == 0 {
		o.SegmentSize = testSize
	}
	w := newWriter(t, o)
	r := newRand(uint64(n))
	for range n {
		ends = append(ends, mustAppend(t, w, forge.RandomMessage(r, forge.Variety{V2: true, IPv6: true, PropertyCRC: true, Transactions: true})))
	}
	return w.CommitLogDir(), ends
}

func last(ends []wire.PhyOffset) wire.PhyOffset { return ends[len(ends)-1] }

func TestScanner_EmptyLogs(t *testing.T) {
	scan(t, filepath.Join(t.TempDir(), "missing"), testSize, wire.NoOffset).mustEndAt(t, 0, 0)
	scan(t, t.TempDir(), testSize, 4711).mustEndAt(t, 4711, 0)
	dir, _ := forgeStore(t, forge.Options{Start: 3 * wire.PhyOffset(testSize)}, 0)
	scan(t, dir, testSize, wire.NoOffset).mustEndAt(t, 3*wire.PhyOffset(testSize), 0)
}

// The table of every kind of record, read through a directory.
func TestFault6_ScannerReadsMixedFormats(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: wire.MiB, Garbage: newRand(1)})
	all := everyKind()
	for range 3 {
		for _, m := range all {
			mustAppend(t, w, m.Message)
		}
	}
	got := scan(t, w.CommitLogDir(), wire.MiB, 0)
	got.mustEndAt(t, w.End(), int64(3*len(all)))
	for i, topic := range got.topics {
		if want := all[i%len(all)]; topic != want.Topic {
			t.Errorf("%s: topic %q", want.name, topic)
		}
	}
}

// Segment rolls, garbage behind BLANKs, a log that does not start at 0, and every
// record boundary as a start.
func TestFault12_ScannerFromAnyBoundary(t *testing.T) {
	start := 48 * wire.PhyOffset(testSize)
	dir, ends := forgeStore(t, forge.Options{Start: start, Garbage: newRand(2)}, 150)
	scan(t, dir, testSize, wire.NoOffset).mustEndAt(t, last(ends), 150)
	scan(t, dir, testSize, start).mustEndAt(t, last(ends), 150)
	for i, from := range ends {
		scan(t, dir, testSize, from).mustEndAt(t, last(ends), int64(149-i))
	}
	for _, outside := range []wire.PhyOffset{0, start - 1, start + 1<<40} {
		var outOfRange *commitlog.RangeError
		if _, err := commitlog.NewScanner(dir, testSize, outside); !errors.As(err, &outOfRange) || outOfRange.Min != start {
			t.Errorf("from %d: %v", outside, err)
		}
	}
	if got := scan(t, dir, testSize, start+1); !errors.As(got.err, new(*commitlog.CorruptError)) || got.end != start+1 {
		t.Errorf("from inside a record: %v at %d", got.err, got.end)
	}
}

func TestScanner_WrongSegmentSize(t *testing.T) {
	dir, _ := forgeStore(t, forge.Options{}, 100)
	var length *commitlog.LengthError
	if _, err := commitlog.NewScanner(dir, 2*testSize, 0); !errors.As(err, &length) {
		t.Errorf("twice the size: %v", err)
	}
	if _, err := commitlog.NewScanner(dir, 0, 0); err == nil {
		t.Error("size 0 is taken")
	}
}

// The segment is found by its name while the list of segments shrinks.
func TestFault13_SegmentsAreFoundByName(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: testSize})
	r := newRand(3)
	var ends []wire.PhyOffset
	for range 300 {
		ends = append(ends, mustAppend(t, w, forge.RandomMessage(r, forge.Variety{})))
	}
	s, err := commitlog.NewScanner(w.CommitLogDir(), testSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for ; s.Next(); i++ {
		if s.Record().End() != ends[i] {
			t.Fatalf("record %d ends at %d, want %d", i, s.Record().End(), ends[i])
		}
		for w.Min() < s.Record().PhyOffset.SegmentBase(testSize) {
			if _, err := w.DropOldest(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if i != len(ends) || !errors.Is(s.Err(), commitlog.ErrNotYet) {
		t.Fatalf("%d of %d records: %v", i, len(ends), s.Err())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Where the segments that were to be read next have expired, that is said.
func TestFault13_ExpiredBeforeItWasRead(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: testSize})
	r := newRand(4)
	for w.End() < 4*wire.PhyOffset(testSize) {
		mustAppend(t, w, forge.RandomMessage(r, forge.Variety{}))
	}
	s, err := commitlog.NewScanner(w.CommitLogDir(), testSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Next() {
		t.Fatal(s.Err())
	}
	for w.Min() < 3*wire.PhyOffset(testSize) {
		if _, err := w.DropOldest(); err != nil {
			t.Fatal(err)
		}
	}
	for s.Next() {
		if s.Record().PhyOffset >= wire.PhyOffset(testSize) {
			t.Fatalf("a record of a segment that was gone: %d", s.Record().PhyOffset)
		}
	}
	var outOfRange *commitlog.RangeError
	if !errors.As(s.Err(), &outOfRange) || outOfRange.Min != w.Min() || s.Offset() != wire.PhyOffset(testSize) {
		t.Errorf("%v at %d", s.Err(), s.Offset())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFault14_Hole(t *testing.T) {
	dir, ends := forgeStore(t, forge.Options{}, 200)
	if last(ends) < 3*wire.PhyOffset(testSize) {
		t.Fatal("too few segments")
	}
	s, err := commitlog.NewScanner(dir, testSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segmentPath(dir, 2*wire.PhyOffset(testSize))); err != nil {
		t.Fatal(err)
	}
	// At the start the names tell it, later the scan does.
	var hole *commitlog.HoleError
	if _, err := commitlog.NewScanner(dir, testSize, 0); !errors.As(err, &hole) {
		t.Fatalf("NewScanner: %v", err)
	}
	want := commitlog.HoleError{After: 2 * wire.PhyOffset(testSize), Before: 3 * wire.PhyOffset(testSize)}
	if *hole != want {
		t.Errorf("NewScanner: %v", hole)
	}
	for s.Next() {
	}
	if !errors.As(s.Err(), &hole) || *hole != want || s.Offset() != want.After {
		t.Errorf("Next: %v at %d", s.Err(), s.Offset())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Zeros in the middle are a hole as well, though all files are there.
func TestFault64_ZerosInTheMiddleAreAHole(t *testing.T) {
	dir, ends := forgeStore(t, forge.Options{}, 200)
	at := ends[30]
	if at > wire.PhyOffset(testSize)-4096 {
		t.Fatalf("record 30 ends at %d, in a wrong segment", at)
	}
	patch(t, segmentPath(dir, 0), int64(at), make([]byte, wire.PhyOffset(testSize)-at))
	got := scan(t, dir, testSize, 0)
	var hole *commitlog.HoleError
	if !errors.As(got.err, &hole) || hole.After != at || hole.Before != wire.PhyOffset(testSize) || got.end != at {
		t.Errorf("%v at %d", got.err, got.end)
	}
}

// Segments created ahead are neither data nor damage.
func TestFault67_SegmentsAhead(t *testing.T) {
	for _, ahead := range []int{-1, 1, 2, 5} {
		dir := t.TempDir()
		w := newWriter(t, forge.Options{Dir: dir, SegmentSize: testSize, Ahead: ahead})
		r := newRand(5)
		s, err := commitlog.NewScanner(w.CommitLogDir(), testSize, 0)
		if err != nil {
			t.Fatal(err)
		}
		// Record by record, over several rolls: the scan is never ahead nor behind.
		for i := range 200 {
			end := mustAppend(t, w, forge.RandomMessage(r, forge.Variety{}))
			if !s.Next() || s.Offset() != end {
				t.Fatalf("ahead %d, record %d: scan is at %d, the log at %d: %v", ahead, i, s.Offset(), end, s.Err())
			}
			if s.Next() || !errors.Is(s.Err(), commitlog.ErrNotYet) || s.Offset() != end || s.Torn() != nil {
				t.Fatalf("ahead %d, behind record %d: %v at %d", ahead, i, s.Err(), s.Offset())
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFault73_ScannerSurvivesATruncatedSegment(t *testing.T) {
	dir, ends := forgeStore(t, forge.Options{}, 40)
	s, err := commitlog.NewScanner(dir, testSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Next() {
		t.Fatal(s.Err())
	}
	if err := os.Truncate(segmentPath(dir, 0), 0); err != nil {
		t.Fatal(err)
	}
	if s.Next() {
		t.Fatal("a record in a file that is empty")
	}
	var fault *commitlog.FaultError
	if !errors.As(s.Err(), &fault) || s.Offset() != ends[0] {
		t.Errorf("%v at %d", s.Err(), s.Offset())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// The tail of an unfinished segment counts.
func TestFault89_PartialLastSegment(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: testSize})
	for w.End() < wire.PhyOffset(testSize) {
		mustAppend(t, w, forge.Message{Topic: "t", Body: make([]byte, 1000)})
	}
	for range 3 {
		mustAppend(t, w, forge.Message{Topic: "tail", Body: make([]byte, 1000)})
	}
	got := scan(t, w.CommitLogDir(), testSize, wire.PhyOffset(testSize))
	got.mustEndAt(t, w.End(), 4)
}

// Damage with records behind it is damage, with the file and the place.
func TestFault22_ScannerReportsDamage(t *testing.T) {
	for _, test := range []struct {
		name   string
		at     wire.PhyOffset // in the record
		bytes  string
		reason error
	}{
		{"magic", 4, "\x00\x00\x00\x00", commitlog.ErrBadMagic},
		{"stale offset", 28, "\x00\x00\x00\x00\x00\x00\x00\x01", commitlog.ErrOffsetMismatch},
		{"body", 100, "\xff\xff\xff\xff\xff\xff\xff", commitlog.ErrBadCRC},
		{"size beyond the segment", 0, "\x7f\xff\xff\xff", commitlog.ErrBadLength},
		{"size of a neighbour", 0, "\x00\x00\x01\x00", commitlog.ErrBadLength},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWriter(t, forge.Options{SegmentSize: testSize})
			var bad wire.PhyOffset
			for i := range 20 {
				if i == 10 {
					bad = w.End()
				}
				mustAppend(t, w, forge.Message{Topic: "topic", Body: []byte("a body of some length, and no more"), BornHost: host4, StoreHost: host4})
			}
			path := segmentPath(w.CommitLogDir(), 0)
			patch(t, path, int64(bad+test.at), []byte(test.bytes))
			got := scan(t, w.CommitLogDir(), testSize, 0)
			wantReason(t, got.err, bad, test.reason)
			var corrupt *commitlog.CorruptError
			if errors.As(got.err, &corrupt); corrupt.File != path || got.end != bad || got.records != 10 || got.torn != nil {
				t.Errorf("%v at %d after %d records", corrupt, got.end, got.records)
			}
		})
	}
}

// A scan beside a writer that stores its records in pieces returns every record
// once, and takes no piece for damage or for a hole.
func TestScanner_BesideAWriter(t *testing.T) {
	const messages = 2000
	w := newWriter(t, forge.Options{SegmentSize: 16 * wire.KiB})
	s, err := commitlog.NewScanner(w.CommitLogDir(), 16*wire.KiB, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]wire.PhyOffset, messages)
	done := make(chan error, 1)
	go func() {
		r := newRand(9)
		for i := range messages {
			end, err := w.AppendSlowly(forge.RandomMessage(r, forge.Variety{}), func(string) { runtime.Gosched() })
			if err != nil {
				done <- err
				return
			}
			ends[i] = end
		}
		done <- nil
	}()
	var seen []wire.PhyOffset
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		for s.Next() {
			seen = append(seen, s.Record().End())
		}
		if !errors.Is(s.Err(), commitlog.ErrNotYet) {
			t.Fatalf("after %d records, at %d: %v", len(seen), s.Offset(), s.Err())
		}
	}
	if diff := cmp.Diff(ends, seen); diff != "" {
		t.Error(diff)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
