package agent_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// syncBroker is a SYNC_MASTER as seen from outside, which notes what its slaves
// report.
type syncBroker struct {
	*forge.Writer
	dir, addr string

	mu    sync.Mutex
	last  wire.PhyOffset // the last report of the last connection
	slave int            // connections now
}

func newSyncBroker(t *testing.T, properties map[string]string) *syncBroker {
	t.Helper()
	b := &syncBroker{dir: t.TempDir(), last: wire.NoOffset}
	var err error
	if b.Writer, err = forge.Open(forge.Options{Dir: b.dir, SegmentSize: wire.MiB, Running: true}); err != nil {
		t.Fatal(err)
	}
	ha, remoting := listen(t), listen(t)
	b.addr = remoting.Addr().String()
	config := map[string]string{"brokerClusterName": "c", "brokerName": "b", "brokerId": "0", "brokerRole": "SYNC_MASTER", "listenPort": port(t, remoting), "haListenPort": port(t, ha),
		"mappedFileSizeCommitLog": strconv.Itoa(int(wire.MiB)), "storePathCommitLog": b.CommitLogDir(), "storePathRootDir": b.dir}
	for k, v := range properties {
		config[k] = v
	}
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return stock.NewHAServer(stock.HAServerOptions{Listener: ha, CommitLogDir: b.CommitLogDir(), SegmentSize: wire.MiB, End: b.End,
			OnReport: func(_ net.Addr, off wire.PhyOffset, request bool) {
				b.note(func() {
					b.last = off
					if request {
						b.slave++
					}
				})
				if off > b.End() {
					t.Errorf("reported %d, the log ends at %d", off, b.End())
				}
			},
			OnClose: func(net.Addr, error) { b.note(func() { b.slave-- }) }}).Run(ctx)
	})
	group.Go(func() error {
		o := stock.RemotingServerOptions{Listener: remoting, Dir: b.dir, CommitLogDir: b.CommitLogDir(), SegmentSize: wire.MiB, End: b.End, Min: b.Min, Config: config}
		if config["inSyncReplicas"] != "" { // means nothing before 5.0
			o.Version, o.VersionNumber = "V5_3_3", 479
		}
		return stock.NewRemotingServer(o).Run(ctx)
	})
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *syncBroker) note(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// slaves returns how many are connected, and the last report of one.
func (b *syncBroker) slaves() (n int, last wire.PhyOffset) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slave, b.last
}

func (b *syncBroker) store(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := b.Append(forge.Message{Topic: "t", QueueOffset: forge.NextQueueOffset, Body: make([]byte, 500)}); err != nil {
			t.Fatal(err)
		}
	}
}

// A master agent tells its broker what a slave agent has acked, and nothing
// without one; its status says what that means for producers.
func TestAgent_RelaysAcksOfItsReplicas(t *testing.T) {
	b := newSyncBroker(t, nil)
	b.store(t, 10)
	w := newTown()
	master := runAgent(t, w, agent.Config{Role: agent.RoleMaster, Node: "m", Dir: b.dir, Broker: b.addr, RelayAcks: 1})
	guarantee := func() control.Guarantee {
		if g := master.Status().Guarantee; g != nil {
			return *g
		}
		return control.Guarantee{}
	}
	within(t, patience, "the guarantee without replicas", func() bool {
		g := guarantee()
		return g.Waits && !g.RelayConnected && g.RelayAcks == 1 && strings.Contains(g.Text, "SLAVE_NOT_AVAILABLE")
	})
	cfg := agent.Config{Role: agent.RoleSlave, Node: "s", Dir: t.TempDir(), Ack: replica.AckDisk, Retention: agent.Retention{Follow: true}}
	for range 2 {
		slave := runAgent(t, w, cfg)
		for range 3 {
			b.store(t, 5)
			within(t, patience, "the broker knows", func() bool { n, last := b.slaves(); return n == 1 && last == b.End() })
		}
		within(t, patience, "the guarantee with a replica", func() bool {
			g := guarantee()
			return g.Waits && g.RelayConnected && g.Relayed == b.End() && strings.Contains(g.Text, "on disk there")
		})
		slave.stop()
		within(t, patience, "the broker has no slave", func() bool { n, _ := b.slaves(); return n == 0 })
	}
	within(t, patience, "two warnings", func() bool { return strings.Count(master.log.String(), "are not confirmed") >= 2 })
	runAgent(t, w, cfg)
	within(t, patience, "the log says it", func() bool {
		return strings.Contains(master.log.String(), "what producers can rely on: SEND_OK says that 1 replica has")
	})
	if n := strings.Count(master.log.String(), "are not confirmed"); n != 2 {
		t.Errorf("said %d times that producers are not confirmed", n)
	}
}

// A relay for fewer replicas than the broker wants is refused by name, and
// everything else goes on.
func TestAgent_ServesWithoutARelayThatCannotBe(t *testing.T) {
	b := newSyncBroker(t, map[string]string{"inSyncReplicas": "3"})
	b.store(t, 10)
	w := newTown()
	master := runAgent(t, w, agent.Config{Role: agent.RoleMaster, Node: "m", Dir: b.dir, Broker: b.addr, RelayAcks: 1})
	slave := runAgent(t, w, agent.Config{Role: agent.RoleSlave, Node: "s", Dir: t.TempDir(), Retention: agent.Retention{Follow: true}})
	within(t, patience, "the replica has all", func() bool { return slave.Status().Offsets.Verified == b.End() })
	within(t, patience, "the reason", func() bool {
		s := master.Status()
		return s.State == state.Serving && s.Guarantee.Code == "relay_too_few" && strings.Contains(s.Reason, "inSyncReplicas=3") && strings.Contains(s.Try, "--relay-acks 2")
	})
	if n, _ := b.slaves(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// --relay-acks is a small number, and for masters.
func TestConfig_RelayAcks(t *testing.T) {
	for _, c := range []struct {
		role agent.Role
		n    int
		ok   bool
	}{
		{agent.RoleMaster, 0, true}, {agent.RoleMaster, 1, true}, {agent.RoleMaster, 16, true},
		{agent.RoleMaster, 17, false}, {agent.RoleMaster, -1, false},
		{agent.RoleSlave, 0, true}, {agent.RoleSlave, 1, false},
	} {
		cfg := agent.Config{Role: c.role, Dir: t.TempDir(), Finder: citizen{newTown(), "x"}, RelayAcks: c.n, MetadataInterval: time.Second}.WithDefaults()
		err := cfg.Validate()
		if (err == nil) != c.ok || err != nil && !strings.HasPrefix(err.Error(), "--relay-acks") {
			t.Errorf("%s with %d: %v", c.role, c.n, err)
		}
	}
}
