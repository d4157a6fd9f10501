//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
)

// examined runs doctor and returns its findings by their checks.
func examined(t *testing.T, code int, args ...string) map[string]finding {
	t.Helper()
	stdout, stderr, got := haagentCommand(t, append([]string{"doctor", "--json"}, args...)...)
	var findings []finding
	if err := json.Unmarshal([]byte(stdout), &findings); err != nil || got != code {
		t.Fatalf("doctor %v ended with %d, want %d, %v: %s%s", args, got, code, err, stdout, stderr)
	}
	byCheck := map[string]finding{}
	for _, f := range findings {
		if f.Verdict != fine && f.Try == "" {
			t.Errorf("no next step: %+v", f)
		}
		byCheck[f.Check] = f
	}
	return byCheck
}

func (f finding) wants(t *testing.T, v verdict, text string) {
	t.Helper()
	if f.Verdict != v || !strings.Contains(f.Text, text) {
		t.Errorf("found %+v, want %s: %s", f, v, text)
	}
}

// TestDoctor_WithoutBroker: what can be seen without anybody who answers.
func TestDoctor_WithoutBroker(t *testing.T) {
	t.Parallel()
	store := forgeStore(t)
	f := examined(t, exitOK, "--role", "master", "--dir", store, "--broker", "127.0.0.1:9", "--gossip-bind", "127.0.0.1:0", "--link-bind", "127.0.0.1:0", "--http", "", "--join", "127.0.0.1:9")
	f["options"].wants(t, fine, "would start")
	f["broker"].wants(t, odd, "127.0.0.1:9")
	f["gossip"].wants(t, odd, "127.0.0.1:9")
	f["store"].wants(t, fine, "segments of 64KiB")
	if _, ok := f["disk"]; !ok {
		t.Error("the disk was not looked at")
	}
	home := filepath.Join("/home", "haagent-doctor-test", "store")
	examined(t, exitOK, "--role", "slave", "--dir", home, "--master", "127.0.0.1:9", "--http", "")["sandbox"].wants(t, odd, "ProtectHome")
	key := filepath.Join(t.TempDir(), "open.key")
	if err := os.WriteFile(key, []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	examined(t, exitAuth, "--role", "slave", "--dir", t.TempDir(), "--join", "127.0.0.1:9", "--gossip-bind", "127.0.0.1:0", "--http", "", "--key-file", key)["options"].wants(t, bad, key)
	if err := os.WriteFile(filepath.Join(store, "commitlog", "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	examined(t, exitIncompatible, "--role", "master", "--dir", store, "--broker", "127.0.0.1:9", "--gossip-bind", "127.0.0.1:0", "--link-bind", "127.0.0.1:0", "--http", "")["store"].wants(t, bad, "notes.txt")
	stdout, _, code := haagentCommand(t, "doctor", "--role", "slave", "--dir", t.TempDir(), "--master", "127.0.0.1:9", "--http", "", "--relay-acks", "1")
	if want := "warn  options      --relay-acks has no effect with --role slave, only with master\n                   Try: take it out\n"; code != exitOK || !strings.HasPrefix(stdout, want) {
		t.Errorf("ended with %d:\n%s", code, stdout)
	}
}

// TestDoctor_BesideABroker: what a real broker's own file and its answers say.
func TestDoctor_BesideABroker(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		ns := brokertest.StartNameServer(t, v)
		b := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Role: "SYNC_MASTER"})
		conf := filepath.Join(t.TempDir(), "broker.conf")
		overwrite(t, conf, "brokerName=another\nbrokerRole=SYNC_MASTER\nstorePathRootDir="+b.Dir()+"\n")
		args := []string{"--role", "master", "--broker-conf", conf, "--broker", b.Addr(), "--gossip-bind", "127.0.0.1:0", "--link-bind", "127.0.0.1:0", "--http", ""}
		f := examined(t, exitOK, args...)
		f["broker"].wants(t, fine, "SYNC_MASTER")
		f["broker.conf"].wants(t, odd, "brokerName")
		if v.Major() >= 5 {
			f["guarantee"].wants(t, odd, "inSyncReplicas=1")
		} else {
			f["guarantee"].wants(t, fine, "SLAVE_NOT_AVAILABLE")
		}
		examined(t, exitIncompatible, append(args, "--segment-size", "3MiB")...)["mode"].wants(t, bad, "3MiB")
	})
}
