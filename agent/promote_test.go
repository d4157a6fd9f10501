package agent_test

import (
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// A broker that is started on a promoted replica has to find the log: promote says
// where it is, through an agent and without one, and when it is asked again.
func TestPromote_SaysWhereTheLogIs(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(100 * wire.KiB)
	for name, elsewhere := range map[string]bool{"in the store root": false, "elsewhere": true} {
		for _, live := range []bool{true, false} {
			dir := t.TempDir()
			cfg, want := agent.Config{Dir: dir, Master: src.addr()}, replica.CommitLogDir(dir)
			if elsewhere {
				want = filepath.Join(t.TempDir(), "log")
				cfg.CommitLogDir = want
			}
			a := start(t, cfg)
			a.caughtUp(src)
			promote := func() (control.Promotion, error) {
				return control.DialSocket(replica.AgentDir(dir)).Promote(t.Context())
			}
			if !live {
				if err := a.stop(); err != nil {
					t.Fatal(err)
				}
				promote = func() (control.Promotion, error) { return agent.PromoteDir(dir) }
			}
			first, err := promote()
			if err != nil || first.CommitLogDir != want || first.End != src.end() {
				t.Errorf("%s, agent %t: %+v, %v; the log is in %s", name, live, first, err, want)
			}
			if err := a.ended(); err != nil {
				t.Errorf("the agent ended with %v", err)
			}
			if again, err := agent.PromoteDir(dir); err != nil || again != first {
				t.Errorf("%s, agent %t: again %+v, %v; the first time %+v", name, live, again, err, first)
			}
		}
	}
}
