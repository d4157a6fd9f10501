package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir, os.Getenv(childMaster)))
	}
	goleak.VerifyTestMain(m)
}

// patience bounds everything that a test waits for.
const patience = 15 * time.Second

// fast is the clockwork of the agents under test.
var fast = stock.Timing{Heartbeat: 100 * time.Millisecond, Housekeeping: 5 * time.Second, Patience: 2 * time.Second,
	Survey: 20 * time.Millisecond, FirstRetry: 5 * time.Millisecond, MaxRetry: 50 * time.Millisecond}

// source is a broker as seen from outside: a log that grows, its HA port and its
// remoting port.
type source struct {
	t      testing.TB
	dir    string
	size   wire.ByteSize
	ha     net.Listener
	port   net.Listener
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	writer   *forge.Writer
	random   *rand.Rand
	reported wire.PhyOffset // the largest report since forget
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func port(t testing.TB, l net.Listener) string {
	t.Helper()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func newSource(t testing.TB, size wire.ByteSize) *source {
	t.Helper()
	s := &source{t: t, dir: t.TempDir(), size: size, random: rand.New(rand.NewPCG(1, 2)), ha: listen(t), port: listen(t), reported: wire.NoOffset}
	var err error
	if s.writer, err = forge.Open(forge.Options{Dir: s.dir, SegmentSize: size, Garbage: s.random}); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(s.dir, "commitlog")
	end := func() wire.PhyOffset { return s.writer.End() }
	haServer := stock.NewHAServer(stock.HAServerOptions{Listener: s.ha, CommitLogDir: log, SegmentSize: size, End: end, Heartbeat: 50 * time.Millisecond,
		OnReport: func(_ net.Addr, off wire.PhyOffset, _ bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reported = max(s.reported, off)
		}})
	remoting := stock.NewRemotingServer(stock.RemotingServerOptions{Listener: s.port, Dir: s.dir, CommitLogDir: log, SegmentSize: size, End: end,
		Config: map[string]string{"brokerClusterName": "c1", "brokerName": "b1", "brokerId": "0", "brokerRole": "ASYNC_MASTER",
			"listenPort": port(t, s.port), "haListenPort": port(t, s.ha), "mappedFileSizeCommitLog": strconv.FormatInt(int64(size), 10)}})
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, run := range []func(context.Context) error{haServer.Run, remoting.Run} {
		s.work.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("server: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		s.stop()
		if err := s.writer.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// stop ends the servers.
func (s *source) stop() {
	s.cancel()
	s.work.Wait()
}

func (s *source) addr() string { return s.port.Addr().String() }

func (s *source) end() wire.PhyOffset { return s.writer.End() }

// grow appends about n bytes.
func (s *source) grow(n wire.ByteSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for until := s.writer.End().Add(n); s.writer.End() < until; {
		if _, err := s.writer.Append(forge.RandomMessage(s.random, forge.Variety{V2: true, IPv6: true, MaxSize: 2 * wire.KiB})); err != nil {
			s.t.Errorf("grow: %v", err)
			return
		}
	}
}

// maxReport returns the largest report since forgetReports.
func (s *source) maxReport() wire.PhyOffset {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reported
}

func (s *source) forgetReports() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = wire.NoOffset
}

// running is an agent at work.
type running struct {
	*agent.Agent
	t      testing.TB
	dir    string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // read after done
	told   *toldStates
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// start runs an agent until the test ends.
func start(t testing.TB, cfg agent.Config) *running {
	t.Helper()
	cfg.Role, cfg.Timing = agent.RoleSlave, fast
	told := &toldStates{Handler: slog.DiscardHandler}
	a, err := agent.New(cfg, slog.New(told))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Agent: a, t: t, dir: cfg.Dir, cancel: cancel, done: make(chan struct{}), told: told}
	go func() {
		defer close(r.done)
		r.err = a.Run(ctx)
	}()
	t.Cleanup(func() {
		if err := r.stop(); err != nil && !t.Failed() {
			t.Logf("the agent ended with %v", err)
		}
	})
	return r
}

// stop ends the agent and returns its error.
func (r *running) stop() error {
	r.t.Helper()
	r.cancel()
	return r.ended()
}

// ended waits for the agent to end by itself.
func (r *running) ended() error {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		r.t.Fatal("the agent does not end")
	}
	return r.err
}

// await waits until the agent has been in a state, with a code where it is a
// stuck one, since the last await or start.
func (r *running) await(want state.State, code string) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("status %+v", r.Status())
		}
	}()
	eventually(r.t, fmt.Sprintf("state %s %s", want, code), func() bool { return r.told.take(string(want) + " " + code) })
}

// toldStates is what an agent logs of its states: a short one is not missed.
type toldStates struct {
	slog.Handler

	mu   sync.Mutex
	seen []string
}

// Enabled implements slog.Handler.
func (h *toldStates) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h *toldStates) Handle(_ context.Context, r slog.Record) error {
	var now, code string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "state":
			now = a.Value.String()
		case "code":
			code = a.Value.String()
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if now != "" {
		h.seen = append(h.seen, now+" "+code)
	}
	return nil
}

// take reports whether a state was told, and forgets those up to it.
func (h *toldStates) take(want string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.seen, want)
	if i >= 0 {
		h.seen = h.seen[i+1:]
	}
	return i >= 0
}

// caughtUp waits until the agent streams and holds all of the source's log.
func (r *running) caughtUp(s *source) {
	r.t.Helper()
	eventually(r.t, "caught up", func() bool {
		st := r.Status()
		return st.State == state.Streaming && st.Offsets.Verified == s.end()
	})
}

// same compares two stores byte by byte.
func same(t testing.TB, s *source, dir string) {
	t.Helper()
	c, err := verify.Compare(t.Context(), s.dir, dir, nil)
	if err != nil || !c.Same() || c.IdenticalTo != s.end() {
		t.Errorf("the replica is not the source up to %d: %+v, %v", s.end(), c, err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// Names in the environment of a child process, which is an agent of its own.
const (
	childDir    = "HAAGENT_TEST_CHILD_DIR"
	childMaster = "HAAGENT_TEST_CHILD_MASTER"
)

// child runs an agent until its standard input ends.
func child(dir, master string) int {
	a, err := agent.New(agent.Config{Role: agent.RoleSlave, Dir: dir, Master: master, Timing: fast}, silent())
	if err != nil {
		return 3
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil && !errors.Is(err, os.ErrClosed) {
			fmt.Fprintln(os.Stderr, err)
		}
		cancel()
	}()
	if err := a.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// topic writes a config with one topic.
func (s *source) topic(name string) {
	s.t.Helper()
	if err := os.MkdirAll(metadata.ConfigDir(s.dir), 0o750); err != nil {
		s.t.Fatal(err)
	}
	topics := `{"dataVersion":{"counter":1,"timestamp":1700000000000},"topicConfigTable":{"` + name + `":{"topicName":"` + name + `"}}}`
	if err := os.WriteFile(filepath.Join(metadata.ConfigDir(s.dir), "topics.json"), []byte(topics), 0o600); err != nil {
		s.t.Fatal(err)
	}
}
