//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
)

// TestDisturbed boots a broker on a live replica. The lock makes the broker
// refuse, but only after it has recovered the store: by then it has written
// files that a later boot would believe. The agent notices, checks the log from
// disk, puts everything back, and goes on.
func TestDisturbed(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		ns := brokertest.StartNameServer(t, v)
		master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
		d := brokertest.StartDriver(t, v, ns.Addr)
		sent := d.Send(t, brokertest.SendSpec{Topic: "calm", Count: 1000, BodySize: 2500, Threads: 2})
		d.CommitOffsets(t, "group", "calm", map[int]int64{0: 4, 1: 5})
		dir := t.TempDir()
		agent := startAgent(t, dir, "--master", master.Addr())
		agent.caughtUp(master)
		const positions = "consumerOffset.json"
		agent.waitStatus("the config files", func(s control.Status) bool {
			b, err := os.ReadFile(filepath.Join(dir, "config", positions))
			return s.Metadata.AgeSeconds >= 0 && err == nil && bytes.Contains(b, []byte(`"calm@group":{0:4,1:5}`))
		})

		intruder, err := brokertest.TryStartBroker(t, brokertest.BrokerOptions{Version: v, Dir: dir})
		if err == nil || intruder == nil || intruder.Running() {
			t.Fatalf("a broker runs on a replica that is locked: %v", err)
		}
		waitFor(t, "the agent to notice", func() (string, bool) {
			text := agent.log.String()
			return text, strings.Contains(text, "state="+string(state.Disturbed))
		})
		sent = append(sent, d.Send(t, brokertest.SendSpec{Topic: "calm", Count: 100})...)
		d.CommitOffsets(t, "group", "calm", map[int]int64{0: 40, 1: 50})
		end := agent.caughtUp(master)
		agent.waitStatus("the config files again", func(control.Status) bool {
			b, err := os.ReadFile(filepath.Join(dir, "config", positions))
			return err == nil && bytes.Contains(b, []byte(`"calm@group":{0:40,1:50}`))
		})
		if got := verifySame(t, master.Dir(), dir); got < end {
			t.Errorf("identical up to %d of %d", got, end)
		}
		checkBootContract(t, dir)
		checkConfigFiles(t, agent)
		if lock, err := replica.AcquireLock(dir); err == nil {
			t.Errorf("nobody holds the lock; released again: %v", lock.Release())
		}

		if got := agent.promote(); got < end {
			t.Errorf("promised up to %d of %d", got, end)
		}
		master.Kill()
		d2, heir := boot(t, v, ns, dir, 0)
		checkServed(t, d2, heir, sent, end)
		if got := d2.GroupOffsetsFrom(t, heir.Addr(), "group", "calm"); got[0] != 40 || got[1] != 50 {
			t.Errorf("positions are %v", got)
		}
	})
}

// checkConfigFiles waits until the installed config files are, byte for byte,
// those of the agent's last snapshot.
func checkConfigFiles(t *testing.T, a *haagent) {
	t.Helper()
	waitFor(t, "the installed config files", func() (string, bool) {
		files := a.status().Metadata.Files
		for _, f := range files {
			path := filepath.Join(a.dir, "config", f.Name)
			if _, err := os.Stat(path); err != nil {
				return err.Error(), false
			}
			if sum(t, path) != f.SHA256 {
				return f.Name + " is not what was installed", false
			}
		}
		return "none", len(files) > 0
	})
}
