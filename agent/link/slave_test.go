package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// slaveOptions are what tests vary; the zero value of each has a default.
type slaveOptions struct {
	dir       string
	node      string
	cluster   string
	broker    string
	ack       replica.Ack
	security  *link.Security // none
	segment   wire.ByteSize
	timing    link.Timing
	target    func() (link.Target, error) // instead of an address
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	offer     func(metadata.Snapshot) error
	retention bool
	limits    *pace.Limits
	rewind    bool
	beside    bool           // frames of every length are taken beside the next one
	from      wire.PhyOffset // replica.Options.Rewind
}

// slave is a replica and its follower.
type slave struct {
	t        testing.TB
	opt      slaveOptions
	addr     string
	lock     *replica.Lock
	store    *replica.Store
	follower *link.Follower
	changed  chan struct{}
	end      func() error // of what runs
	ended    <-chan error // gets how it ended

	mu     sync.Mutex
	states []told
}

// told is what a follower said of its state.
type told struct {
	state state.State
	err   error
}

func newSlave(t testing.TB, addr string, o slaveOptions) *slave {
	t.Helper()
	if o.dir == "" {
		o.dir = filepath.Join(t.TempDir(), "replica")
	}
	if o.node == "" {
		o.node = "slave"
	}
	if o.cluster == "" {
		o.cluster = "c"
	}
	if o.broker == "" {
		o.broker = "b"
	}
	if o.security == nil {
		o.security = noSecurity(t)
	}
	if o.segment == 0 {
		o.segment = segmentSize
	}
	if o.timing == (link.Timing{}) {
		o.timing = quick
	}
	s := &slave{t: t, opt: o, addr: addr, changed: make(chan struct{}, 1)}
	t.Cleanup(s.stop)
	return s
}

func startSlave(t testing.TB, addr string, o slaveOptions) *slave {
	t.Helper()
	s := newSlave(t, addr, o)
	s.run()
	return s
}

// run opens the store and follows; stop or kill ends it.
func (s *slave) run() {
	s.t.Helper()
	var err error
	if s.lock == nil {
		if s.lock, err = replica.AcquireLock(s.opt.dir); err != nil {
			s.t.Fatal(err)
		}
	}
	s.store, err = replica.Open(replica.Options{Dir: s.opt.dir, SegmentSize: s.opt.segment, Cluster: s.opt.cluster, BrokerName: s.opt.broker, Ack: s.opt.ack, Rewind: s.opt.from}, s.lock)
	if err != nil {
		s.t.Fatal(err)
	}
	target := s.opt.target
	if target == nil {
		target = func() (link.Target, error) { return link.Target{Node: "master", Addr: s.addr}, nil }
	}
	o := link.FollowerOptions{Security: s.opt.security, Self: link.Identity{Node: s.opt.node, Version: "test"}, Ack: s.opt.ack, Target: target, Changed: s.changed,
		Limits: s.opt.limits, Rewind: s.opt.rewind,
		Store: s.store, Offer: s.opt.offer, Dial: s.opt.dial, Timing: s.opt.timing, OnState: s.onState}
	if s.opt.retention {
		o.Retention = func(sourceMin wire.PhyOffset) error { _, err := s.store.DropBefore(sourceMin); return err }
	}
	if s.opt.beside {
		o.TakeBeside(1)
	}
	s.follower = link.NewFollower(o)
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.store.Run(ctx) })
	group.Go(func() error { return s.follower.Run(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- group.Wait(); cancel() }()
	s.ended = ended
	s.end = sync.OnceValue(func() error { cancel(); return <-ended })
}

func (s *slave) onState(st state.State, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, told{st, err})
}

// stop ends it in good order. Stopping it again does nothing.
func (s *slave) stop() {
	if s.end == nil {
		return
	}
	if err := s.end(); err != nil {
		s.t.Errorf("the slave ended with %v", err)
	}
	if err := s.store.Close(); err != nil {
		s.t.Error(err)
	}
	s.end, s.lock = nil, nil
}

// kill ends it as kill -9 does: nothing is synced or erased any more.
func (s *slave) kill() {
	s.t.Helper()
	err := s.end()
	if err := errors.Join(err, s.store.Abandon(), s.lock.Release()); err != nil {
		s.t.Fatal(err)
	}
	s.end, s.lock = nil, nil
}

// poke makes a follower that waits try again.
func (s *slave) poke() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *slave) last() told {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) == 0 {
		return told{}
	}
	return s.states[len(s.states)-1]
}

// untilState waits until the last state told is st.
func (s *slave) untilState(st state.State) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.t.Logf("the last states are %v", s.states[max(0, len(s.states)-5):])
		}
	}()
	until(s.t, "the state "+string(st), func() bool { return s.last().state == st })
}

// untilProblem waits for a state and a code and returns the reason that was told.
func (s *slave) untilProblem(st state.State, code string) (reason string) {
	s.t.Helper()
	var p *state.Problem
	limit := s.t.Context()
	until(s.t, fmt.Sprintf("%s/%s", st, code), func() bool {
		p = state.AsProblem(s.last().err)
		return limit.Err() != nil || s.last().state == st && p != nil && p.Code == code
	})
	if p == nil || p.Try == "" || p.Reason == "" {
		s.t.Fatalf("a problem without a next step: %+v", p)
	}
	return p.Reason
}

// untilTold waits until a problem was told, also where the next attempt has ended in
// another one since.
func (s *slave) untilTold(st state.State, code string) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s/%s", st, code), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.states, func(one told) bool {
			p := state.AsProblem(one.err)
			return one.state == st && p != nil && p.Code == code
		})
	})
}

// never fails the test where the follower was ever in state st.
func (s *slave) never(st state.State) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.states {
		if one.state == st {
			s.t.Errorf("it was %s: %v", st, one.err)
		}
	}
}

// verified waits until the replica is verified up to end.
func (s *slave) verified(end wire.PhyOffset) {
	s.t.Helper()
	until(s.t, "the verified end "+end.String(), func() bool { return s.store.Ends().Verified == end })
}

// logOf returns where the log in a store's directory starts, and its bytes. It
// fails where there is anything but adjacent segments of full length (I6).
func logOf(t testing.TB, dir string) (wire.PhyOffset, []byte) {
	t.Helper()
	segments, err := commitlog.List(filepath.Join(dir, "commitlog"))
	if err == nil {
		err = commitlog.CheckSegments(segments, segmentSize)
	}
	if err != nil {
		t.Fatalf("I6: %v", err)
	}
	if len(segments) == 0 {
		return wire.NoOffset, nil
	}
	var all []byte
	for _, seg := range segments {
		b, err := os.ReadFile(seg.Path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return segments[0].Base, all
}

// same fails unless the replica is the source's log from its own start to end,
// with nothing but zeros behind (I2).
func (s *slave) same(source string, end wire.PhyOffset) {
	s.t.Helper()
	from, want := logOf(s.t, source)
	start, got := logOf(s.t, s.opt.dir)
	if start < from {
		s.t.Fatalf("the replica starts at %d, the source at %d", start, from)
	}
	n := end.Sub(start)
	if n > wire.ByteSize(len(got)) || !bytes.Equal(got[:n], want[start.Sub(from):end.Sub(from)]) {
		s.t.Errorf("I2: the replica is not the source's log from %d to %d", start, end)
		return
	}
	if rest := bytes.Trim(got[n:], "\x00"); len(rest) != 0 {
		s.t.Errorf("the replica has %d bytes behind %d", len(rest), end)
	}
}

// problemText is the whole text of what was told last, for messages.
func (s *slave) problemText() string {
	if err := s.last().err; err != nil {
		return strings.TrimSpace(err.Error())
	}
	return ""
}

// wait waits until what runs ends by itself, and returns why.
func (s *slave) wait() error {
	s.t.Helper()
	select {
	case err := <-s.ended:
		s.end = nil
		return err
	case <-time.After(soon):
		s.t.Fatal("the slave does not end")
		return nil
	}
}
