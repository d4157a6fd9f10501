package link_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

const (
	// soon is how long a test waits for what must come.
	soon = 30 * time.Second
	// segmentSize is small, so that logs have many segments.
	segmentSize = 64 * wire.KiB
)

// quick is the clockwork of most tests: fast where it moves things on, slow
// where a busy machine could break them.
var quick = link.Timing{Heartbeat: 20 * time.Millisecond, Silence: 20 * time.Second, FirstRetry: 2 * time.Millisecond, MaxRetry: 50 * time.Millisecond}

// until waits until ok holds.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(soon); !ok(); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("%s did not come within %v", what, soon)
		}
	}
}

// word is a broker's word on its end that a test gives.
type word struct {
	end   atomic.Int64
	moved chan struct{}
}

func newWord() *word {
	w := &word{moved: make(chan struct{}, 1)}
	w.end.Store(int64(wire.NoOffset))
	return w
}

func (w *word) End() wire.PhyOffset { return wire.PhyOffset(w.end.Load()) }

func (w *word) Listen() (moved <-chan struct{}, stop func()) { return w.moved, func() {} }

func (w *word) Want(bool) {}

func (w *word) Tells() bool { return false }

func (w *word) say(end wire.PhyOffset) {
	w.end.Store(int64(end))
	select {
	case w.moved <- struct{}{}:
	default:
	}
}

// masterOptions are what tests vary; the zero value of each has a default.
type masterOptions struct {
	dir      string
	addr     string // where to listen; a free port
	start    wire.PhyOffset
	security *link.Security // none
	identity link.Identity
	epoch    int64         // 1
	settle   time.Duration // never; only the broker's word confirms a last record
	word     bool          // the broker's word confirms as well as settling
	admit    func() *state.Problem
	unknown  bool // nobody says the segment size of an empty log
	config   *metadata.Snapshotter
	timing   link.Timing
	limits   *pace.Limits
	compress link.Compress
}

// master is a broker with its agent: a forged store, the source, the server.
type master struct {
	t      testing.TB
	opt    masterOptions
	w      *forge.Writer
	rand   *rand.Rand
	word   *word
	src    *source.Source
	table  *acks.Table
	server *link.Server
	addr   string
	stop   func()
}

func noSecurity(t testing.TB) *link.Security {
	t.Helper()
	s, err := link.NewSecurity(link.SecurityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keySecurity is for all who have the n-th key.
func keySecurity(t testing.TB, mode string, n byte) *link.Security {
	t.Helper()
	keys, err := link.ParseKeys([]byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, link.KeySize))))
	if err != nil {
		t.Fatal(err)
	}
	s, err := link.NewSecurity(link.SecurityOptions{Mode: mode, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// emptyLog takes every segment away.
func emptyLog(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "commitlog")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "commitlog"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// newMaster makes the store, and nothing that runs.
func newMaster(t testing.TB, o masterOptions) *master {
	t.Helper()
	if o.dir == "" {
		o.dir = filepath.Join(t.TempDir(), "source")
	}
	if o.security == nil {
		o.security = noSecurity(t)
	}
	if o.identity == (link.Identity{}) {
		o.identity = link.Identity{Cluster: "c", BrokerName: "b", Node: "master", Version: "test"}
	}
	if o.epoch == 0 {
		o.epoch = 1
	}
	if o.settle == 0 {
		o.settle = -1
	}
	if o.addr == "" {
		o.addr = "127.0.0.1:0"
	}
	if o.timing == (link.Timing{}) {
		o.timing = quick
	}
	m := &master{t: t, opt: o, rand: rand.New(rand.NewPCG(1, 2)), stop: func() {}}
	m.open()
	t.Cleanup(func() {
		m.stop()
		m.closeStore()
	})
	return m
}

func startMaster(t testing.TB, o masterOptions) *master {
	t.Helper()
	m := newMaster(t, o)
	m.run()
	return m
}

func (m *master) open() {
	m.t.Helper()
	var err error
	if m.w, err = forge.Open(forge.Options{Dir: m.opt.dir, SegmentSize: segmentSize, Start: m.opt.start, Garbage: rand.New(rand.NewPCG(3, 4))}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *master) closeStore() {
	if err := m.w.Abandon(); err != nil {
		m.t.Error(err)
	}
}

// run starts the agent; m.stop ends it. The port stays the same.
func (m *master) run() {
	m.t.Helper()
	m.word = newWord()
	o := source.Options{Dir: m.opt.dir, SegmentSize: segmentSize, Settle: m.opt.settle, Authority: m.word, Rescan: 20 * time.Millisecond}
	if m.opt.unknown {
		o.SegmentSize = 0
	}
	if m.opt.settle >= 0 && !m.opt.word {
		o.Authority = nil
	}
	m.src, m.table = source.New(o), acks.NewTable()
	var l net.Listener
	until(m.t, "the port "+m.opt.addr, func() bool {
		var err error
		l, err = net.Listen("tcp", m.opt.addr)
		return err == nil
	})
	if m.addr == "" { // it stays the same
		m.addr = l.Addr().String()
		m.opt.addr = m.addr
	}
	m.server = link.NewServer(link.ServerOptions{Listener: l, Security: m.opt.security, Self: m.opt.identity, Source: m.src, Acks: m.table,
		Limits: m.opt.limits, Compress: m.opt.compress,
		Epoch: func() int64 { return m.opt.epoch }, Admit: m.opt.admit, Config: m.opt.config, Timing: m.opt.timing})
	m.background(m.src.Run, m.server.Run)
}

// background runs the parts of an agent until m.stop.
func (m *master) background(parts ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	group := new(errgroup.Group)
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	m.stop = func() {
		cancel()
		if err := group.Wait(); err != nil {
			m.t.Errorf("the master ended with %v", err)
		}
		m.stop = func() {}
	}
}

// fill appends n random messages; nothing but the next one confirms the last.
func (m *master) fill(n int) (last, end wire.PhyOffset) {
	m.t.Helper()
	for range n {
		msg := forge.RandomMessage(m.rand, forge.Variety{MaxSize: 2 * wire.KiB})
		var err error
		if end, err = m.w.Append(msg); err != nil {
			m.t.Fatal(err)
		}
		last = end.Add(-msg.Size())
	}
	return last, end
}

// grow appends n random messages, and the broker says so.
func (m *master) grow(n int) wire.PhyOffset {
	m.t.Helper()
	_, end := m.fill(n)
	m.word.say(end)
	until(m.t, "the confirmed end", func() bool { return m.src.Ends().Confirmed == end })
	return end
}

// acked waits until node has acked end.
func (m *master) acked(node string, end wire.PhyOffset) {
	m.t.Helper()
	until(m.t, "the ack of "+end.String(), func() bool { return m.ackOf(node) == end })
}

// ackOf returns what node has acked, NoOffset where it is not in reach.
func (m *master) ackOf(node string) wire.PhyOffset {
	for _, n := range m.table.Nodes() {
		if n.Name == node {
			return n.Acked
		}
	}
	return wire.NoOffset
}

func (m *master) inReach(n int) {
	m.t.Helper()
	until(m.t, "the nodes in reach", func() bool { return m.table.InReach() == n })
}
