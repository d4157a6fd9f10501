//go:build linux

package main

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// TestLogDir_CommandsFindWhatAReplicaRemembers: each that is given the store root
// only looks into the log which the replica there has elsewhere.
func TestLogDir_CommandsFindWhatAReplicaRemembers(t *testing.T) {
	t.Parallel()
	dir, logDir := t.TempDir(), filepath.Join(t.TempDir(), "log")
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := replica.Open(replica.Options{Dir: dir, CommitLogDir: logDir, SegmentSize: wire.MiB, Cluster: "c1", BrokerName: "b1"}, lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := forge.Open(forge.Options{Dir: t.TempDir(), CommitLogDir: logDir, SegmentSize: wire.MiB})
	if err != nil {
		t.Fatal(err)
	}
	for random := rand.New(rand.NewPCG(1, 2)); w.End() < 10000; {
		if _, err := w.Append(forge.RandomMessage(random, forge.Variety{MaxSize: wire.KiB})); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// forge lays out the next segment ahead, as a broker does: there are two.
	slave := []string{"--role", "slave", "--dir", dir, "--master", "127.0.0.1:9", "--http", "127.0.0.1:0"}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"verify":      {[]string{"verify", dir}, logDir + ": min 0, valid end " + w.End().String() + ","},
		"compare":     {[]string{"verify", dir, logDir}, "identical up to " + w.End().String()},
		"config show": {append([]string{"config", "show"}, slave...), logDir},
		"doctor":      {append([]string{"doctor"}, slave...), logDir + " holds 2 segments of 1MiB"},
	} {
		stdout, stderr, _ := haagentCommand(t, c.args...)
		if !strings.Contains(stdout, c.says) {
			t.Errorf("%s says\n%s%swant %q", name, stdout, stderr, c.says)
		}
	}
	if stdout, stderr, code := haagentCommand(t, append([]string{"config", "check"}, slave...)...); code != exitOK {
		t.Errorf("config check ended with %d: %s%s", code, stdout, stderr)
	}
}
