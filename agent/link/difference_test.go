package link_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// oracle is a master that tells digests of a log in memory, and streams nothing.
type oracle struct {
	log     []byte
	min     wire.PhyOffset
	segment wire.ByteSize
	silent  func(at, end wire.PhyOffset) bool // nil: it answers whatever it has

	untold, started atomic.Int64 // questions not answered, replicas that wanted to start
}

// digest returns the digest of [at, at+size), where all of it is there.
func (o *oracle) digest(at wire.PhyOffset, size wire.ByteSize) (sum [sha256.Size]byte, ok bool) {
	end := at.Add(size)
	if at < o.min || end > wire.PhyOffset(len(o.log)) {
		return sum, false
	}
	return sha256.Sum256(o.log[at:end]), true
}

// serve listens until the test ends, and returns where.
func (o *oracle) serve(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	security, ended := noSecurity(t), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			o.talk(&peer{t: t, conn: conn}, security)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return l.Addr().String()
}

// talk has one connection, to its end.
func (o *oracle) talk(p *peer, security *link.Security) {
	var err error
	if p.session, err = security.Accept(p.t.Context(), p.conn); err != nil {
		return
	}
	h, err := p.session.ReadHello(p.t.Context())
	if err != nil {
		return
	}
	end := wire.PhyOffset(len(o.log))
	w := &wirelink.Welcome{SegmentSize: o.segment, Min: o.min, Confirmed: end, Visible: end, Epoch: 1, Cluster: "c", BrokerName: "b", Node: "master", Version: "test"}
	for _, d := range h.Digests {
		v := wirelink.Unknown
		if sum, ok := o.digest(d.At, d.Size); ok {
			v = wirelink.Differs
			if sum == d.Sum {
				v = wirelink.Equal
			}
		}
		w.Verdicts = append(w.Verdicts, v)
	}
	if p.session.SendWelcome(p.t.Context(), w) != nil {
		return
	}
	for {
		m, err := p.next()
		if err != nil {
			return
		}
		ask, ok := m.(*wirelink.Ask)
		if !ok {
			if m.Type() == wirelink.TypeStart {
				o.started.Add(1)
			}
			return
		}
		a := &wirelink.Answer{At: ask.At}
		if sum, ok := o.digest(ask.At, ask.Size); ok && (o.silent == nil || !o.silent(ask.At, ask.At.Add(ask.Size))) {
			a.Size, a.Sum = ask.Size, sum
		} else {
			o.untold.Add(1)
		}
		if _, err := p.session.Conn().Write(a.Append(nil)); err != nil {
			return
		}
	}
}

// twoLogs makes two logs of messages with bodies of given sizes that are the same up
// to message parted, and have other times from there on, but the same bodies. Every
// message fits into its segment.
func twoLogs(segment wire.ByteSize, sizes []int, parted int) (ours, theirs []byte) {
	for i, n := range sizes {
		m := forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: bytes.Repeat([]byte{byte(i)}, n), StoreTimestamp: commitlog.Millis(1000 + i)}
		at := wire.PhyOffset(len(ours))
		if room := at.SegmentBase(segment).Add(segment).Sub(at); room < m.Size()+commitlog.BlankSize {
			ours, theirs = forge.AppendBlank(ours, room), forge.AppendBlank(theirs, room)
			rest := make([]byte, room-commitlog.BlankSize)
			ours, theirs = append(ours, rest...), append(theirs, rest...)
			at = wire.PhyOffset(len(ours))
		}
		ours = forge.AppendMessage(ours, m, at)
		if i >= parted {
			m.StoreTimestamp += 1_000_000
		}
		theirs = forge.AppendMessage(theirs, m, at)
	}
	return ours, theirs
}

// hold makes a replica of a log, and a slave of it that is not running.
func hold(t *testing.T, o *oracle, log []byte) *slave {
	t.Helper()
	s := newSlave(t, o.serve(t), slaveOptions{segment: o.segment, rewind: true})
	lock, err := replica.AcquireLock(s.opt.dir)
	if err != nil {
		t.Fatal(err)
	}
	store, err := replica.Open(replica.Options{Dir: s.opt.dir, SegmentSize: o.segment, Cluster: "c", BrokerName: "b"}, lock)
	if err == nil {
		err = store.Begin(0)
	}
	if err == nil {
		err = store.Append(0, [][]byte{log})
	}
	if err == nil {
		err = store.Verify(wire.PhyOffset(len(log)))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func firstByte(a, b []byte) wire.PhyOffset {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return wire.PhyOffset(i)
		}
	}
	return wire.NoOffset
}

// parts runs the slave until it ends with a difference, and checks where.
func (s *slave) parts(want wire.PhyOffset) {
	s.t.Helper()
	s.run()
	if at, ok := replica.PartedAt(s.wait()); !ok || at != want {
		s.t.Errorf("it ended with a difference at %d (%t), which is at %d", at, ok, want)
	}
	s.abandon()
}

func (s *slave) abandon() {
	s.t.Helper()
	if err := s.store.Abandon(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.lock.Release(); err != nil {
		s.t.Fatal(err)
	}
}

// TestRewind_OneBodyInTwoMessages has logs that part at messages of which only the
// heads differ, and whose bodies are longer than what a bisection compares.
func TestRewind_OneBodyInTwoMessages(t *testing.T) {
	t.Parallel()
	const long = 200 << 10
	for name, sizes := range map[string][]int{
		"all long":             {100, long, long, long, long, long, long, long, long, long, long, long},
		"one long":             {100, 100, 100, long, 100, 100, 100, 100, 100, 100, 100, 100},
		"longer than a digest": {100, 3 << 20, 3 << 20, 3 << 20, 3 << 20, 100},
		"over segments":        {2 << 20, 2 << 20, 2 << 20, 2 << 20, 2 << 20, 2 << 20, 100, 2 << 20},
	} {
		for _, parted := range []int{1, 2, 3, len(sizes) - 1} {
			t.Run(fmt.Sprintf("%s, from message %d", name, parted), func(t *testing.T) {
				t.Parallel()
				ours, theirs := twoLogs(8*wire.MiB, sizes, parted)
				o := &oracle{log: theirs, segment: 8 * wire.MiB}
				hold(t, o, ours).parts(firstByte(ours, theirs))
				if o.started.Load() > 0 {
					t.Error("the replica started")
				}
			})
		}
	}
}

// TestRewind_WithoutAnAnswer_CutsNothing: a source that does not answer for some
// bytes leads to a cut only where the first difference is proven all the same.
func TestRewind_WithoutAnAnswer_CutsNothing(t *testing.T) {
	t.Parallel()
	sizes := make([]int, 600)
	for i := range sizes {
		sizes[i] = 700 + i%50
	}
	ours, theirs := twoLogs(segmentSize, sizes, 333)
	at := firstByte(ours, theirs)
	end := wire.PhyOffset(len(ours))
	for _, silent := range []wire.PhyOffset{0, 100, at - 70_000, at - 1, at, at + 1, at + 100_000, end - 100_000} {
		t.Run(fmt.Sprintf("at %d of %d, parted at %d", silent, end, at), func(t *testing.T) {
			t.Parallel()
			o := &oracle{log: theirs, segment: segmentSize, silent: func(from, to wire.PhyOffset) bool { return from <= silent && silent < to && to < end }}
			s := hold(t, o, ours)
			s.run()
			until(t, "an end", func() bool { return len(s.ended) > 0 || state.AsProblem(s.last().err) != nil })
			if len(s.ended) > 0 {
				if found, ok := replica.PartedAt(s.wait()); !ok || found != at || o.untold.Load() > 0 {
					t.Errorf("it ended with a difference at %d (%t), which is at %d; %d questions had no answer", found, ok, at, o.untold.Load())
				}
				s.abandon()
				return
			}
			if reason := s.untilProblem(state.Diverged, "diverged"); o.untold.Load() == 0 || !strings.Contains(reason, "does not tell from where on") {
				t.Errorf("it says %q, and %d questions had no answer", reason, o.untold.Load())
			}
			if _, ok := replica.PartedAt(s.last().err); ok {
				t.Error("there is a difference to cut at")
			}
			s.stop()
		})
	}
	t.Run("here and there", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(10) {
			random := rand.New(rand.NewPCG(seed, 1))
			o := &oracle{log: theirs, segment: segmentSize, silent: func(_, to wire.PhyOffset) bool { return to < end && random.IntN(30) == 0 }}
			s := hold(t, o, ours)
			s.run()
			until(t, "an attempt that has all its answers", func() bool { s.poke(); return len(s.ended) > 0 })
			if found, ok := replica.PartedAt(s.wait()); !ok || found != at {
				t.Errorf("it ended with a difference at %d (%t), which is at %d", found, ok, at)
			}
			s.abandon()
		}
	})
}

// TestRewind_NothingInCommon_CutsNothing: the source has nothing any more before the
// first message that differs.
func TestRewind_NothingInCommon_CutsNothing(t *testing.T) {
	t.Parallel()
	sizes := make([]int, 100)
	for i := range sizes {
		sizes[i] = 1000
	}
	ours, theirs := twoLogs(segmentSize, sizes, 3)
	base := wire.PhyOffset(len(ours)).SegmentBase(segmentSize)
	theirs = theirs[:base.Add(3*wire.KiB)] // less than the head that a hello tells of
	o := &oracle{log: theirs, min: base, segment: segmentSize}
	s := hold(t, o, ours)
	s.run()
	if reason := s.untilProblem(state.Diverged, "diverged"); !strings.Contains(reason, "nothing is cut") {
		t.Errorf("it says %q", reason)
	}
	if end := s.store.Ends().Verified; end != wire.PhyOffset(len(ours)) {
		t.Errorf("the replica went back to %d", end)
	}
	s.stop()
}
