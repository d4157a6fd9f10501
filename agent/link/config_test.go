package link_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// table is a topics.json of about n bytes.
func table(version, n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"dataVersion":{"counter":%d,"timestamp":%d},"topicConfigTable":{"t":{"topicName":"t"}`, version, 1_700_000_000_000+version)
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `,"topic-%d-%d":{"topicName":"topic-%d"}`, version, i, i)
	}
	b.WriteString("}}")
	return b.Bytes()
}

func writeConfig(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	if err := forge.WriteConfig(dir, name, content, forge.Style4x, nil); err != nil {
		t.Fatal(err)
	}
}

// snapshots runs a Snapshotter over dir until the test ends.
func snapshots(t testing.TB, dir string, end func() wire.PhyOffset) *metadata.Snapshotter {
	t.Helper()
	s := metadata.NewSnapshotter(metadata.SnapshotterOptions{Dir: dir, Interval: 50 * time.Millisecond, End: func(context.Context) wire.PhyOffset { return end() }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// installed installs what is offered into a store.
type installed struct {
	mu    sync.Mutex
	i     *metadata.Installer
	store func() wire.PhyOffset
	count int
}

func (i *installed) offer(s metadata.Snapshot) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.count++
	if err := i.i.Offer(s); err != nil {
		return err
	}
	_, err := i.i.Install(i.store())
	return err
}

func installer(t testing.TB, dir string) *installed {
	t.Helper()
	i, err := metadata.NewInstaller(dir, metadata.Options{Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	return &installed{i: i}
}

// configPair is a master with config files and a slave behind a relay.
func configPair(t *testing.T) (m *master, r *relay, s *slave) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	var end func() wire.PhyOffset
	m = newMaster(t, masterOptions{dir: dir, config: snapshots(t, dir, func() wire.PhyOffset {
		if end == nil {
			return wire.NoOffset
		}
		return end()
	})})
	m.run()
	r = startRelay(t, func() string { return m.addr })
	replicaDir := filepath.Join(t.TempDir(), "replica")
	if err := os.MkdirAll(replicaDir, 0o755); err != nil {
		t.Fatal(err)
	}
	in := installer(t, replicaDir)
	s = newSlave(t, r.addr, slaveOptions{dir: replicaDir, offer: in.offer})
	in.store = func() wire.PhyOffset { return s.store.Ends().Verified }
	return m, r, s
}

func (s *slave) hasConfig(name string, want []byte) bool {
	got, err := os.ReadFile(filepath.Join(s.opt.dir, "config", name))
	return err == nil && bytes.Equal(got, want)
}

func TestConfig_FilesAreInstalledAndFollow(t *testing.T) {
	t.Parallel()
	m, r, s := configPair(t)
	writeConfig(t, m.opt.dir, "topics.json", table(1, 300_000)) // several frames
	s.run()
	until(t, "the file", func() bool { return s.hasConfig("topics.json", table(1, 300_000)) })
	writeConfig(t, m.opt.dir, "topics.json", table(2, 500))
	writeConfig(t, m.opt.dir, "subscriptionGroup.json", []byte(`{"subscriptionGroupTable":{"g":{}}}`))
	until(t, "the new one", func() bool { return s.hasConfig("topics.json", table(2, 500)) })
	until(t, "another one", func() bool {
		return s.hasConfig("subscriptionGroup.json", []byte(`{"subscriptionGroupTable":{"g":{}}}`))
	})
	before := r.bytes(toSlave)
	at, _ := m.opt.config.Latest()
	until(t, "ten more snapshots", func() bool { now, _ := m.opt.config.Latest(); return now.Generation > at.Generation+300 })
	if n := r.bytes(toSlave) - before; n > 40_000 {
		t.Errorf("%d bytes were sent although nothing changed", n)
	}
}

// TestConfig_SlowTableDelaysNoAck sends a table through a thin pipe while the log
// goes on (fault 34, 56).
func TestConfig_SlowTableDelaysNoAck_Fault34(t *testing.T) {
	t.Parallel()
	m, r, s := configPair(t)
	r.set(wirelink.ChannelMetadata, toSlave, rule{piece: 500, delay: 10 * time.Millisecond}) // 50 kB a second at most
	writeConfig(t, m.opt.dir, "topics.json", table(1, 1_500_000))
	s.run()
	m.inReach(1)
	until(t, "both connections", func() bool { links, _ := r.counts(); return links == 2 })
	for range 20 {
		began := time.Now()
		m.acked("slave", m.grow(1))
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("an ack took %v", took)
		}
	}
	if s.hasConfig("topics.json", table(1, 1_500_000)) {
		t.Error("the pipe was not thin enough to show anything")
	}
	r.heal()
	until(t, "the table", func() bool { return s.hasConfig("topics.json", table(1, 1_500_000)) })
}

// TestConfig_LossNeverEndsTheLog cuts the metadata connection in the middle of a
// file, again and again.
func TestConfig_LossNeverEndsTheLog(t *testing.T) {
	t.Parallel()
	m, r, s := configPair(t)
	writeConfig(t, m.opt.dir, "topics.json", table(1, 200_000))
	for i := range 4 {
		r.set(wirelink.ChannelMetadata, toSlave, rule{cut: 20_000 * (i + 1)})
		if i == 0 {
			s.run()
		}
		links, _ := r.counts()
		until(t, "another connection", func() bool { now, _ := r.counts(); return now > links })
		m.acked("slave", m.grow(3))
		writeConfig(t, m.opt.dir, "topics.json", table(i+2, 200_000))
	}
	r.heal()
	until(t, "the file", func() bool { return s.hasConfig("topics.json", table(5, 200_000)) })
	m.acked("slave", m.grow(3))
	s.never(state.Connecting)
}
