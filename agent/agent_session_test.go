package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

// Fault 18: an agent that knows no master waits for one, whoever looks at it.
func TestFault18_SearchingCreatesNoLog(t *testing.T) {
	dir := t.TempDir()
	a := start(t, agent.Config{Dir: dir})
	a.await(state.Searching, "")
	for range 200 {
		if s := a.Status(); s.Try == "" || s.Offsets.Verified != wire.NoOffset || s.LagBytes != 0 {
			t.Fatalf("status %+v", s)
		}
	}
	if got, err := os.ReadDir(filepath.Join(dir, "commitlog")); err == nil && len(got) > 0 {
		t.Errorf("segments %v", got)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

// A replica with a log waits for its master just so, and may be promoted.
func TestSearching_WithAReplica(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(100 * wire.KiB)
	dir := t.TempDir()
	a := start(t, agent.Config{Dir: dir, Master: src.addr()})
	a.caughtUp(src)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	a = start(t, agent.Config{Dir: dir})
	a.await(state.Searching, "")
	if s := a.Status(); s.Offsets.Verified != src.end() || s.BrokerName != "b1" || s.SegmentSize != src.size {
		t.Errorf("status %+v", s)
	}
	client := control.DialSocket(replica.AgentDir(dir))
	eventually(t, "the socket", func() bool { _, err := client.Status(t.Context()); return err == nil })
	if _, err := client.Promote(t.Context()); err != nil {
		t.Error(err)
	}
	if err := a.ended(); err != nil {
		t.Error(err)
	}
}

// An agent waits for a source that is not there yet, and says so.
func TestConnecting_BeforeTheSourceIsThere(t *testing.T) {
	l := listen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a := start(t, agent.Config{Dir: t.TempDir(), Master: l.Addr().String(), HTTP: "127.0.0.1:0"})
	eventually(t, "a reason", func() bool { return a.Status().State == state.Connecting && a.Status().Reason != "" })
	if a.Status().State.Ready() {
		t.Error("ready")
	}
	if err := a.stop(); err != nil {
		t.Errorf("stopped: %v", err)
	}
}

// Promotion through the socket ends the agent, and leaves what a broker boots
// on: everything that was acknowledged, abort, no derived files, no lock.
func TestPromote_ThroughTheSocket(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(200 * wire.KiB)
	dir := t.TempDir()
	a := start(t, agent.Config{Dir: dir, Master: src.addr()})
	a.caughtUp(src)
	client := control.DialSocket(replica.AgentDir(dir))
	if s, err := client.Status(t.Context()); err != nil || s.State != state.Streaming {
		t.Errorf("status over the socket: %+v, %v", s, err)
	}
	p, err := client.Promote(t.Context())
	if err != nil || p.End != src.end() || p.Min != 0 || p.Epoch != 1 || p.BrokerName != "b1" || p.Cluster != "c1" || p.Dir != dir {
		t.Errorf("promotion %+v, %v", p, err)
	}
	if err := a.ended(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	if now := a.Status().State; now != state.Promoted {
		t.Errorf("state %s", now)
	}
	same(t, src, dir)
	if _, err := os.Stat(filepath.Join(dir, "abort")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"checkpoint", "consumequeue", "index"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	// It belongs to a broker now.
	a = start(t, agent.Config{Dir: dir, Master: src.addr()})
	a.await(state.Promoted, "promoted")
	if got := a.Status().Try; !strings.Contains(got, "resync") {
		t.Errorf("next step %q", got)
	}
}

// Correction 1: what somebody else does to the replica is noticed, and undone.
func TestDisturbed_Recovers(t *testing.T) {
	for name, disturb := range map[string]func(dir string) error{
		"last segment deleted":   func(dir string) error { return os.Remove(filepath.Join(dir, "commitlog", commitlog.Name(3*64<<10))) },
		"middle segment deleted": func(dir string) error { return os.Remove(filepath.Join(dir, "commitlog", commitlog.Name(64<<10))) },
		"checkpoint written": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "checkpoint"), make([]byte, 4096), 0o600)
		},
		"abort removed": func(dir string) error { return os.Remove(filepath.Join(dir, "abort")) },
		"queues built":  func(dir string) error { return os.MkdirAll(filepath.Join(dir, "consumequeue", "t", "0"), 0o750) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := newSource(t, 64*wire.KiB)
			for src.end() < 3*64<<10+1000 {
				src.grow(5000)
			}
			dir := t.TempDir()
			a := start(t, agent.Config{Dir: dir, Master: src.addr()})
			a.caughtUp(src)
			if err := disturb(dir); err != nil {
				t.Fatal(err)
			}
			a.await(state.Disturbed, "disturbed")
			if a.Status().State.Ready() {
				t.Error("ready while disturbed")
			}
			src.grow(1000)
			a.caughtUp(src)
			same(t, src, dir)
			if _, err := os.Stat(filepath.Join(dir, "checkpoint")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("checkpoint: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "abort")); err != nil {
				t.Error(err)
			}
			if err := a.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Fault 23: two agents never write into one replica, whomever they follow.
func TestFault23_SecondAgentIsRefused(t *testing.T) {
	one, other := newSource(t, 64*wire.KiB), newSource(t, 64*wire.KiB)
	other.grow(300 * wire.KiB)
	one.grow(100 * wire.KiB)
	dir := t.TempDir()
	a := start(t, agent.Config{Dir: dir, Master: one.addr()})
	a.caughtUp(one)
	b := start(t, agent.Config{Dir: dir, Master: other.addr()})
	err := b.ended()
	if p := state.AsProblem(err); p == nil || p.State != state.Locked || !errors.Is(err, replica.ErrLocked) {
		t.Errorf("the second agent ended with %v", err)
	}
	if got := other.maxReport(); got != wire.NoOffset {
		t.Errorf("the second agent reported %d", got)
	}
	one.grow(1000)
	a.caughtUp(one)
	if _, err := control.DialSocket(replica.AgentDir(dir)).Status(t.Context()); err != nil {
		t.Errorf("the first one's socket: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	same(t, one, dir)
}

// Names that do not fit end in a state, not in a log of two sources.
func TestIncompatible_WrongNames(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(1000)
	for code, cfg := range map[string]agent.Config{
		"wrong_cluster": {Cluster: "c2"},
		"wrong_broker":  {BrokerName: "b2"},
		"segment_size":  {SegmentSize: 128 * wire.KiB},
	} {
		cfg.Dir, cfg.Master = t.TempDir(), src.addr()
		a := start(t, cfg)
		a.await(state.Incompatible, code)
		if err := a.stop(); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
	if got := src.maxReport(); got != wire.NoOffset {
		t.Errorf("report %d", got)
	}
}

// A directory that is something else is never written into.
func TestIncompatible_OtherDirectories(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(1000)
	own := newSource(t, 64*wire.KiB)
	own.grow(1000)
	photos := t.TempDir()
	if err := os.WriteFile(filepath.Join(photos, "cat.jpg"), []byte("cat"), 0o600); err != nil {
		t.Fatal(err)
	}
	for code, dir := range map[string]string{"foreign_store": own.dir, "not_a_store": photos} {
		before := names(t, dir)
		a := start(t, agent.Config{Dir: dir, Master: src.addr()})
		a.await(state.Incompatible, code)
		if err := a.stop(); err != nil {
			t.Errorf("%s: %v", code, err)
		}
		if after := names(t, dir); before != after {
			t.Errorf("%s: %s, was %s", code, after, before)
		}
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// Config files of the source come along with the log.
func TestI5_ConfigFilesFollow(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(1000)
	topics := `{"dataVersion":{"counter":1,"timestamp":1700000000000},"topicConfigTable":{"orders":{"topicName":"orders"}}}`
	if err := os.MkdirAll(filepath.Join(src.dir, "config"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src.dir, "config", "topics.json"), []byte(topics), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	a := start(t, agent.Config{Dir: dir, Master: src.addr(), MetadataInterval: time.Second})
	a.caughtUp(src)
	path := filepath.Join(dir, "config", "topics.json")
	eventually(t, "topics.json", func() bool { b, err := os.ReadFile(path); return err == nil && string(b) == topics })
	if err := os.WriteFile(path, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is put back", func() bool { b, err := os.ReadFile(path); return err == nil && string(b) == topics })
	a.caughtUp(src)
	eventually(t, "its place in the status", func() bool {
		m := a.Status().Metadata
		return m.Generation > 0 && m.AgeSeconds >= 0 && len(m.Files) > 0
	})
}

// Promotion of a directory that no agent works on.
func TestPromoteDir(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(100 * wire.KiB)
	dir := t.TempDir()
	if _, err := agent.PromoteDir(dir); state.AsProblem(err) == nil || state.AsProblem(err).Code != "no_replica" {
		t.Errorf("an empty directory: %v", err)
	}
	a := start(t, agent.Config{Dir: dir, Master: src.addr()})
	a.caughtUp(src)
	if _, err := agent.PromoteDir(dir); !errors.Is(err, replica.ErrLocked) {
		t.Errorf("while an agent works on it: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	first, err := agent.PromoteDir(dir)
	if err != nil || first.End != src.end() || first.Epoch != 1 {
		t.Errorf("promotion %+v, %v", first, err)
	}
	if again, err := agent.PromoteDir(dir); err != nil || again != first {
		t.Errorf("again: %+v, %v; the first time %+v", again, err, first)
	}
	r, err := verify.Store(context.Background(), dir, nil)
	if err != nil || r.End != src.end() || r.Bad != nil || r.Torn != nil {
		t.Errorf("store %+v, %v", r, err)
	}
}
