package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// besideStore returns the config of a master beside a forged store that no broker
// runs on.
func besideStore(t *testing.T, node string) agent.Config {
	t.Helper()
	dir := t.TempDir()
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: 64 * wire.KiB})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := w.Append(forge.Message{Topic: "t", QueueOffset: forge.NextQueueOffset}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return agent.Config{Role: agent.RoleMaster, Dir: dir, Node: node, Cluster: "c", BrokerName: "b", Broker: "127.0.0.1:1"}
}

func (s *served) await(want state.State, code string) {
	s.t.Helper()
	within(s.t, patience, string(want)+" "+code, func() bool {
		now := s.Status()
		return now.State == want && now.Code == code
	})
}

// otherMaster lets another master of the group appear in the town.
func otherMaster(w *town, epoch int64, status string) {
	w.change("n", func(m *agent.Member) {
		m.Role, m.Cluster, m.BrokerName, m.Epoch, m.Status, m.Link = "master", "c", "b", epoch, status, "10.0.0.1:10915"
	})
}

// TestMaster_NeverServesBelowAnEpochThatItSaw: whoever was promoted may have taken
// messages since, in reach or not, and a restart changes nothing about that.
func TestMaster_NeverServesBelowAnEpochThatItSaw(t *testing.T) {
	t.Parallel()
	w, cfg := newTown(), besideStore(t, "m")
	m := runAgent(t, w, cfg)
	m.await(state.Serving, "")
	otherMaster(w, 1, "alive")
	m.await(state.SplitBrain, "stale_epoch")
	otherMaster(w, 1, "suspect")
	m.await(state.SplitBrain, "stale_epoch")
	otherMaster(w, 1, "dead")
	m.await(state.SplitBrain, "stale_epoch")
	m.stop()

	again := runAgent(t, newTown(), cfg)
	again.await(state.SplitBrain, "stale_epoch")
	if s := again.Status(); s.State.Ready() || s.Try == "" {
		t.Errorf("%+v: want a next step, and not to be ready", s)
	}
}

// TestMaster_EqualRivalIsForgotten: two masters of one epoch serve nobody while
// both are alive, and the one that is left goes on.
func TestMaster_EqualRivalIsForgotten(t *testing.T) {
	t.Parallel()
	w := newTown()
	m := runAgent(t, w, besideStore(t, "m"))
	m.await(state.Serving, "")
	otherMaster(w, 0, "alive")
	m.await(state.SplitBrain, "two_masters")
	otherMaster(w, 0, "left")
	m.await(state.Serving, "")
}

// TestMaster_NameThatTwoClaimServesNobody (I4): acks count by node, and nobody can
// tell whom the others mean.
func TestMaster_NameThatTwoClaimServesNobody(t *testing.T) {
	t.Parallel()
	w := newTown()
	m := runAgent(t, w, besideStore(t, "m"))
	m.await(state.Serving, "")
	w.claim("other", "m")
	m.await(state.SplitBrain, "node_name_conflict")
	w.claim("other")
	m.await(state.Serving, "")
}

// TestMaster_SecondAgentOfAStoreIsLockedOut (I7).
func TestMaster_SecondAgentOfAStoreIsLockedOut(t *testing.T) {
	t.Parallel()
	w, cfg := newTown(), besideStore(t, "m")
	first := runAgent(t, w, cfg)
	first.await(state.Serving, "")
	second := cfg
	second.Node, second.LinkBind, second.Security, second.Finder = "second", "127.0.0.1:0", nil, citizen{w, "second"}
	a, err := agent.New(second, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.Run(ctx); !errors.Is(err, replica.ErrLocked) {
		t.Errorf("the second agent ended with %v, want locked", err)
	}
	if _, err := control.DialSocket(replica.AgentDir(cfg.Dir)).Status(t.Context()); err != nil {
		t.Errorf("the first agent's socket: %v", err)
	}
}

// TestMaster_TakesItsBrokersNames: names that were guessed while the broker was
// away are given up for its own, which are known from then on.
func TestMaster_TakesItsBrokersNames(t *testing.T) {
	t.Parallel()
	w, cfg := newTown(), besideStore(t, "m")
	cfg.Cluster, cfg.BrokerName = "", ""
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Broker = l.Addr().String()
	if err := l.Close(); err != nil { // the broker is not there yet
		t.Fatal(err)
	}
	m := runAgent(t, w, cfg)
	m.await(state.Serving, "")
	if s := m.Status(); s.BrokerName != "broker-a" || s.Cluster != "DefaultCluster" {
		t.Errorf("serves %s/%s, want RocketMQ's default names", s.Cluster, s.BrokerName)
	}
	stop := standIn(t, cfg)
	named := func(a *served) func() bool {
		return func() bool {
			s := a.Status()
			return s.State == state.Serving && s.Cluster == "its-cluster" && s.BrokerName == "its-name" && w.member("m").BrokerName == "its-name"
		}
	}
	within(t, patience, "the broker's own names", named(m))
	m.stop()
	stop()
	within(t, patience, "the same names without the broker, after a restart", named(runAgent(t, w, cfg)))
}

// standIn answers as the broker of a store at cfg.Broker until it is stopped.
func standIn(t *testing.T, cfg agent.Config) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", cfg.Broker)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(cfg.Broker)
	logDir := replica.CommitLogDir(cfg.Dir)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	end := func() wire.PhyOffset { return 0 }
	server := stock.NewRemotingServer(stock.RemotingServerOptions{Listener: l, Dir: cfg.Dir, CommitLogDir: logDir, SegmentSize: 64 * wire.KiB, Min: end, End: end,
		Config: map[string]string{"brokerClusterName": "its-cluster", "brokerName": "its-name", "brokerId": "0", "brokerRole": "SYNC_MASTER", "brokerIP2": "127.0.0.1",
			"listenPort": port, "haListenPort": port, "mappedFileSizeCommitLog": "65536", "flushDiskType": "ASYNC_FLUSH", "storePathCommitLog": logDir, "storePathRootDir": cfg.Dir}})
	go func() { done <- server.Run(ctx) }()
	return func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("the stand-in does not end")
		}
	}
}
