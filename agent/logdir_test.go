package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// An agent that is not told where the log is takes what its replica remembers: it
// must not copy everything anew, and forget the log that is there.
func TestLogDir_IsRemembered(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(100 * wire.KiB)
	dir, logDir := t.TempDir(), filepath.Join(t.TempDir(), "log")
	for _, told := range []string{logDir, ""} {
		a := start(t, agent.Config{Dir: dir, CommitLogDir: told, Master: src.addr()})
		a.caughtUp(src)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		st, err := replica.ReadState(dir)
		if err != nil || st.CommitLogDir != logDir || st.VerifiedEnd != src.end() {
			t.Errorf("told %q: the replica remembers %q up to %d, %v", told, st.CommitLogDir, st.VerifiedEnd, err)
		}
		if _, err := os.Stat(replica.CommitLogDir(dir)); !os.IsNotExist(err) {
			t.Errorf("told %q: there is another log in the store root: %v", told, err)
		}
		src.grow(50 * wire.KiB)
	}
	// The same is true of the master that it becomes.
	if _, err := agent.PromoteDir(dir); err != nil {
		t.Fatal(err)
	}
	for _, role := range []agent.Role{agent.RoleSlave, agent.RoleMaster} {
		for told, want := range map[string]string{"": logDir, "/elsewhere": "/elsewhere"} {
			if got := (agent.Config{Role: role, Dir: dir, CommitLogDir: told}).WithDefaults().CommitLogDir; got != want {
				t.Errorf("%s that is told %q looks into %s, want %s", role, told, got, want)
			}
		}
	}
}

// Where nothing is remembered, or nothing that can be read, the log is in the store
// root.
func TestLogDir_NothingRemembered(t *testing.T) {
	t.Parallel()
	empty, broken := t.TempDir(), t.TempDir()
	put(t, broken, ".haagent/state.json")
	for _, dir := range []string{empty, broken} {
		if got := (agent.Config{Role: agent.RoleSlave, Dir: dir}).WithDefaults().CommitLogDir; got != replica.CommitLogDir(dir) {
			t.Errorf("the log of %s is looked for in %s", dir, got)
		}
	}
	if got := (agent.Config{Role: agent.RoleObserver}).WithDefaults().CommitLogDir; got != "" {
		t.Errorf("an agent without a store has its log in %s", got)
	}
}
