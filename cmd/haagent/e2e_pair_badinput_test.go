//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// forgeStore writes a store without a broker; each is like the other.
func forgeStore(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: 64 * wire.KiB})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, w) })
	for range 100 {
		m := forge.Message{Topic: "forged", QueueOffset: forge.NextQueueOffset, Body: make([]byte, 2000), StoreTimestamp: 1_700_000_000_000}
		if _, err := w.Append(m); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startForgedMaster starts a master agent without a broker.
func (r *ring) startForgedMaster(dir, node, host string, args ...string) *haagent {
	r.t.Helper()
	alone := []string{"--broker", "127.0.0.1:1", "--cluster", "c1", "--broker-name", "b1"}
	return r.startMaster(dir, node, host, append(alone, args...)...)
}

// refused runs an agent that must not start: it ends with a code, and says a text
// and a next step.
func (r *ring) refused(code int, text string, args ...string) {
	r.t.Helper()
	stdout, stderr, got := haagentCommand(r.t, args...)
	if got != code || !strings.Contains(stderr, text) || !strings.Contains(stderr, "\nTry: ") {
		r.t.Errorf("%v ended with %d, want %d and %q: %s%s", args, got, code, text, stdout, stderr)
	}
}

// TestPair_BadInput is what operators get wrong when they set up a pair.
func TestPair_BadInput(t *testing.T) {
	t.Parallel() // most of the time is waiting
	r := newRing(t)
	r.makeKey()
	host := r.host()
	master := r.startForgedMaster(forgeStore(t), "m1", host)
	slave := r.startSlave(t.TempDir(), "s1", r.gossip(host))
	slave.waitState(state.Streaming)

	t.Run("OtherKey", func(t *testing.T) {
		other := newRing(t)
		other.makeKey()
		stranger := other.startSlave(t.TempDir(), "s9", r.gossip(host))
		s := stranger.waitCode(state.Unauthorized, "wrong_key")
		if !strings.Contains(s.Try, "--key-file") {
			t.Errorf("the next step is %q", s.Try)
		}
		_, stderr, code := haagentCommand(t, "status", "--max-lag", "5s", "--http", stranger.http)
		if code != exitAuth {
			t.Errorf("status ended with %d: %s", code, stderr)
		}
		if got := member(master.status(), "s9"); got != "" {
			t.Errorf("the ring has the stranger as %s", got)
		}
		stranger.term()
	})
	t.Run("OtherCluster", func(t *testing.T) {
		lost := r.startSlave(t.TempDir(), "s8", r.gossip(host), "--cluster", "c2")
		lost.waitMember("m1", "alive")
		s := lost.waitStatus("no master of that cluster", func(s control.Status) bool {
			return s.State == state.Searching && strings.Contains(s.Reason, "c2")
		})
		if s.Try == "" {
			t.Errorf("there is no next step: %+v", s)
		}
		if _, ok := follower(master.status(), "s8"); ok {
			t.Error("it follows the master of another cluster")
		}
		lost.term()
	})
	t.Run("SecondMaster", func(t *testing.T) { checkSecondMaster(t, r, master, slave, host) })
	t.Run("UnpromotedReplica", func(t *testing.T) {
		slave.term()
		r.refused(exitIncompatible, "was not promoted", "--role", "master", "--dir", slave.dir, "--gossip-bind", r.host(), "--http", "")
	})
	t.Run("PromotedReplica", func(t *testing.T) { checkPromotedIsTheBrokers(t, r, slave.dir) })
	t.Run("ResyncUnderAMaster", func(t *testing.T) {
		r.refused(exitLocked, "agent.lock", "resync", "--dir", master.dir, "--yes")
		master.waitState(state.Serving)
	})
	t.Run("NoKey", func(t *testing.T) {
		dir := forgeStore(t)
		r.refused(exitConfig, "link-bind", "--role", "master", "--dir", dir, "--gossip-bind", r.host(), "--link-bind", "0.0.0.0:0", "--http", "")
		r.refused(exitConfig, "gossip-bind", "--role", "master", "--dir", dir, "--gossip-bind", "0.0.0.0:0", "--http", "")
		r.refused(exitConfig, "join", "--role", "slave", "--dir", t.TempDir(), "--join", "192.0.2.1", "--gossip-bind", r.host(), "--http", "")
	})
	t.Run("KeyFile", func(t *testing.T) {
		dir, open := t.TempDir(), filepath.Join(t.TempDir(), "open.key")
		if err := os.WriteFile(open, mustRead(t, r.key), 0o644); err != nil {
			t.Fatal(err)
		}
		r.refused(exitAuth, open, "--role", "slave", "--dir", dir, "--key-file", open)
		r.refused(exitAuth, "none.key", "--role", "slave", "--dir", dir, "--key-file", filepath.Join(dir, "none.key"))
		r.refused(exitConfig, "left alone", "keygen", r.key)
	})
}

// checkPromotedIsTheBrokers: an agent that is started on a promoted replica, as a
// service is at boot, says what it found and leaves the lock to the broker.
func checkPromotedIsTheBrokers(t *testing.T, r *ring, dir string) {
	t.Helper()
	if stdout, stderr, code := haagentCommand(t, "promote", "--dir", dir, "--yes"); code != exitOK {
		t.Fatalf("promote ended with %d: %s%s", code, stdout, stderr)
	}
	late := r.startSlave(dir, "s1", r.gossip(r.host()))
	late.waitCode(state.Promoted, "promoted")
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		t.Fatalf("a broker could not boot: %v", err)
	}
	closeLock(t, lock)
	late.term()
}

// checkSecondMaster: two masters of one group stop each other. Nothing is acked
// until one is left, and then all goes on.
func checkSecondMaster(t *testing.T, r *ring, master, slave *haagent, host string) {
	t.Helper()
	second := r.startForgedMaster(forgeStore(t), "m2", r.host(), "--join", r.gossip(host))
	for _, a := range []*haagent{master, second, slave} {
		a.waitCode(state.SplitBrain, "two_masters")
	}
	for _, a := range []*haagent{master, second} {
		stdout, stderr, code := haagentCommand(t, "wait", "--http", a.http, "--offset", "0", "--timeout", "1s")
		if code != exitNoSlave || stdout != "SLAVE_NOT_AVAILABLE\n" {
			t.Errorf("wait ended with %d: %s%s", code, stdout, stderr)
		}
		if _, stderr, code := haagentCommand(t, "status", "--max-lag", "5s", "--http", a.http); code != exitDifferent {
			t.Errorf("status ended with %d: %s", code, stderr)
		}
	}
	second.term()
	master.waitState(state.Serving)
	end := slave.waitState(state.Streaming).Offsets.Verified
	if got := master.wait(control.WaitRequest{Offset: end, Acks: 1, Timeout: 30 * time.Second}); got.Result != acks.PutOK {
		t.Errorf("one master is left, and wait says %+v", got)
	}
}
