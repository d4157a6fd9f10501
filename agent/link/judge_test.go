package link_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// follow makes a replica of n messages and returns it stopped, with the address
// that it will look at again.
func follow(t *testing.T, n int) (s *slave, addr string, m *master) {
	t.Helper()
	m = startMaster(t, masterOptions{})
	end := m.grow(n)
	s = startSlave(t, m.addr, slaveOptions{})
	m.acked("slave", end)
	s.stop()
	m.stop()
	return s, m.addr, m
}

// other makes a source at addr whose first n messages are those of every other
// one, and the next as many as more says are its own.
func other(t *testing.T, addr string, n, more int) *master {
	t.Helper()
	m := newMaster(t, masterOptions{addr: addr, dir: filepath.Join(t.TempDir(), "other")})
	_, end := m.fill(n)
	if more > 0 {
		m.rand = rand.New(rand.NewPCG(99, uint64(n)))
		_, end = m.fill(more)
	}
	m.run()
	m.word.say(end)
	until(t, "the confirmed end", func() bool { return m.src.Ends().Confirmed == end })
	return m
}

// firstDifference is where two stores' logs differ first.
func firstDifference(t *testing.T, a, b string) wire.PhyOffset {
	t.Helper()
	_, x := logOf(t, a)
	_, y := logOf(t, b)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return wire.PhyOffset(i)
		}
	}
	t.Fatal("they do not differ")
	return 0
}

func TestJudge_SourceBehind_IsFollowedAgainWhenItRecovers_Fault20(t *testing.T) {
	t.Parallel()
	s, addr, _ := follow(t, 200)
	verified := s.store.Ends().Verified
	m := other(t, addr, 150, 0)
	s.run()
	s.untilProblem(state.Diverged, "source_behind")
	if got := m.table.Rank(1); got != wire.NoOffset {
		t.Errorf("a replica that is ahead acked %d", got)
	}
	if got := s.store.Ends().Verified; got != verified {
		t.Errorf("the replica was %d, is %d", verified, got)
	}
	end := m.grow(50)
	if end != verified {
		t.Fatalf("the source recovered to %d, not %d", end, verified)
	}
	s.poke()
	m.acked("slave", end)
	end = m.grow(20)
	m.acked("slave", end)
	s.stop()
	s.same(m.opt.dir, end)
}

// TestJudge_SourceThatLostItsTailAndGrewAgain is not told from lengths: only the
// bytes differ (fault 20, 26).
func TestJudge_Diverged_ExactOffset(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		same, more int
	}{
		{"longer", 120, 200},
		{"shorter", 60, 20},
		{"in the first segment", 3, 300},
		{"in the last message", 199, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, addr, before := follow(t, 200)
			m := other(t, addr, c.same, c.more)
			s.run()
			reason := s.untilProblem(state.Diverged, "diverged")
			at := firstDifference(t, before.opt.dir, m.opt.dir)
			if !strings.Contains(reason, fmt.Sprintf("from offset %d on", at)) {
				t.Errorf("the first difference is at %d, told is %q", at, reason)
			}
			if got := m.table.Rank(1); got != wire.NoOffset {
				t.Errorf("a replica that differs acked %d", got)
			}
			end := s.store.Ends().Verified
			s.stop()
			s.same(before.opt.dir, end)
		})
	}
}

// TestJudge_SourceReplaced follows three segments and finds another store, also
// a shorter one (fault 15).
func TestJudge_SourceReplaced_Fault15(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"longer": 300, "one segment": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, addr, before := follow(t, 200)
			m := other(t, addr, 0, n)
			s.run()
			s.untilProblem(state.SourceReplaced, "source_replaced")
			if got := m.table.Rank(1); got != wire.NoOffset {
				t.Errorf("a replica of another log acked %d", got)
			}
			end := s.store.Ends().Verified
			s.stop()
			s.same(before.opt.dir, end)
		})
	}
}

func TestJudge_Gap(t *testing.T) {
	t.Parallel()
	s, _, m := follow(t, 50)
	m.run()
	m.fill(300)
	for m.w.Min() <= s.store.Ends().Verified {
		if _, err := m.w.DropOldest(); err != nil {
			t.Fatal(err)
		}
	}
	end := m.grow(1)
	until(t, "the new beginning", func() bool { return m.src.Ends().Min == m.w.Min() })
	verified := s.store.Ends().Verified
	s.run()
	s.untilProblem(state.Gap, "history_gone")
	if got := s.store.Ends().Verified; got != verified || m.table.Rank(1) != wire.NoOffset {
		t.Errorf("verified is %d, was %d; acked is %d of %d", got, verified, m.table.Rank(1), end)
	}
}

// TestJudge_SourceChangesInMidStream cuts the source's log back while it is
// streamed: the stream ends, and the replica finds itself ahead.
func TestJudge_SourceChangesInMidStream(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	s := startSlave(t, m.addr, slaveOptions{})
	kept := m.grow(100)
	end := m.grow(10)
	m.acked("slave", end)
	m.word.say(kept)
	m.cutBack(kept)
	s.untilProblem(state.Diverged, "source_behind")
	until(t, "nobody in reach", func() bool { return m.table.InReach() == 0 })
	if got := s.store.Ends().Verified; got != end {
		t.Errorf("the replica went back to %d", got)
	}
}

// TestJudge_LastRecordChangesBehindItsBack: the replica has the last record from
// the broker's word, a master that was started anew does not know that it is
// complete, and then it is another one of the same size.
func TestJudge_LastRecordChangesBehindItsBack(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	s := startSlave(t, m.addr, slaveOptions{})
	last := m.grow(10)
	record := func(b byte) []byte {
		return forge.AppendMessage(nil, forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: bytes.Repeat([]byte{b}, 500)}, last)
	}
	if _, err := m.w.Append(forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: bytes.Repeat([]byte{'x'}, 500)}); err != nil {
		t.Fatal(err)
	}
	end := m.w.End()
	if end.Sub(last) != wire.ByteSize(len(record('y'))) {
		t.Fatal("the records do not have the same size")
	}
	m.word.say(end)
	m.acked("slave", end)
	m.stop()
	m.run()
	m.acked("slave", end) // its bytes are equal, although they are not confirmed here
	if got := m.src.Ends().Confirmed; got != last {
		t.Fatalf("confirmed is %d, want %d", got, last)
	}
	m.overwrite(last, record('y'))
	m.word.say(end)
	reason := s.untilProblem(state.Diverged, "diverged")
	if verified := s.store.Ends().Verified; verified != end || !strings.Contains(reason, "from offset") {
		t.Errorf("verified is %d, told is %q", verified, reason)
	}
	m.inReach(0)
}

// TestJudge_SegmentsGoWhileTheyAreSent: whoever is too slow ends in a gap, or has
// everything, and never in between (fault 13, 60).
func TestJudge_SegmentsGoWhileTheyAreSent_Fault60(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]int{"some stay": 20, "only the last": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMaster(t, masterOptions{})
			for range 800 {
				if _, err := m.w.Append(forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: make([]byte, 30_000)}); err != nil {
					t.Fatal(err)
				}
			}
			m.run()
			r := startRelay(t, func() string { return m.addr })
			r.set(wirelink.ChannelLog, toSlave, rule{piece: 4000, delay: time.Millisecond})
			s := startSlave(t, r.addr, slaveOptions{})
			until(t, "the first messages", func() bool { return s.store.Ends().Verified > 100_000 })
			keep := m.w.End().SegmentBase(segmentSize).Add(-wire.ByteSize(leave-1) * segmentSize)
			for m.w.Min() < keep {
				if _, err := m.w.DropOldest(); err != nil {
					t.Fatal(err)
				}
			}
			end := m.w.End()
			m.word.say(end)
			r.heal()
			until(t, "an end", func() bool {
				p := state.AsProblem(s.last().err)
				return p != nil && p.Code == "history_gone" || m.ackOf("slave") == end
			})
			verified := s.store.Ends().Verified
			s.stop()
			if start, got := logOf(t, s.opt.dir); start != 0 || verified > end || wire.PhyOffset(len(got)) < verified {
				t.Errorf("the replica holds [%d, %d) of [0, %d)", start, verified, end)
			}
		})
	}
}

func TestJudge_WhatDoesNotFitIsIncompatible(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	m.grow(10)
	for _, c := range []struct {
		code string
		o    slaveOptions
	}{
		{"wrong_cluster", slaveOptions{cluster: "another"}},
		{"wrong_broker", slaveOptions{broker: "another"}},
		{"segment_size", slaveOptions{segment: 2 * segmentSize}},
		{"wrong_broker", slaveOptions{node: "master"}},
	} {
		s := startSlave(t, m.addr, c.o)
		s.untilProblem(state.Incompatible, c.code)
		if !s.store.Empty() {
			t.Errorf("%s: bytes were taken", c.code)
		}
		s.stop()
	}
}

// TestJudge_Epochs: the higher epoch wins, and is remembered over restarts.
func TestJudge_Epochs(t *testing.T) {
	t.Parallel()
	m := newMaster(t, masterOptions{epoch: 5})
	m.run()
	s := startSlave(t, m.addr, slaveOptions{})
	end := m.grow(10)
	m.acked("slave", end)
	s.stop()
	if st, err := replica.ReadState(s.opt.dir); err != nil || st.Epoch != 5 {
		t.Fatalf("the state has epoch %d, %v", st.Epoch, err)
	}
	m.stop()
	m.opt.epoch = 4
	m.run()
	s.run()
	s.untilProblem(state.SplitBrain, "stale_epoch")
	if n := m.table.InReach(); n != 0 {
		t.Errorf("a stale master has %d replicas", n)
	}
	m.stop()
	m.opt.epoch = 6
	m.run()
	s.poke()
	end = m.grow(1)
	m.acked("slave", end)
	s.stop()
	if st, err := replica.ReadState(s.opt.dir); err != nil || st.Epoch != 6 {
		t.Fatalf("the state has epoch %d, %v", st.Epoch, err)
	}
}

// TestSurvey_SaysWhoTheMasterIs is for a replica that has nothing yet.
func TestSurvey_SaysWhoTheMasterIs(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{epoch: 3})
	end := m.grow(10)
	w, err := link.Survey(t.Context(), m.addr, link.Identity{Node: "slave"}, replica.AckMemory, noSecurity(t), quick)
	if err != nil {
		t.Fatal(err)
	}
	if w.SegmentSize != segmentSize || w.Cluster != "c" || w.BrokerName != "b" || w.Node != "master" || w.Confirmed != end || w.Epoch != 3 {
		t.Errorf("it says %+v", w)
	}
	_, err = link.Survey(t.Context(), m.addr, link.Identity{Node: "slave", BrokerName: "x"}, replica.AckMemory, noSecurity(t), quick)
	if p := state.AsProblem(err); p == nil || p.Code != "wrong_broker" {
		t.Errorf("another broker's name gets %v", err)
	}
}
