package link_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// overwrite stores b into the source's log as a broker does, in place.
func (m *master) overwrite(at wire.PhyOffset, b []byte) {
	m.t.Helper()
	base := at.SegmentBase(segmentSize)
	f, err := os.OpenFile(filepath.Join(m.opt.dir, "commitlog", commitlog.Name(base)), os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, int64(at.Sub(base))); err != nil {
		m.t.Fatal(err)
	}
}

// cutBack zeroes the source's log from end to the end of its segment, as a
// broker that recovers does.
func (m *master) cutBack(end wire.PhyOffset) {
	m.t.Helper()
	m.overwrite(end, make([]byte, end.SegmentBase(segmentSize).Add(segmentSize).Sub(end)))
}

// TestProvisional_ShippedButNotAcked: a settled last record comes, and counts
// only when the next one has begun.
func TestProvisional_ShippedButNotAcked_I3(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{settle: 20 * time.Millisecond})
	s := startSlave(t, m.addr, slaveOptions{})
	for range 5 {
		last, end := m.fill(10)
		until(t, "the settled record", func() bool { return s.store.Ends().Written == end })
		m.acked("slave", last)
		if e := s.store.Ends(); e.Verified != last {
			t.Fatalf("I3: verified is %d, confirmed is %d of %d", e.Verified, last, end)
		}
		s.untilState(state.Streaming)
	}
	_, end := m.fill(1)
	until(t, "the settled record", func() bool { return s.store.Ends().Written == end })
	verified := s.store.Ends().Verified
	s.stop()
	s.same(m.opt.dir, verified) // and what was provisional is erased
}

// TestProvisional_ConfirmedByHeartbeat: what confirms brings no bytes of its own.
func TestProvisional_ConfirmedByHeartbeat(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{settle: 20 * time.Millisecond})
	s := startSlave(t, m.addr, slaveOptions{})
	_, end := m.fill(5)
	until(t, "the settled record", func() bool { return s.store.Ends().Written == end })
	// A record that has begun, and nothing more of it, confirms the one before.
	next := forge.AppendMessage(nil, forge.RandomMessage(m.rand, forge.Variety{}), end)
	m.overwrite(end, next[:60])
	m.acked("slave", end)
	if got := s.store.Ends().Written; got != end {
		t.Errorf("I1: written is %d, the whole records end at %d", got, end)
	}
}

// TestProvisional_ChangedIsReplaced changes the record that was shipped, to one
// of the same size, of another size, and to none.
func TestProvisional_ChangedIsReplaced(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{settle: 20 * time.Millisecond})
	s := startSlave(t, m.addr, slaveOptions{})
	last, end := m.fill(5)
	until(t, "the settled record", func() bool { return s.store.Ends().Written == end })
	for i, size := range []int{300, 300, 30_000, 100} {
		record := forge.AppendMessage(nil, forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: bytes.Repeat([]byte{byte('a' + i)}, size)}, last)
		m.cutBack(last)
		m.overwrite(last, record)
		end = last.Add(wire.ByteSize(len(record)))
		want := append(record, 0)
		until(t, "the changed record", func() bool {
			_, got := logOf(t, s.opt.dir)
			return bytes.Equal(got[last:][:len(want)], want)
		})
		if got := s.store.Ends().Verified; got != last {
			t.Fatalf("I3: verified is %d, confirmed is %d", got, last)
		}
	}
	next := forge.AppendMessage(nil, forge.RandomMessage(m.rand, forge.Variety{}), end)
	m.overwrite(end, next)
	m.acked("slave", end)
	s.never(state.ProtocolError)
	s.stop()
	s.same(m.opt.dir, end)
}
