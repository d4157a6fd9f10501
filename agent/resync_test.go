package agent_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// A replica that was set aside begins without the config of its old life: positions
// of that would lie beyond a log that begins anew, and topics be those of nobody.
func TestResync_OldConfigDoesNotComeBack(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(1000)
	src.topic("orders")
	dir := t.TempDir()
	path := filepath.Join(metadata.ConfigDir(dir), "topics.json")
	a := start(t, agent.Config{Dir: dir, Master: src.addr(), MetadataInterval: time.Second})
	a.caughtUp(src)
	eventually(t, "topics.json", func() bool { return a.Status().Metadata.Generation > 0 && exists(path) })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	aside := resync(t, dir)
	for _, kept := range []string{"config/topics.json", "metadata", "state.json"} {
		if !exists(filepath.Join(aside, kept)) {
			t.Errorf("%s is not among what was set aside", kept)
		}
	}

	other := newSource(t, 64*wire.KiB)
	other.grow(2000)
	other.topic("payments")
	a = start(t, agent.Config{Dir: dir, Master: other.addr(), MetadataInterval: time.Second})
	a.caughtUp(other)
	eventually(t, "topics.json of the other source", func() bool { return a.Status().Metadata.Generation > 0 && exists(path) })
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{metadata.ConfigDir(dir), filepath.Join(replica.AgentDir(dir), "metadata")} {
		err := filepath.WalkDir(in, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			if strings.Contains(string(b), "orders") {
				t.Errorf("%s has come back: %s", path, b)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func resync(t *testing.T, dir string) string {
	t.Helper()
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	aside, err := replica.Resync(dir, "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	return aside
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
