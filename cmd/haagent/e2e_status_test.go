//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
)

// statusOf asks for the status of the agent of dir, which must answer.
func statusOf(t *testing.T, dir string) control.Status {
	t.Helper()
	stdout, stderr, code := haagentCommand(t, "status", "--dir", dir, "--json")
	var s control.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != exitOK {
		t.Fatalf("status ended with %d, %v: %s%s", code, err, stdout, stderr)
	}
	return s
}

// startLonely starts a slave that meets nobody, not even others of this machine.
func startLonely(t *testing.T, dir string) *haagent {
	t.Helper()
	r := newRing(t)
	host := r.host()
	return startAgent(t, dir, "--gossip-bind", r.gossip(host), "--join", r.gossip(host))
}

// TestStatus_ByDirBeforeTheStoreIsOpen asks agents that may not write to their
// directory, or have no reason to: they answer, and leave it as it is.
func TestStatus_ByDirBeforeTheStoreIsOpen(t *testing.T) {
	t.Parallel() // most of the time is waiting
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "letter.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir, code string
		state           state.State
	}{
		{"a broker's store", forgeStore(t), "foreign_store", state.Incompatible},
		{"no store", other, "not_a_store", state.Incompatible},
		{"empty", t.TempDir(), "", state.Searching},
		{"missing", filepath.Join(t.TempDir(), "not", "there"), "", state.Searching},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			before := listing(t, c.dir) + contents(t, c.dir)
			agent := startLonely(t, c.dir)
			agent.waitStatus("its state", func(s control.Status) bool { return s.State == c.state && s.Code == c.code })
			if s := statusOf(t, c.dir); s.State != c.state || s.Code != c.code || s.Dir != c.dir || s.Try == "" {
				t.Errorf("%+v", s)
			}
			stdout, stderr, code := haagentCommand(t, "promote", "--dir", c.dir, "--yes")
			if code != exitIncompatible || !strings.Contains(stderr, string(c.state)) {
				t.Errorf("promote ended with %d: %s%s", code, stdout, stderr)
			}
			agent.term()
			if after := listing(t, c.dir, "lock") + contents(t, c.dir); after != before {
				t.Errorf("it was\n%s\nand is\n%s", before, after)
			}
			if _, _, code := haagentCommand(t, "status", "--dir", c.dir); code != exitNotConnected {
				t.Errorf("without an agent status ends with %d", code)
			}
		})
	}
}

// TestStatus_ByDirWithAnotherKey: who is not let in by the others still answers.
func TestStatus_ByDirWithAnotherKey(t *testing.T) {
	t.Parallel() // most of the time is waiting
	r, other := newRing(t), newRing(t)
	r.makeKey()
	other.makeKey()
	host := r.host()
	r.startForgedMaster(forgeStore(t), "m", host)
	stranger := other.startSlave(t.TempDir(), "stranger", r.gossip(host))
	stranger.waitCode(state.Unauthorized, "wrong_key")
	if s := statusOf(t, stranger.dir); s.Code != "wrong_key" || s.Node != "stranger" {
		t.Errorf("%+v", s)
	}
}

// TestStatus_ByDirOverAReplicasLife: a second agent, of whatever role, does not take
// the first one's place; without one the disk tells what it can; and a promoted
// replica is a broker's.
func TestStatus_ByDirOverAReplicasLife(t *testing.T) {
	t.Parallel() // most of the time is waiting
	r := newRing(t)
	host := r.host()
	r.startForgedMaster(forgeStore(t), "m", host)
	dir := t.TempDir()
	slave := r.startSlave(dir, "s", r.gossip(host))
	slave.waitState(state.Streaming)
	r.refused(exitLocked, "in use", "--role", "slave", "--dir", dir, "--gossip-bind", r.host(), "--http", "")
	r.refused(exitIncompatible, "was not promoted", "--role", "master", "--dir", dir, "--gossip-bind", r.host(), "--http", "")
	if s, err := control.DialSocket(replica.AgentDir(dir)).Status(t.Context()); err != nil || s.Node != "s" {
		t.Errorf("on the socket: %+v, %v", s, err)
	}
	if err := os.Remove(filepath.Join(replica.AgentDir(dir), control.SocketName)); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, dir); s.State != state.Streaming || s.Node != "s" {
		t.Errorf("without its socket: %+v", s)
	}
	slave.term()

	left(t, dir, exitNotConnected, "source", "c1/b1", "verified", "up to ", "lock", "free", "no agent works on the replica at "+dir)
	stdout, stderr, code := haagentCommand(t, "promote", "--dir", dir, "--yes")
	if code != exitOK {
		t.Fatalf("promote ended with %d: %s%s", code, stdout, stderr)
	}
	left(t, dir, exitDifferent, "was promoted (epoch 1)", "belongs to a broker", "c1/b1")
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	left(t, dir, exitDifferent, "its broker has it open")
	closeLock(t, lock)
	late := r.startSlave(dir, "late", r.gossip(host)) // an agent that must not be there answers all the same
	late.waitCode(state.Promoted, "promoted")
	if s := statusOf(t, dir); s.State != state.Promoted || s.Node != "late" {
		t.Errorf("%+v", s)
	}
}

// left asks for the status of a directory that no agent works on.
func left(t *testing.T, dir string, want int, says ...string) {
	t.Helper()
	stdout, stderr, code := haagentCommand(t, "status", "--dir", dir)
	if code != want || !strings.Contains(stderr, "\nTry: ") {
		t.Errorf("status ended with %d: %s%s", code, stdout, stderr)
	}
	for _, text := range says {
		if !strings.Contains(stdout+stderr, text) {
			t.Errorf("%q is missing in\n%s%s", text, stdout, stderr)
		}
	}
	if stdout, _, code := haagentCommand(t, "status", "--dir", dir, "--json"); code != want || stdout != "" {
		t.Errorf("as JSON it ended with %d: %s", code, stdout)
	}
}

// TestStatus_SaysWhoAnswers: of two agents that were to have the default port one
// has another, and says so; who asks there hears which one answers, and of the other.
func TestStatus_SaysWhoAnswers(t *testing.T) {
	t.Parallel() // most of the time is waiting
	r := newRing(t)
	a := r.startSlave(t.TempDir(), "a", r.gossip(r.host()))
	b := r.startSlave(t.TempDir(), "b", r.gossip(r.host()))
	fallback := "level=WARN msg=\"the default port is taken, another one is used"
	if text := a.log.String() + b.log.String(); !strings.Contains(text, fallback) || !strings.Contains(text, "taken=127.0.0.1:10916 used=127.0.0.1:") {
		t.Errorf("neither says that the default port is taken:\n%s", text)
	}
	for _, command := range []string{"status", "members"} {
		waitFor(t, command+" to name both", func() (string, bool) { // whoever has the default port may end meanwhile
			stdout, stderr, _ := haagentCommand(t, command)
			return stdout + stderr, strings.Contains(stdout+stderr, a.dir) && strings.Contains(stdout+stderr, b.dir)
		})
	}
	stdout, stderr, code := haagentCommand(t, "status", "--http", a.http, "--dir", b.dir)
	if code != exitOK || !strings.Contains(stdout, "This is a, which works on "+a.dir+", and not the agent of "+b.dir) {
		t.Errorf("status ended with %d: %s%s", code, stdout, stderr)
	}
	if stdout, stderr, code := haagentCommand(t, "status", "--http", a.http, "--dir", a.dir); code != exitOK || strings.Contains(stdout, "This is") {
		t.Errorf("status ended with %d: %s%s", code, stdout, stderr)
	}
}

// TestStatus_IsItsUsersAndRoots: names have no mode, so the agent looks who asks.
func TestStatus_IsItsUsersAndRoots(t *testing.T) {
	root := worldDir(t)
	binary := filepath.Join(root, "haagent")
	if err := exec.Command("cp", testBinary(t), binary).Run(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "store")
	agent := startLonely(t, dir)
	agent.waitState(state.Searching)
	statusOf(t, dir)
	if os.Geteuid() != 0 { // who else could be asked as?
		return
	}
	cmd := self(binary, "status", "--dir", dir)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	stdout, stderr, code := finish(t, cmd)
	if code != exitNotConnected || stdout != "" || !strings.Contains(stderr, "only that user and root may ask it") || !strings.Contains(stderr, "Try: ") {
		t.Errorf("asked as nobody it ended with %d: %s%s", code, stdout, stderr)
	}
}

// TestStatus_OfAStoppedProcess: who hangs is not taken for one that is not there.
func TestStatus_OfAStoppedProcess(t *testing.T) {
	t.Parallel() // it takes ten seconds
	dir := t.TempDir()
	agent := startLonely(t, dir)
	agent.waitState(state.Searching)
	agent.signal(syscall.SIGSTOP)
	stdout, stderr, code := haagentCommand(t, "status", "--dir", dir)
	if code != exitNotConnected || stdout != "" || !strings.Contains(stderr, "no answer in time") || !strings.Contains(stderr, "was stopped") {
		t.Errorf("status ended with %d: %s%s", code, stdout, stderr)
	}
	agent.signal(syscall.SIGCONT)
	if s := statusOf(t, dir); s.State != state.Searching {
		t.Errorf("%+v", s)
	}
}
