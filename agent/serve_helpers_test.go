package agent_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/stock"
)

// town is gossip without a network.
type town struct {
	mu      sync.Mutex
	members map[string]agent.Member
	ears    map[chan struct{}]struct{}

	conflicts []string // names that two claim
}

func newTown() *town {
	return &town{members: map[string]agent.Member{}, ears: map[chan struct{}]struct{}{}}
}

// change edits a member, who need not be there yet.
func (w *town) change(node string, edit func(*agent.Member)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.members[node]
	m.Node = node
	edit(&m)
	w.members[node] = m
	for ear := range w.ears {
		select {
		case ear <- struct{}{}:
		default:
		}
	}
}

// claim lets two agents have each of the names.
func (w *town) claim(names ...string) {
	w.mu.Lock()
	w.conflicts = names
	w.mu.Unlock()
	w.change("x", func(m *agent.Member) { m.Status = "alive" })
}

func (w *town) member(node string) agent.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[node]
}

// citizen is the agent.Finder of one member.
type citizen struct {
	*town
	node string
}

func (c citizen) Run(ctx context.Context) error {
	c.change(c.node, func(m *agent.Member) { m.Status = "alive" })
	<-ctx.Done()
	c.change(c.node, func(m *agent.Member) { m.Status = "left" })
	return nil
}

func (c citizen) Addr() string { return "127.0.0.1:7946" }

func (c citizen) Members() []agent.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]agent.Member, 0, len(c.members))
	for _, m := range c.members {
		out = append(out, m)
	}
	return out
}

func (c citizen) Listen() (<-chan struct{}, func()) {
	ear := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ears[ear] = struct{}{}
	return ear, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ears, ear)
	}
}

func (c citizen) Announce(edit func(*agent.Member)) error {
	c.change(c.node, edit)
	return nil
}

func (c citizen) Conflicts() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conflicts
}

func (c citizen) Trouble() error { return nil }

// served is an agent that runs beside a test.
type served struct {
	*agent.Agent
	t    testing.TB
	node string
	town *town
	log  *logBook
	stop func()
}

// logBook keeps what was logged.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// runAgent starts an agent of a town; it ends with the test, or by stop.
func runAgent(t testing.TB, w *town, cfg agent.Config) *served {
	t.Helper()
	security, err := link.NewSecurity(link.SecurityOptions{Mode: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Security, cfg.Finder = security, citizen{w, cfg.Node}
	if cfg.Role == agent.RoleMaster {
		cfg.LinkBind = "127.0.0.1:0"
	}
	s := &served{t: t, node: cfg.Node, town: w, log: &logBook{}}
	if s.Agent, err = agent.New(cfg, slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent %s: %v", cfg.Node, err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.Node, s.log)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// ports waits until the agent has told where it serves stock slaves.
func (s *served) ports() (ha, remoting string) {
	s.t.Helper()
	var m agent.Member
	within(s.t, patience, "the agent tells its ports", func() bool {
		m = s.town.member(s.node)
		return m.HA != "" || m.Remoting != ""
	})
	return m.HA, m.Remoting
}

// stockReplicas are those rows of the status that are stock slaves.
func (s *served) stockReplicas() []control.Replica {
	var out []control.Replica
	for _, r := range s.Status().Replicas {
		if r.Kind == "broker" {
			out = append(out, r)
		}
	}
	return out
}

// within waits until something is so.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

// allow reads an allow list.
func allow(t testing.TB, text string) stock.AllowList {
	t.Helper()
	list, err := stock.ParseAllowList(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// dial connects to an address, from a given one where from is not empty.
func dial(t testing.TB, addr, from string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{Timeout: patience}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatal(conn)
	}
	t.Cleanup(func() { tcp.Close() })
	extend(t, tcp)
	return tcp
}

// extend gives the other end of a connection its time again.
func extend(t testing.TB, conn net.Conn) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
}
