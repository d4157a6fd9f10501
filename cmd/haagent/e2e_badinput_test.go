//go:build linux

package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// fakes are masters that break the protocol, and what an agent must say of them.
// own is the end of the replica, master the store that it is a copy of.
var fakes = []struct {
	name   string
	state  state.State
	code   string
	answer func(to io.Writer, request, own wire.PhyOffset, master string) error
}{
	{"Fault4_NegativeLength", state.ProtocolError, "bad_frame", func(to io.Writer, request, _ wire.PhyOffset, _ string) error {
		return header(to, request, -1)
	}},
	{"Fault4_LengthOf2GiB", state.ProtocolError, "bad_frame", func(to io.Writer, request, _ wire.PhyOffset, _ string) error {
		return header(to, request, math.MaxInt32)
	}},
	{"Fault17_NegativeOffset", state.ProtocolError, "bad_frame", func(to io.Writer, _, _ wire.PhyOffset, _ string) error {
		return header(to, wire.NoOffset, 100)
	}},
	{"Fault11_OffsetBeyondTheRequest", state.ProtocolError, "offset_mismatch", func(to io.Writer, request, own wire.PhyOffset, _ string) error {
		if err := header(to, max(request, own).Add(1000), 100); err != nil {
			return err
		}
		_, err := to.Write(make([]byte, 100))
		return err
	}},
	{"HeartbeatFarAway", state.ProtocolError, "offset_mismatch", func(to io.Writer, _, _ wire.PhyOffset, _ string) error {
		return header(to, math.MaxInt64-1, 0)
	}},
	{"HTTP", state.ProtocolError, "bad_frame", func(to io.Writer, _, _ wire.PhyOffset, _ string) error {
		_, err := io.WriteString(to, "HTTP/1.1 400 Bad Request\r\n\r\n")
		return err
	}},
	{"NoMessages", state.ProtocolError, "corrupt_message", func(to io.Writer, request, own wire.PhyOffset, master string) error {
		if err := sendLog(to, master, request, own); err != nil {
			return err
		}
		if err := header(to, max(request, own), 4096); err != nil {
			return err
		}
		_, err := to.Write(bytes.Repeat([]byte{0, 0, 1, 7}, 1024))
		return err
	}},
	{"OtherBytes", state.Diverged, "diverged", func(to io.Writer, request, _ wire.PhyOffset, _ string) error {
		if err := header(to, request, int32(ha.StockBatch)); err != nil {
			return err
		}
		_, err := to.Write(bytes.Repeat([]byte{0xee}, int(ha.StockBatch)))
		return err
	}},
	{"HeartbeatsOnly", state.Gap, "heartbeats_only", func(to io.Writer, request, _ wire.PhyOffset, _ string) error {
		return header(to, request, 0)
	}},
}

// TestBadInput gives an agent what it cannot follow: each has a state, a code
// and a next step of its own, nothing is written into the directory, and nothing
// is reported that the replica does not hold.
func TestBadInput(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		ns := brokertest.StartNameServer(t, v)
		master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
		d := brokertest.StartDriver(t, v, ns.Addr)
		d.Send(t, brokertest.SendSpec{Topic: "bad", Count: 600, BodySize: 2500, Threads: 2})

		t.Run("WrongSource", func(t *testing.T) { checkWrongSource(t, master) })
		t.Run("WrongDirectory", func(t *testing.T) { checkWrongDirectory(t, master) })
		dir := filepath.Join(t.TempDir(), "replica")
		agent := startAgent(t, dir, "--master", master.Addr())
		end := agent.caughtUp(master)
		checkConfigFiles(t, agent)
		agent.term()
		for _, fake := range fakes {
			t.Run(fake.name, func(t *testing.T) {
				peer := startFakeMaster(t, func(to io.Writer, request wire.PhyOffset) error {
					return fake.answer(to, request, end, master.Dir())
				})
				log := filepath.Join(dir, "commitlog")
				before := contents(t, log)
				agent := startAgent(t, dir, "--master", master.Addr(), "--master-ha", peer.addr)
				s := agent.waitCode(fake.state, fake.code)
				if s.Offsets.Acked != end || s.Offsets.Verified != end {
					t.Errorf("offsets are %+v, the replica ends at %d", s.Offsets, end)
				}
				agent.term()
				if after := contents(t, log); after != before {
					t.Errorf("the replica was changed from\n%s\nto\n%s", before, after)
				}
				if got := peer.highestReport(); got > end {
					t.Errorf("I3: %d was reported of a replica that ends at %d", got, end)
				}
			})
		}
		t.Run("WrongReplica", func(t *testing.T) { checkWrongReplica(t, master, dir) })
		t.Run("Fault23_BrokerHoldsTheLock", func(t *testing.T) { checkLocked(t, v, master, dir) })
	})
}

// TestBadInput_EmptyReplicaOfAFake is the same for an agent that knows nothing
// but the fake's HA port: its directory stays without a byte of log.
func TestBadInput_EmptyReplicaOfAFake(t *testing.T) {
	t.Parallel() // most of the time is waiting
	for _, fake := range fakes {
		if fake.state != state.ProtocolError || fake.code == "corrupt_message" {
			continue // the others need something to compare with
		}
		t.Run(fake.name, func(t *testing.T) {
			t.Parallel()
			peer := startFakeMaster(t, func(to io.Writer, request wire.PhyOffset) error {
				return fake.answer(to, request, 0, "")
			})
			dir := t.TempDir()
			agent := startAgent(t, dir, "--master-ha", peer.addr)
			agent.waitCode(fake.state, fake.code)
			agent.term()
			if after := contents(t, dir); after != "" {
				t.Errorf("written into the empty directory:\n%s", after)
			}
			if got := peer.highestReport(); got > 1 { // 1 asks for the whole history
				t.Errorf("I3: an empty replica reported %d", got)
			}
		})
	}
}

// contents is what a listing says of a store but for what haagent and brokers
// keep in it beside log and config.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var files []string
	for _, line := range strings.Split(listing(t, dir, ".haagent", "lock", "abort"), "\n") {
		path, _, _ := strings.Cut(line, " ")
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			continue
		}
		files = append(files, path+" "+sum(t, path))
	}
	return strings.Join(files, "\n")
}

// checkWrongSource: the broker is not the one that the flags describe.
func checkWrongSource(t *testing.T, master *brokertest.Broker) {
	for _, c := range []struct {
		name, code string
		args       []string
	}{
		{"SegmentSize", "segment_size", []string{"--segment-size", "2MiB"}},
		{"Cluster", "wrong_cluster", []string{"--cluster", "other"}},
		{"BrokerName", "wrong_broker", []string{"--broker-name", "broker-z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			agent := startAgent(t, dir, append(c.args, "--master", master.Addr())...)
			agent.waitCode(state.Incompatible, c.code)
			agent.term()
			if after := listing(t, dir, "lock"); after != "" {
				t.Errorf("written into the empty directory:\n%s", after)
			}
		})
	}
	t.Run("HTTP", func(t *testing.T) {
		dir := t.TempDir()
		agent := startAgent(t, dir, "--master", startHTTP(t))
		agent.waitCode(state.ProtocolError, "not_remoting")
		agent.term()
		if after := listing(t, dir, "lock"); after != "" {
			t.Errorf("written into the empty directory:\n%s", after)
		}
	})
	t.Run("HAPort", func(t *testing.T) { // the one mistake that could count as an ack
		agent := startAgent(t, t.TempDir(), "--master", master.HAAddr())
		s := agent.waitStatus("a reason", func(s control.Status) bool { return s.Reason != "" && s.State != state.Streaming })
		if s.Offsets.Acked > 0 {
			t.Errorf("%+v", s.Offsets)
		}
		agent.term()
	})
}

// checkWrongDirectory: the directory is not one to replicate into.
func checkWrongDirectory(t *testing.T, master *brokertest.Broker) {
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "thesis.txt"), []byte("of a whole life"), 0o600); err != nil {
		t.Fatal(err)
	}
	stopped := t.TempDir()
	if err := os.CopyFS(filepath.Join(stopped, "commitlog"), os.DirFS(filepath.Join(master.Dir(), "commitlog"))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dir, code string }{
		{"NotAStore", other, "not_a_store"},
		{"StoreOfABroker", stopped, "foreign_store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := listing(t, c.dir)
			agent := startAgent(t, c.dir, "--master", master.Addr())
			s := agent.waitCode(state.Incompatible, c.code)
			if !strings.Contains(s.Reason, c.dir) {
				t.Errorf("the reason does not tell where: %s", s.Reason)
			}
			agent.term()
			if after := listing(t, c.dir); after != before {
				t.Errorf("changed from\n%s\nto\n%s", before, after)
			}
		})
	}
	t.Run("StoreOfTheMaster", func(t *testing.T) {
		_, stderr, code := haagentCommand(t, "--role", "slave", "--dir", master.Dir(), "--http", "127.0.0.1:0", "--master", master.Addr())
		if code != exitLocked || !strings.Contains(stderr, "Try:") {
			t.Errorf("ended with %d: %s", code, stderr)
		}
		if _, err := os.Stat(filepath.Join(master.Dir(), ".haagent")); err == nil {
			t.Error("the master's own store was made a replica")
		}
	})
}

// checkWrongReplica: the replica is a good one, but not for what was asked.
func checkWrongReplica(t *testing.T, master *brokertest.Broker, dir string) {
	for _, c := range []struct {
		name, code string
		args       []string
	}{
		{"SegmentSize", "segment_size", []string{"--segment-size", "2MiB"}},
		{"Cluster", "wrong_cluster", []string{"--cluster", "other"}},
		{"BrokerName", "wrong_broker", []string{"--broker-name", "broker-z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := contents(t, dir)
			agent := startAgent(t, dir, append(c.args, "--master", master.Addr())...)
			agent.waitCode(state.Incompatible, c.code)
			agent.term()
			if after := contents(t, dir); after != before {
				t.Errorf("changed from\n%s\nto\n%s", before, after)
			}
		})
	}
	t.Run("ForeignFile", func(t *testing.T) {
		note := filepath.Join(dir, "commitlog", "note.txt")
		if err := os.WriteFile(note, []byte("by hand"), 0o600); err != nil {
			t.Fatal(err)
		}
		before := contents(t, dir)
		agent := startAgent(t, dir, "--master", master.Addr())
		s := agent.waitCode(state.Incompatible, "foreign_file")
		if !strings.Contains(s.Reason+s.Try, note) {
			t.Errorf("nobody is told which file: %+v", s)
		}
		if after := contents(t, dir); after != before {
			t.Errorf("changed from\n%s\nto\n%s", before, after)
		}
		if err := os.Remove(note); err != nil {
			t.Fatal(err)
		}
		agent.waitState(state.Streaming) // by itself, when the cause is gone
		agent.term()
	})
}

// checkLocked boots an unmodified broker on a replica. While it runs, the agent
// ends with 10; once it has run, the agent does not go on by itself.
func checkLocked(t *testing.T, v brokertest.Version, master *brokertest.Broker, dir string) {
	heir := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, Dir: dir, Name: "broker-b"})
	args := []string{"--role", "slave", "--dir", dir, "--http", "127.0.0.1:0", "--master", master.Addr()}
	_, stderr, code := haagentCommand(t, args...)
	if code != exitLocked || !strings.Contains(stderr, "Try:") || !strings.Contains(stderr, dir) {
		t.Errorf("beside a broker the agent ended with %d: %s", code, stderr)
	}
	if !heir.Running() {
		t.Error("the broker was disturbed")
	}
	heir.Kill()
	before := contents(t, dir)
	agent := startAgent(t, dir, "--master", master.Addr())
	agent.waitCode(state.Disturbed, "broker_wrote")
	agent.term()
	if after := contents(t, dir); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
	stdout, stderr, code := haagentCommand(t, "resync", "--dir", dir, "--yes")
	if code != exitOK || !strings.Contains(stdout, ".haagent") {
		t.Fatalf("resync ended with %d: %s%s", code, stdout, stderr)
	}
	agent = startAgent(t, dir, "--master", master.Addr())
	agent.caughtUp(master)
	agent.promote()
	if aside, err := filepath.Glob(filepath.Join(dir, ".haagent", "set-aside", "*", "commitlog", "*")); err != nil || !slices.ContainsFunc(aside, func(s string) bool { return strings.HasSuffix(s, "00000000000000000000") }) {
		t.Errorf("the old log is not there any more: %v, %v", aside, err)
	}
	agent = startAgent(t, dir, "--master", master.Addr())
	agent.waitCode(state.Promoted, "promoted")
	agent.term()
}
