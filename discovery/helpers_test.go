package discovery

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds everything that a test waits for; nothing takes that long
// unless it fails.
const patience = 30 * time.Second

// TestMain checks that nothing is left running. memberlist's own goroutines end
// soon after it is shut down, but nobody can wait for them.
func TestMain(m *testing.M) {
	if os.Getenv(childName) != "" {
		os.Exit(childMain())
	}
	code := m.Run()
	deadline := time.Now().Add(patience)
	for err := goleak.Find(); err != nil && code == 0; err = goleak.Find() {
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// nextIP hands out one loopback address for each member of each test. Their
// second byte differs from process to process, so that test binaries that run
// side by side do not meet.
var nextIP = func() func() netip.Addr {
	var mu sync.Mutex
	n := 0
	return func() netip.Addr {
		mu.Lock()
		defer mu.Unlock()
		n++
		return netip.AddrFrom4([4]byte{127, byte(64 + os.Getpid()%128), byte(n >> 8), byte(n)})
	}
}()

// freeAddr returns an address that nobody listens on now.
func freeAddr(t testing.TB) string {
	t.Helper()
	s, err := listen(nextIP(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer release(t, s)
	return s.bound.String()
}

// quick is for rings within one process.
var quick = Timing{
	ProbeInterval: 150 * time.Millisecond, ProbeTimeout: 100 * time.Millisecond,
	GossipInterval: 20 * time.Millisecond, PushPullInterval: 500 * time.Millisecond,
	Reclaim: 50 * time.Millisecond, RetryMin: 50 * time.Millisecond, RetryMax: 400 * time.Millisecond,
	SeedInterval: 300 * time.Millisecond, Refresh: 200 * time.Millisecond,
}

// A node is a member of a test's ring.
type node struct {
	*Gossip
	t      testing.TB
	log    *logBook
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// options returns those of a member with its own address, which has only itself
// as a seed unless it is given others.
func options(name string, seeds ...string) Options {
	addr := netip.AddrPortFrom(nextIP(), 0).String()
	if len(seeds) == 0 {
		seeds = []string{"127.0.0.1:1"} // nobody; never the default port, where an agent may run
	}
	return Options{
		Self: Member{Node: name, Role: "slave", Cluster: "c", BrokerName: "b", BrokerID: 1, Version: "test"},
		Bind: addr, Join: seeds, Timing: quick,
	}
}

// start runs a member until the test ends.
func start(t testing.TB, opt Options) *node {
	t.Helper()
	book := &logBook{}
	if opt.Log == nil {
		opt.Log = newTestLog(book)
	}
	g, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, g, book)
}

func run(t testing.TB, g *Gossip, book *logBook) *node {
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{Gossip: g, t: t, log: book, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(n.done)
		n.err = g.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-n.done
		if t.Failed() {
			t.Logf("log of %s:\n%s", g.opt.Self.Node, book)
		}
	})
	return n
}

// leave ends a member as a process ends that is told to.
func (n *node) leave() {
	n.t.Helper()
	n.cancel()
	<-n.done
	if n.err != nil {
		n.t.Errorf("%s ended with %v", n.opt.Self.Node, n.err)
	}
}

// kill ends a member as kill -9 does: its sockets are gone before it can say
// anything.
func (n *node) kill() {
	n.t.Helper()
	if err := n.socks.close(); err != nil {
		n.t.Error(err)
	}
	n.cancel()
	<-n.done
}

// status returns what n thinks of another, "" where it does not know it.
func (n *node) status(name string) string { return n.member(name).Status }

func (n *node) member(name string) Member {
	for _, m := range n.Members() {
		if m.Node == name {
			return m
		}
	}
	return Member{}
}

// sees waits until n thinks so of each of the others.
func (n *node) sees(status string, names ...string) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s sees %v %s", n.opt.Self.Node, names, status), func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return n.status(name) != status })
	}, func() string { return fmt.Sprintf("%+v", n.Members()) })
}

// eventually fails the test where ok does not come true.
func eventually(t testing.TB, what string, ok func() bool, state ...func() string) {
	t.Helper()
	within(t, patience, what, ok, state...)
}

// within is eventually with a deadline of its own.
func within(t testing.TB, d time.Duration, what string, ok func() bool, state ...func() string) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			for _, s := range state {
				what += "\n" + s()
			}
			t.Fatalf("it did not come to this: %s", what)
		}
	}
}

// stays fails the test where ok is not so all the time.
func stays(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if !ok() {
			t.Fatalf("it did not stay so: %s", what)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		}
	}
}

// logBook is what a member has logged.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// count returns how many lines hold all of the words.
func (b *logBook) count(words ...string) int {
	n := 0
	for line := range strings.Lines(b.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}

func newTestLog(book *logBook) *slog.Logger {
	return slog.New(slog.NewTextHandler(book, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// release closes sockets that no member owns.
func release(t testing.TB, s *sockets) {
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
