package source_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
)

// Whoever asks for it is told at once that confirmed bytes are not what they were,
// however long the next listing takes.
func TestSource_RecheckSeesWhatWasWrittenOver(t *testing.T) {
	dir := t.TempDir()
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: wire.MiB})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := w.Append(forge.Message{Topic: "t", Body: make([]byte, 300)}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	s := start(t, source.Options{Dir: dir, Rescan: time.Hour})
	confirmed := s.until("confirmed records", func(e source.Ends) bool { return e.Confirmed > 0 && e.Visible == w.End() }).Confirmed
	if got := s.Recheck(t.Context()); got != 1 {
		t.Errorf("incarnation %d, and nothing was changed", got)
	}
	f, err := os.OpenFile(filepath.Join(w.CommitLogDir(), commitlog.Name(0)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("other"), int64(confirmed)-20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.Recheck(t.Context()); got != 2 {
		t.Errorf("incarnation %d after bytes below %d were changed", got, confirmed)
	}
}
