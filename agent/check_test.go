package agent_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/state"
)

// TestCheckDir_SaysWhatRunWould: directories that a slave is stuck with from its
// start on are found by the check too, with the same code.
func TestCheckDir_SaysWhatRunWould(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(t *testing.T, dir string)
		state state.State
		code  string
	}{
		"something else":     {func(t *testing.T, dir string) { put(t, dir, "letter.txt") }, state.Incompatible, "not_a_store"},
		"a foreign file":     {func(t *testing.T, dir string) { put(t, dir, "commitlog/notes.txt") }, state.Incompatible, "foreign_file"},
		"a broker's own log": {func(t *testing.T, dir string) { put(t, dir, "commitlog/00000000000000000000") }, state.Incompatible, "foreign_store"},
		"a damaged state":    {func(t *testing.T, dir string) { put(t, dir, ".haagent/state.json") }, state.IOError, "state_unreadable"},
		"a file of our name": {func(t *testing.T, dir string) { put(t, dir, ".haagent") }, state.IOError, "io_error"},
		"a link to nothing": {func(t *testing.T, dir string) {
			if err := os.Symlink(filepath.Join(t.TempDir(), "none"), dir); err != nil {
				t.Fatal(err)
			}
		}, state.IOError, "io_error"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			c.make(t, dir)
			cfg := agent.Config{Role: agent.RoleSlave, Dir: dir, Master: "127.0.0.1:9"}
			a, err := agent.New(cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if p := state.AsProblem(a.CheckDir()); p == nil || p.State != c.state || p.Code != c.code || p.Try == "" {
				t.Errorf("the check says %+v", p)
			}
			start(t, cfg).await(c.state, c.code)
		})
	}
}

// put makes a small file, and the directories that it is in.
func put(t *testing.T, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestValidate_PathsThatCanBeNoDirectory ends an agent at its start.
func TestValidate_PathsThatCanBeNoDirectory(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "file")
	put(t, dir, "store/commitlog")
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Symlink(in("loop"), in("loop")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, commitLogDir, key string }{
		"a file":                 {in("file"), "", "dir"},
		"below a file":           {in("file/store"), "", "dir"},
		"a circle of links":      {in("loop"), "", "dir"},
		"a long name":            {in(strings.Repeat("a", 300)), "", "dir"},
		"a file in it":           {in("store"), "", "commitlog-dir"},
		"segments in a file":     {in("other"), in("file"), "commitlog-dir"},
		"segments in the root":   {in("other"), in("x/../other/"), "commitlog-dir"},
		"segments among our own": {in("other"), in("other/.haagent/log"), "commitlog-dir"},
		"all well":               {in("other"), in("segments"), ""},
		"all well in a new root": {in("a/b/c"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, role := range []agent.Role{agent.RoleMaster, agent.RoleSlave} {
				_, err := agent.New(agent.Config{Role: role, Dir: c.dir, CommitLogDir: c.commitLogDir, Finder: citizen{}}, slog.New(slog.DiscardHandler))
				var bad *agent.ConfigError
				if c.key == "" && err != nil || c.key != "" && (!errors.As(err, &bad) || bad.Key != c.key || bad.Try == "") {
					t.Errorf("%s: got %v, want one about %q", role, err, c.key)
				}
			}
		})
	}
}
