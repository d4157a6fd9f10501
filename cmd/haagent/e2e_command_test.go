//go:build linux

package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// TestCommandLine_ExitCodes goes through what ends a process before it begins:
// scripts and units compare the numbers, people read the next step.
func TestCommandLine_ExitCodes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(t, l)
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string // in stderr, or in stdout where the code is 0
	}{
		{"help", []string{"--help"}, exitOK, "EXIT CODES"},
		{"nothing", nil, exitOK, "EXIT CODES"},
		{"version", []string{"version"}, exitOK, "haagent"},
		{"unknown flag", []string{"--role", "slave", "--spell"}, exitUsage, "spell"},
		{"unknown command", []string{"destroy"}, exitUsage, "destroy"},
		{"flag of a command", []string{"verify", "--spell"}, exitUsage, "spell"},
		{"verify nothing", []string{"verify"}, exitUsage, "one or two"},
		{"promote where", []string{"promote", "--yes"}, exitUsage, "--dir"},
		{"promote unasked", []string{"promote", "--dir", dir}, exitUsage, "--yes"},
		{"resync unasked", []string{"resync", "--dir", dir}, exitUsage, "--yes"},
		{"no directory", []string{"--role", "slave"}, exitConfig, "--dir"},
		{"no such role", []string{"--role", "king", "--dir", dir}, exitConfig, "king"},
		{"several directories", []string{"--role", "slave", "--dir", dir + ",b"}, exitConfig, "several"},
		{"no port", []string{"--role", "slave", "--dir", dir, "--master", "localhost"}, exitConfig, "localhost"},
		{"segment size", []string{"--role", "slave", "--dir", dir, "--segment-size", "much"}, exitConfig, "much"},
		{"ack", []string{"--role", "slave", "--dir", dir, "--ack", "paper"}, exitConfig, "paper"},
		{"log level", []string{"--role", "slave", "--dir", dir, "--log-level", "loud"}, exitConfig, "loud"},
		{"port in use", []string{"--role", "slave", "--dir", dir, "--http", l.Addr().String()}, exitConfig, l.Addr().String()},
		{"nobody to ask", []string{"status", "--dir", dir}, exitNotConnected, "no agent"},
		{"verify no store", []string{"verify", dir}, exitIncompatible, "not a store"},
		{"promote no replica", []string{"promote", "--dir", dir, "--yes"}, exitIncompatible, "no replica"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := haagentCommand(t, c.args...)
			if code != c.code {
				t.Fatalf("ended with %d, not %d:\n%s%s", code, c.code, stdout, stderr)
			}
			talk, silent := stderr, stdout
			if code == exitOK {
				talk, silent = stdout, stderr
			} else if !strings.Contains(stderr, "Try: ") {
				t.Errorf("no next step: %s", stderr)
			}
			if !strings.Contains(talk, c.says) || silent != "" {
				t.Errorf("stdout is %q, stderr %q: %q is expected in one of them alone", stdout, stderr, c.says)
			}
		})
	}
	if left := listing(t, dir); left != "" {
		t.Errorf("commands that failed left\n%s", left)
	}
}

// TestUnwritableDirectory: a store that cannot be written to ends the agent at
// its start, with the exit code for disks.
func TestUnwritableDirectory(t *testing.T) {
	dir := worldDir(t)
	binary := filepath.Join(dir, "haagent")
	from, err := os.Open(testBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(t, from)
	to, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(dir, "store")
	if err := os.Mkdir(store, 0o555); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{nil, {"config", "check"}} {
		cmd := self(binary, append(command, "--role", "slave", "--dir", store, "--http", "127.0.0.1:0", "--master", "127.0.0.1:9")...)
		if os.Geteuid() == 0 { // to whom everything is writable
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		}
		_, stderr, code := finish(t, cmd)
		if code != exitDisk || !strings.Contains(stderr, "Try: ") || !strings.Contains(stderr, store) {
			t.Errorf("%v ended with %d: %s", command, code, stderr)
		}
	}
	if left := listing(t, store); left != "" {
		t.Errorf("written into it:\n%s", left)
	}
}

// worldDir returns a temporary directory that other users may enter.
func worldDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "haagent-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFault18_SearchingWritesNoLog: without a master the agent stays up, says
// what it needs, and asking for its progress makes no segment.
func TestFault18_SearchingWritesNoLog(t *testing.T) {
	dir := t.TempDir()
	agent := startAgent(t, dir)
	s := agent.waitState(state.Searching)
	if !strings.Contains(s.Try, "--master") || s.Offsets.Acked != wire.NoOffset {
		t.Errorf("%+v", s)
	}
	stdout, stderr, code := haagentCommand(t, "status", "--http", agent.http, "--max-lag", "1s")
	if code != exitNotConnected || !strings.Contains(stdout, "searching") || !strings.Contains(stdout, "--master") {
		t.Errorf("status ended with %d: %s%s", code, stdout, stderr)
	}
	for range 20 {
		agent.status()
	}
	agent.term()
	if left := contents(t, dir); left != "" {
		t.Errorf("written without a master:\n%s", left)
	}
}

// TestStatusAndTermination follows a broker that takes messages: the status can
// be had through the store's own socket, and SIGTERM leaves everything that was
// received on disk, bootable, and the lock free (I6, boot contract).
func TestStatusAndTermination(t *testing.T) {
	t.Parallel() // most of the time is waiting
	v := brokertest.Versions()[0]
	ns := brokertest.StartNameServer(t, v)
	master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
	d := brokertest.StartDriver(t, v, ns.Addr)
	dir := t.TempDir()
	d.Send(t, brokertest.SendSpec{Topic: "term", Count: 500, BodySize: 3000, Threads: 2})
	agent := startAgent(t, dir, "--master", master.Addr())
	agent.caughtUp(master)
	stdout, stderr, code := haagentCommand(t, "status", "--dir", dir, "--json", "--max-lag", "30s")
	var s control.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != exitOK || s.State != state.Streaming || s.Dir != dir {
		t.Errorf("status ended with %d, %v: %s%s", code, err, stdout, stderr)
	}
	_, stderr, code = haagentCommand(t, "--role", "slave", "--dir", dir, "--http", "127.0.0.1:0", "--master", master.Addr())
	if code != exitLocked || !strings.Contains(stderr, "Try: ") {
		t.Errorf("a second agent on the store ended with %d: %s", code, stderr)
	}

	stop := d.StartSending(t, brokertest.SendSpec{Topic: "term", BodySize: 500, Threads: 2, Rate: 500})
	before := agent.status().Offsets.Verified
	agent.waitStatus("growth", func(s control.Status) bool { return s.Offsets.Verified > before })
	verified := agent.status().Offsets.Verified
	agent.term()
	stop()
	checkBootContract(t, dir)
	kept, err := replica.ReadState(dir)
	if err != nil || kept.VerifiedEnd < verified || kept.Unsynced || kept.Promoted {
		t.Errorf("at least %d was verified, the state is %+v, %v", verified, kept, err)
	}
	if got := verifySame(t, master.Dir(), dir); got != kept.VerifiedEnd {
		t.Errorf("identical up to %d, the state says %d", got, kept.VerifiedEnd)
	}
	for _, seg := range segmentsOf(t, dir) {
		if seg.Size != wire.MiB {
			t.Errorf("I6: %s is %d bytes long", seg.Path, seg.Size)
		}
	}
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		t.Fatalf("the lock was not released: %v", err)
	}
	closeLock(t, lock)

	agent = startAgent(t, dir, "--master", master.Addr()) // goes on where it ended
	end := agent.caughtUp(master)
	agent.signal(syscall.SIGINT)
	if code := agent.exitWithin(endPatience); code != exitOK {
		t.Errorf("SIGINT ended with exit code %d", code)
	}
	if got := verifySame(t, master.Dir(), dir); got != end {
		t.Errorf("identical up to %d of %d", got, end)
	}
	stdout, stderr, code = haagentCommand(t, "promote", "--dir", dir, "--yes") // no agent runs there
	if code != exitOK || !strings.Contains(stdout, "to "+end.String()+",") || !strings.Contains(stdout, "mappedFileSizeCommitLog=1048576") {
		t.Errorf("promote ended with %d: %s%s", code, stdout, stderr)
	}
	checkBootContract(t, dir)
}

func segmentsOf(t *testing.T, dir string) []commitlog.Segment {
	t.Helper()
	segments, err := commitlog.List(replica.CommitLogDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	return segments
}

func closeLock(t *testing.T, lock *replica.Lock) {
	t.Helper()
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestFault10_HistoryOverTheHAPortAlone: with nothing but the HA port of a stock
// master, where a request for byte 0 means the last segment, the whole log comes
// all the same. There is nobody to ask for config files, and the status says so.
func TestFault10_HistoryOverTheHAPortAlone(t *testing.T) {
	t.Parallel()
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		ns := brokertest.StartNameServer(t, v)
		master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
		d := brokertest.StartDriver(t, v, ns.Addr)
		sent := d.Send(t, brokertest.SendSpec{Topic: "alone", Count: 1000, BodySize: 3000, Threads: 2})
		dir := t.TempDir()
		args := []string{"--master-ha", master.HAAddr(), "--segment-size", "1MiB", "--ack", "disk"}
		agent := startAgent(t, dir, args...)
		end := agent.caughtUp(master)
		if s := agent.status(); s.Offsets.Min != 0 || s.HistoryFrom != 0 || s.Metadata.AgeSeconds >= 0 {
			t.Errorf("%+v", s)
		}
		agent.kill()
		sent = append(sent, d.Send(t, brokertest.SendSpec{Topic: "alone", Count: 600, BodySize: 3000, Threads: 2})...)
		agent = startAgent(t, dir, args...) // whose end lies segments behind the source's
		end = max(end, agent.caughtUp(master))
		if got := agent.promote(); got != end {
			t.Errorf("promised up to %d of %d", got, end)
		}
		if got := verifySame(t, master.Dir(), dir); got != end {
			t.Errorf("identical up to %d of %d", got, end)
		}
		if first := segmentsOf(t, dir)[0].Base; first != 0 || len(sent) != 1600 {
			t.Errorf("the replica of %d messages begins at %d", len(sent), first)
		}
	})
}
