package stock_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// fast is the clockwork of tests that do not measure it.
var fast = stock.Timing{Heartbeat: 200 * time.Millisecond, Housekeeping: 5 * time.Second, Patience: 2 * time.Second,
	Survey: 20 * time.Millisecond, FirstRetry: 5 * time.Millisecond, MaxRetry: 50 * time.Millisecond}

// testSlave is a Follower at work on a store.
type testSlave struct {
	t        testing.TB
	dir      string
	store    *replica.Store
	lock     *replica.Lock
	follower *stock.Follower
	broker   *stock.Broker
	cancel   context.CancelFunc
	work     sync.WaitGroup
	result   error // of the follower; read after work

	mu     sync.Mutex
	states []slaveState
}

type slaveState struct {
	state   state.State
	problem state.Problem
	err     error
}

// slaveOptions say how a slave differs from the usual one.
type slaveOptions struct {
	dir     string // default: a new one
	blind   bool   // the HA port alone
	ack     replica.Ack
	timing  stock.Timing
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	want    stock.Expectation
	noFlush bool // nothing is synced before flush
	retain  func(*replica.Store) func(wire.PhyOffset) error
	limits  *pace.Limits
	beside  bool // whatever comes is taken beside the next piece
}

// follow starts a slave of m; it is stopped with the test.
func follow(t testing.TB, m *fakeMaster, o slaveOptions) *testSlave {
	t.Helper()
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	if o.timing == (stock.Timing{}) {
		o.timing = fast
	}
	lock, err := replica.AcquireLock(o.dir)
	if err != nil {
		t.Fatal(err)
	}
	store, err := replica.Open(replica.Options{Dir: o.dir, SegmentSize: m.size, Cluster: "c1", BrokerName: "b1", Ack: o.ack}, lock)
	if err != nil {
		closeAll(t, releaser{lock})
		t.Fatal(err)
	}
	s := &testSlave{t: t, dir: o.dir, store: store, lock: lock}
	opt := stock.FollowerOptions{Limits: o.limits, Store: store, Want: o.want, Timing: o.timing, Dial: o.dial, OnState: s.note}
	if o.blind {
		opt.Want.HAAddr = m.haPort.Addr().String()
	} else {
		s.broker = stock.NewBroker(m.port.Addr().String(), stock.BrokerOptions{Dial: o.dial})
		opt.Broker = s.broker
	}
	if o.retain != nil {
		opt.Retention = o.retain(store)
	}
	s.follower = stock.NewFollower(opt)
	if o.beside {
		s.follower.TakeBeside(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.work.Go(func() { s.result = s.follower.Run(ctx) })
	if !o.noFlush {
		s.flush(ctx)
	}
	t.Cleanup(s.stop)
	return s
}

type releaser struct{ lock *replica.Lock }

func (r releaser) Close() error { return r.lock.Release() }

// flush syncs the store until ctx ends.
func (s *testSlave) flush(ctx context.Context) {
	s.work.Go(func() {
		if err := s.store.Run(ctx); err != nil {
			s.t.Errorf("flush: %v", err)
		}
	})
}

func (s *testSlave) note(now state.State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := slaveState{state: now, err: err}
	if p := state.AsProblem(err); p != nil {
		entry.problem = *p
	}
	s.states = append(s.states, entry)
}

// stop ends the slave as a service that is stopped. It may be called again.
func (s *testSlave) stop() {
	s.cancel()
	s.work.Wait()
	if s.broker != nil {
		closeAll(s.t, s.broker)
	}
	if err := s.store.Close(); err != nil && !errors.Is(err, replica.ErrClosed) {
		s.t.Errorf("close store: %v", err)
	}
}

// kill ends the slave without a word, as far as one process can: nothing is
// synced or tidied up.
func (s *testSlave) kill() {
	s.cancel()
	s.work.Wait()
	if err := s.store.Abandon(); err != nil {
		s.t.Errorf("abandon store: %v", err)
	}
	closeAll(s.t, releaser{s.lock})
}

// last returns the present state.
func (s *testSlave) last() slaveState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) == 0 {
		return slaveState{}
	}
	return s.states[len(s.states)-1]
}

// was reports whether the slave has ever been in a state.
func (s *testSlave) was(st state.State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.states, func(e slaveState) bool { return e.state == st })
}

// stuck waits for a problem and returns it.
func (s *testSlave) stuck(want state.State, code string) state.Problem {
	s.t.Helper()
	eventually(s.t, string(want)+" "+code, func() bool {
		p := s.last().problem
		return p.State == want && p.Code == code
	})
	p := s.last().problem
	if p.Try == "" || p.Reason == "" {
		s.t.Errorf("no reason or next step: %+v", p)
	}
	return p
}

// caughtUp waits until the slave holds, and says that it holds, all of m's log,
// and compares every byte.
func (s *testSlave) caughtUp(m *fakeMaster) {
	s.t.Helper()
	eventually(s.t, "caught up", func() bool {
		return s.store.Ends().Verified == m.writer.End() && s.last().state == state.Streaming
	})
	s.equal(m)
}

// equal checks that what the slave has verified is what m has there (I2).
func (s *testSlave) equal(m *fakeMaster) {
	s.t.Helper()
	ends := s.store.Ends()
	if ends.Verified <= ends.Min {
		return
	}
	own := make([]byte, ends.Verified.Sub(ends.Min))
	if err := s.store.ReadAt(own, ends.Min); err != nil {
		s.t.Fatal(err)
	}
	if !bytes.Equal(own, m.bytes(ends.Min, ends.Verified)) {
		s.t.Fatalf("replica [%d, %d) is not what the source has there", ends.Min, ends.Verified)
	}
}

// segments returns the bases of the segments on disk.
func (s *testSlave) segments() []wire.PhyOffset {
	s.t.Helper()
	list, err := commitlog.List(s.store.CommitLogDir())
	if err != nil {
		s.t.Fatal(err)
	}
	bases := make([]wire.PhyOffset, 0, len(list))
	for _, seg := range list {
		bases = append(bases, seg.Base)
	}
	return bases
}

// pieces dials connections of which one read yields at most n bytes.
func pieces(n int) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return pieceConn{conn, n}, nil
	}
}

type pieceConn struct {
	net.Conn
	n int
}

// Read implements io.Reader.
func (c pieceConn) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(len(p), c.n)]) }

// honest makes m check each report: never above what the slave stored, nor what
// the connection carried whole, nor below the one before it (I3).
func honest(m *fakeMaster, s func() *testSlave) {
	var mu sync.Mutex
	link, last := 0, wire.NoOffset
	m.state.Lock()
	defer m.state.Unlock()
	m.onReport = func(l *fakeLink, off wire.PhyOffset) {
		mu.Lock()
		defer mu.Unlock()
		if l.n != link {
			link, last = l.n, wire.NoOffset
		}
		if off < last {
			m.t.Errorf("link %d: report %d after %d", l.n, off, last)
		}
		last = off
		if acked := s().store.Ends().Acked; off > max(acked, 0) {
			m.t.Errorf("link %d: report %d, the replica may acknowledge %d", l.n, off, acked)
		}
	}
}
