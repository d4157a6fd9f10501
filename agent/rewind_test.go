package agent_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// fill stores n messages whose bodies are made of one byte.
func (b *syncBroker) fill(t *testing.T, n int, of byte) {
	t.Helper()
	for i := range n {
		m := forge.Message{Topic: "t", QueueOffset: forge.NextQueueOffset, StoreTimestamp: commitlog.Millis(1000 + i), BornTimestamp: 1, Body: bytes.Repeat([]byte{of}, 500)}
		if _, err := b.Append(m); err != nil {
			t.Fatal(err)
		}
	}
}

// firstSegment reads the first n bytes of a store's log.
func firstSegment(t *testing.T, dir string, n wire.PhyOffset) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(replica.CommitLogDir(dir), commitlog.Name(0)))
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// parted has a replica of a broker, and then a master agent beside another broker
// which has the same messages up to common, and others after that.
func parted(t *testing.T, way agent.OnDivergence) (slave *served, before, now *syncBroker, common wire.PhyOffset) {
	t.Helper()
	w := newTown()
	before, now = newSyncBroker(t, nil), newSyncBroker(t, nil)
	before.fill(t, 40, 'a')
	now.fill(t, 25, 'a')
	common = now.End()
	now.fill(t, 30, 'b')
	master := runAgent(t, w, agent.Config{Role: agent.RoleMaster, Node: "m", Dir: before.dir, Broker: before.addr})
	slave = runAgent(t, w, agent.Config{Role: agent.RoleSlave, Node: "s", Dir: t.TempDir(), Retention: agent.Retention{Follow: true}, OnDivergence: way})
	within(t, patience, "the replica has all", func() bool { return slave.Status().Offsets.Verified == before.End() })
	master.stop()
	runAgent(t, w, agent.Config{Role: agent.RoleMaster, Node: "m", Dir: now.dir, Broker: now.addr})
	return slave, before, now, common
}

// With rewind a replica is cut back where it parted from its master, becomes equal to
// it, and the status tells what was cut and where that is.
func TestAgent_RewindsWhereThatIsAskedFor(t *testing.T) {
	slave, before, now, common := parted(t, agent.DivergenceRewind)
	within(t, 2*patience, "the replica is equal to its master", func() bool { s := slave.Status(); return s.State == state.Streaming && s.Offsets.Verified == now.End() })
	r := slave.Status().Rewound
	if r == nil || r.At != common || r.Bytes != before.End().Sub(common) || time.Since(r.Time) > time.Hour {
		t.Fatalf("the status says %+v; the logs parted at %d, the replica had %d", r, common, before.End())
	}
	if log := slave.log.String(); strings.Count(log, "the replica was cut back to where it parted") != 1 {
		t.Error("the log does not say once that it was cut back")
	}
	dir := slave.Status().Dir
	slave.stop()
	if !bytes.Equal(firstSegment(t, dir, now.End()), firstSegment(t, now.dir, now.End())) {
		t.Error("I2: the replica is not its master's log")
	}
	kept, err := filepath.Glob(filepath.Join(r.Salvage, "*", "from-"+commitlog.Name(common)))
	if err != nil || len(kept) != 1 {
		t.Fatalf("I8: salvage has %q, %v", kept, err)
	}
	got, err := os.ReadFile(kept[0])
	if want := firstSegment(t, before.dir, before.End())[common:]; err != nil || !bytes.Equal(got, want) {
		t.Errorf("I8: %d bytes are kept, %d were cut off, %v", len(got), len(want), err)
	}
}

// Without it nothing is cut, and nothing is said to be.
func TestAgent_HaltsWhereItParted(t *testing.T) {
	slave, before, _, _ := parted(t, agent.DivergenceHalt)
	within(t, patience, "the divergence", func() bool { return slave.Status().State == state.Diverged })
	s := slave.Status()
	if s.Code != "diverged" || s.Offsets.Verified != before.End() || s.Rewound != nil {
		t.Errorf("the status says %s, %d, %+v", s.Code, s.Offsets.Verified, s.Rewound)
	}
	slave.stop()
	if !bytes.Equal(firstSegment(t, s.Dir, before.End()), firstSegment(t, before.dir, before.End())) {
		t.Error("the replica has changed")
	}
}

// A stock broker cannot be asked where it parted from a replica.
func TestConfig_RewindNeedsAnAgent(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  agent.Config
		ok   bool
	}{
		{"an agent", agent.Config{}, true},
		{"a broker", agent.Config{Master: "127.0.0.1:10911"}, false},
		{"a HA port", agent.Config{MasterHA: "127.0.0.1:10912"}, false},
	} {
		for _, way := range []agent.OnDivergence{agent.DivergenceHalt, agent.DivergenceRewind} {
			cfg := c.cfg
			cfg.Role, cfg.Dir, cfg.Finder, cfg.MetadataInterval, cfg.OnDivergence = agent.RoleSlave, t.TempDir(), citizen{newTown(), "x"}, time.Second, way
			err := cfg.WithDefaults().Validate()
			var refused *agent.ConfigError
			if ok := c.ok || way == agent.DivergenceHalt; (err == nil) != ok || !ok && (!errors.As(err, &refused) || refused.Key != "on-divergence") {
				t.Errorf("%s, %s: %v", c.name, way, err)
			}
		}
	}
}

// Limits hold from the next bytes on, and are gone as fast; what cannot be a limit is
// refused and changes nothing.
func TestAgent_SetLimits(t *testing.T) {
	const rate = 256 * wire.KiB
	w, b := newTown(), newSyncBroker(t, nil)
	runAgent(t, w, agent.Config{Role: agent.RoleMaster, Node: "m", Dir: b.dir, Broker: b.addr})
	slave := runAgent(t, w, agent.Config{Role: agent.RoleSlave, Node: "s", Dir: t.TempDir(), Retention: agent.Retention{Follow: true}})
	b.store(t, 10)
	verified := func() wire.PhyOffset { return slave.Status().Offsets.Verified }
	within(t, patience, "the replica has all", func() bool { return verified() == b.End() })
	for _, wrong := range [][2]wire.ByteSize{{-1, 0}, {0, -1}, {1, 0}, {0, rate - 1}} {
		var refused *agent.ConfigError
		if err := slave.SetLimits(wrong[0], wrong[1]); !errors.As(err, &refused) {
			t.Errorf("limits of %d and %d: %v", wrong[0], wrong[1], err)
		}
	}
	for range 2 {
		if err := slave.SetLimits(rate, 0); err != nil {
			t.Fatal(err)
		}
	}
	from, began := verified(), time.Now()
	b.store(t, 20_000) // 12 MB: the limit lets them through in 45 s
	within(t, 2*patience, "something of it", func() bool { return verified() > from })
	if moved, most := verified().Sub(from), wire.ByteSize(time.Since(began).Seconds()*float64(rate))+wire.MiB; moved > most {
		t.Errorf("%d bytes have come, the limit lets %d through", moved, most)
	}
	if verified() == b.End() {
		t.Error("all of it came at once")
	}
	if err := slave.SetLimits(0, 0); err != nil {
		t.Fatal(err)
	}
	within(t, 2*patience, "the rest", func() bool { return verified() == b.End() })
	if n := strings.Count(slave.log.String(), "limits changed"); n != 2 {
		t.Errorf("%d changes are in the log, not 2", n)
	}
}
