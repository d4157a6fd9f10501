package stock_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

// boundaries returns every offset at which a message of m's log, or a segment,
// ends.
func (m *fakeMaster) boundaries() map[wire.PhyOffset]bool {
	m.t.Helper()
	sc, err := commitlog.NewScanner(m.dir, m.size, wire.NoOffset)
	if err != nil {
		m.t.Fatal(err)
	}
	at := map[wire.PhyOffset]bool{0: true}
	for sc.Next() {
		rec := sc.Record()
		at[rec.PhyOffset], at[rec.End()] = true, true
	}
	at[sc.Offset()] = true
	for base := wire.PhyOffset(0); base <= sc.Offset(); base = base.Add(m.size) {
		at[base] = true // of segments that hold nothing but a BLANK, too
	}
	if err := errors.Join(sc.Close()); err != nil {
		m.t.Fatal(err)
	}
	return at
}

// I2 and I3 under whatever a network, a source and an operator do: frames of
// any size, cut anywhere, in dribs and drabs; connections that end; restarts of
// either side with a log that has grown.
func TestI2_I3_RandomLife(t *testing.T) {
	for _, seed := range []uint64{1, 2, 1795986055239008820, uint64(time.Now().UnixNano())} {
		for _, blind := range []bool{false, true} {
			randomLife(t, seed, blind)
			if t.Failed() {
				t.Fatalf("seed %d, blind=%v", seed, blind)
			}
		}
	}
}

func randomLife(t *testing.T, seed uint64, blind bool) {
	const steps = 40
	random := rand.New(rand.NewPCG(seed, 0))
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.beat = 5 * time.Millisecond
	timing := fast
	timing.Heartbeat, timing.Patience = 20*time.Millisecond, 200*time.Millisecond
	acks := []replica.Ack{replica.AckMemory, replica.AckDisk}
	dir := t.TempDir()
	var s *testSlave
	begin := func() {
		ready := make(chan struct{})
		honest(m, func() *testSlave { <-ready; return s })
		o := slaveOptions{dir: dir, blind: blind, timing: timing, ack: acks[random.IntN(2)], beside: random.IntN(2) == 0}
		if random.IntN(2) == 0 {
			o.dial = pieces(1 + random.IntN(20_000))
		}
		s = follow(t, m, o)
		close(ready)
	}
	script := func() {
		frames := rand.New(rand.NewPCG(seed, random.Uint64()))
		largest := 1 + frames.Int64N(int64(70*wire.KiB))
		cut := random.IntN(3) == 0
		m.play(func(l *fakeLink) {
			mine := rand.New(rand.NewPCG(uint64(largest), uint64(l.n)))
			left := 1 + mine.IntN(20)
			l.serve(func() wire.ByteSize {
				if left--; cut && left == 0 {
					closeAll(t, l.conn)
				}
				return wire.ByteSize(1 + mine.Int64N(largest))
			})
		})
	}
	begin()
	for range steps {
		for n := random.IntN(30); n > 0; n-- {
			msg := forge.RandomMessage(m.random, forge.Variety{V2: true, IPv6: true, Transactions: true, PropertyCRC: true})
			if _, err := m.writer.Append(msg); err != nil {
				t.Fatal(err)
			}
			m.wake()
		}
		switch random.IntN(8) {
		case 0:
			m.cut()
		case 1:
			script()
			m.cut()
		case 2:
			m.roll()
		case 3:
			s.kill()
			s.filesEqual(m)
			waitIdle(t, m)
			begin()
		case 4:
			s.stop()
			waitIdle(t, m)
			begin()
		default:
			seen := len(m.happened("report", "request"))
			eventually(t, "a sign of life", func() bool { return len(m.happened("report", "request")) > seen })
		}
	}
	m.play(func(l *fakeLink) { l.serve(nil) })
	m.cut()
	s.caughtUp(m)
	s.stop()
	at := m.boundaries()
	requests := make(map[int]wire.PhyOffset)
	for _, e := range m.happened("request", "report") {
		switch {
		case e.kind == "request":
			requests[e.link] = e.off
		case !at[e.off] && e.off != requests[e.link]:
			t.Errorf("%v is no end of a message", e)
		}
	}
}

// filesEqual checks the files of a killed slave: full-length, adjacent segments
// (I6) with the source's bytes or nothing at each place (I2).
func (s *testSlave) filesEqual(m *fakeMaster) {
	s.t.Helper()
	list, err := commitlog.List(s.store.CommitLogDir())
	if err == nil {
		err = commitlog.CheckSegments(list, m.size)
	}
	if err != nil {
		s.t.Errorf("after a kill: %v", err)
	}
	ends := s.store.Ends()
	for name, b := range s.snapshot() {
		base, err := commitlog.ParseName(name)
		if err != nil {
			s.t.Fatal(err)
		}
		held := min(max(ends.Verified.Sub(base), 0), wire.ByteSize(len(b)))
		if string(m.bytes(base, base.Add(held))) != b[:held] {
			s.t.Errorf("segment %s is not the source's", name)
		}
	}
}
