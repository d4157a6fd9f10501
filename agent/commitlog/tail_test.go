package commitlog_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// A broker that is just creating the next segment shows it empty: not there yet.
func TestScanner_NextSegmentIsBeingCreated(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: testSize, Ahead: -1})
	mustAppend(t, w, forge.Message{Topic: "t"})
	s, err := commitlog.NewScanner(w.CommitLogDir(), testSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Next() {
		t.Fatal(s.Err())
	}
	if err := w.Roll(); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, w, forge.Message{Topic: "t"})
	next := segmentPath(w.CommitLogDir(), wire.PhyOffset(testSize))
	content, err := os.ReadFile(next)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		size int64
		want error
	}{{0, commitlog.ErrNotYet}, {100, &commitlog.LengthError{Path: next, Size: 100, Want: testSize}}} {
		if err := os.Truncate(next, step.size); err != nil {
			t.Fatal(err)
		}
		if s.Next() || s.Err().Error() != step.want.Error() || s.Offset() != wire.PhyOffset(testSize) {
			t.Errorf("next segment of %d bytes: %v at %d", step.size, s.Err(), s.Offset())
		}
	}
	if err := os.WriteFile(next, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if !s.Next() || s.Offset() != w.End() {
		t.Errorf("next segment of full length: %v at %d", s.Err(), s.Offset())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// tearAt stores the first n bytes of a record at the end of w, and what is given
// directly behind the place where it would end.
func tearAt(t *testing.T, w *forge.Writer, n int, behind []byte) {
	t.Helper()
	record := forge.AppendMessage(nil, forge.Message{Topic: "torn", Body: make([]byte, 3000)}, w.End())
	b := append(record[:n:n], make([]byte, len(record)-n)...)
	base := w.End().SegmentBase(testSize)
	patch(t, segmentPath(w.CommitLogDir(), base), int64(w.End().Sub(base)), append(b, behind...))
}

func TestScanner_TornOnlyAtTheVeryEnd(t *testing.T) {
	for _, test := range []struct {
		name   string
		behind []byte
		roll   bool
		torn   bool
	}{
		{"nothing behind it", nil, false, true},
		{"a byte far behind it", append(make([]byte, 10_000), 1), false, false},
		{"a byte right behind it", []byte{1}, false, false},
		{"data in a later segment", nil, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWriter(t, forge.Options{SegmentSize: testSize})
			mustAppend(t, w, forge.Message{Topic: "t"})
			tearAt(t, w, 60, test.behind)
			if test.roll {
				other := newWriter(t, forge.Options{SegmentSize: testSize, Start: wire.PhyOffset(testSize)})
				mustAppend(t, other, forge.Message{Topic: "t"})
				name := commitlog.Name(wire.PhyOffset(testSize))
				if err := os.Rename(other.CommitLogDir()+"/"+name, w.CommitLogDir()+"/"+name); err != nil {
					t.Fatal(err)
				}
			}
			got := scan(t, w.CommitLogDir(), testSize, 0)
			if got.end != w.End() || got.records != 1 {
				t.Errorf("%d records up to %d", got.records, got.end)
			}
			if !test.torn {
				wantReason(t, got.err, w.End(), commitlog.ErrBadLength)
			} else if !errors.Is(got.err, commitlog.ErrNotYet) || got.torn == nil || got.torn.PhyOffset != w.End() {
				t.Errorf("%v, torn %v", got.err, got.torn)
			}
		})
	}
}

// Judging the end of a log does not read the holes of a sparse segment.
func TestScanner_TornInASparseSegment(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: commitlog.DefaultSegmentSize})
	mustAppend(t, w, forge.Message{Topic: "t", Body: []byte("b")})
	path := segmentPath(w.CommitLogDir(), 0)
	record := forge.AppendMessage(nil, forge.Message{Topic: "torn", Body: make([]byte, 5000)}, w.End())
	patch(t, path, int64(w.End()), record[:100])
	got := scan(t, w.CommitLogDir(), commitlog.DefaultSegmentSize, 0)
	if got.mustEndAt(t, w.End(), 1); got.torn == nil {
		t.Error("a clean end")
	}
	patch(t, path, int64(commitlog.DefaultSegmentSize)-1, []byte{1})
	got = scan(t, w.CommitLogDir(), commitlog.DefaultSegmentSize, 0)
	if !errors.As(got.err, new(*commitlog.CorruptError)) {
		t.Errorf("with a byte at the far end: %v", got.err)
	}
}

func TestScanner_ForeignFile(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: testSize})
	s, err := commitlog.NewScanner(w.CommitLogDir(), testSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, w.CommitLogDir()+"/stray", 1)
	var foreign *commitlog.ForeignFileError
	if s.Next() || !errors.As(s.Err(), &foreign) {
		t.Errorf("Next: %v", s.Err())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := commitlog.NewScanner(w.CommitLogDir(), testSize, 0); !errors.As(err, &foreign) {
		t.Errorf("NewScanner: %v", err)
	}
}

// Every error names the file or the offset, and what was found.
func TestErrors_SayWhatAndWhere(t *testing.T) {
	for _, test := range []struct {
		err  error
		says []string
	}{
		{&commitlog.CorruptError{File: "/s/1", PhyOffset: 7, Reason: "MAGIC 1", Err: commitlog.ErrBadMagic}, []string{"/s/1", "7", "MAGIC 1", "magic"}},
		{&commitlog.CorruptError{PhyOffset: 7, Reason: "x", Err: commitlog.ErrBadCRC}, []string{"offset 7", "checksum"}},
		{&commitlog.HoleError{After: 100, Before: 300}, []string{"100", "300", "200B"}},
		{&commitlog.LengthError{Path: "/s/1", Size: 5, Want: 9}, []string{"/s/1", "5", "9"}},
		{&commitlog.AlignError{Path: "/s/1", Base: 5, Size: 9}, []string{"/s/1", "9"}},
		{&commitlog.ForeignFileError{Path: "/s/x", Reason: "a symlink"}, []string{"/s/x", "a symlink"}},
		{&commitlog.RangeError{PhyOffset: 5, Min: 7, End: 9}, []string{"5", "7", "9"}},
		{&commitlog.FaultError{Addr: 0x1234, Err: os.ErrInvalid}, []string{"0x1234", os.ErrInvalid.Error()}},
	} {
		for _, word := range test.says {
			if !strings.Contains(test.err.Error(), word) {
				t.Errorf("%q does not say %q", test.err, word)
			}
		}
	}
}
