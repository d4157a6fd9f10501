package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// TestPrintPromotion_NamesTheLog: a broker that is given another directory boots
// with an empty log. An agent of an earlier version does not say where it is.
func TestPrintPromotion_NamesTheLog(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "log")
	remembers := t.TempDir()
	lock, err := replica.AcquireLock(remembers)
	if err != nil {
		t.Fatal(err)
	}
	s, err := replica.Open(replica.Options{Dir: remembers, CommitLogDir: elsewhere, SegmentSize: wire.MiB}, lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, said, want string }{
		"said":                       {dir, elsewhere, elsewhere},
		"the default said":           {dir, replica.CommitLogDir(dir), replica.CommitLogDir(dir)},
		"not said":                   {dir, "", replica.CommitLogDir(dir)},
		"not said, but remembered":   {remembers, "", elsewhere},
		"said, whatever state there": {remembers, dir, dir},
	} {
		var out strings.Builder
		err := printPromotion(&out, control.Promotion{Dir: c.dir, CommitLogDir: c.said, SegmentSize: wire.MiB})
		if want := "\nstorePathCommitLog=" + c.want + "\n"; err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
	}
}
