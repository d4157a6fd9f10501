package forge_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

func TestFault73_WriterSurvivesATruncatedSegment(t *testing.T) {
	w := open(t, forge.Options{})
	if err := os.Truncate(filepath.Join(w.CommitLogDir(), commitlog.Name(0)), 0); err != nil {
		t.Fatal(err)
	}
	var fault *commitlog.FaultError
	if _, err := w.Append(forge.Message{Topic: "t"}); !errors.As(err, &fault) || w.End() != 0 {
		t.Errorf("%v, end %d", err, w.End())
	}
}

func TestFault14_OpenRefusesAHole(t *testing.T) {
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir})
	appendRandom(t, w, 60, 4)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "commitlog", commitlog.Name(wire.PhyOffset(testSize)))); err != nil {
		t.Fatal(err)
	}
	var hole *commitlog.HoleError
	if _, err := forge.Open(forge.Options{Dir: dir, SegmentSize: testSize}); !errors.As(err, &hole) {
		t.Errorf("opened: %v", err)
	}
	if _, err := forge.Open(forge.Options{Dir: dir, SegmentSize: 2 * testSize}); err == nil {
		t.Error("opened with twice the segment size")
	}
}

func TestWriter_TornTail(t *testing.T) {
	for _, keep := range []bool{false, true} {
		dir := t.TempDir()
		w := open(t, forge.Options{Dir: dir})
		appendRandom(t, w, 3, 5)
		end := w.End()
		path := filepath.Join(w.CommitLogDir(), commitlog.Name(end.SegmentBase(testSize)))
		m := forge.Message{Topic: "torn", Body: []byte("a body that is longer than the next one, by far")}
		// The broker dies after the body: what is behind it is zero.
		record := forge.AppendMessage(nil, m, end)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(record[:len(record)-10], int64(end.Sub(end.SegmentBase(testSize)))); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.Abandon(); err != nil {
			t.Fatal(err)
		}
		w = open(t, forge.Options{Dir: dir, KeepTorn: keep})
		if w.End() != end {
			t.Fatalf("goes on at %d, want %d", w.End(), end)
		}
		if _, err := w.Append(forge.Message{Topic: "t"}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if stale := b[w.End().Sub(end.SegmentBase(testSize))] != 0; stale != keep {
			t.Errorf("KeepTorn %t: old bytes behind the new record: %t", keep, stale)
		}
	}
}

func TestWriter_LockAndAbort(t *testing.T) {
	for _, style := range []forge.Style{forge.Style4x, forge.Style5x, forge.StyleNewer} {
		dir := t.TempDir()
		w := open(t, forge.Options{Dir: dir, Running: true, Style: style})
		if _, err := forge.Open(forge.Options{Dir: dir, SegmentSize: testSize, Running: true}); !errors.Is(err, forge.ErrLocked) {
			t.Errorf("a second broker on the store: %v", err)
		}
		content, err := os.ReadFile(filepath.Join(dir, "abort"))
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if style != forge.Style4x {
			want = strconv.Itoa(os.Getpid())
		}
		if string(content) != want || exists(t, dir, "abort.bak") != (style != forge.Style4x) {
			t.Errorf("style %d: abort holds %q", style, content)
		}
		if err := w.Abandon(); err != nil {
			t.Fatal(err)
		}
		if !exists(t, dir, "abort") {
			t.Error("a killed broker takes abort with it")
		}
		w = open(t, forge.Options{Dir: dir, Running: true, Style: style})
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if exists(t, dir, "abort") || !exists(t, dir, "lock") {
			t.Error("an orderly end leaves lock and no abort")
		}
	}
	dir := t.TempDir()
	open(t, forge.Options{Dir: dir})
	if exists(t, dir, "abort") || exists(t, dir, "lock") {
		t.Error("there is lock or abort without Running")
	}
}
