package link_test

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// heartbeatOf makes a heartbeat of any three ends, with the right checksum.
func heartbeatOf(ends ...int64) []byte {
	b := (&wirelink.Heartbeat{}).Append(nil)
	for i, e := range ends {
		binary.BigEndian.PutUint64(b[wirelink.HeaderSize+8*i:], uint64(e))
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.BigEndian.PutUint32(b[8:], crc32.Update(crc32.Checksum(b[:8], table), table, b[wirelink.HeaderSize:]))
	return b
}

// TestRetention_MasterWithAbsurdEnds has a replica of several segments, and a
// master that would have it drop all but one of them.
func TestRetention_MasterWithAbsurdEnds_DropsNothing(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(300)
	s := startSlave(t, m.addr, slaveOptions{retention: true})
	m.acked("slave", end)
	s.stop()
	before := len(segmentsIn(t, s.opt.dir))
	if before < 3 {
		t.Fatalf("%d segments are too few", before)
	}
	const most = math.MaxInt64
	for _, c := range []struct {
		name    string
		ends    []int64
		problem bool // a frame that no master sends
	}{
		{"min above confirmed", []int64{most, 0, 0}, true},
		{"min above confirmed, below visible", []int64{int64(end), 0, most}, true},
		{"confirmed above visible", []int64{0, most, 0}, true},
		{"no min", []int64{-1, int64(end), int64(end)}, true},
		{"beyond all that the replica has", []int64{most, most, most}, false},
		{"a byte beyond it", []int64{int64(end) + 1, int64(end) + 1, int64(end) + 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, links := fakeMaster(t, func(p *peer, _ wire.PhyOffset) {
				p.sendBytes(heartbeatOf(c.ends...))
				p.send(&wirelink.Goodbye{Code: wirelink.CodeStopping})
			})
			s := startSlave(t, addr, slaveOptions{dir: s.opt.dir, retention: true})
			defer s.stop()
			if c.problem {
				s.untilProblem(state.ProtocolError, "bad_frame")
			} else {
				until(t, "another connection", func() bool { return links() > 1 })
			}
			if after := len(segmentsIn(t, s.opt.dir)); after != before {
				t.Errorf("%d of %d segments are left", after, before)
			}
			if got := s.store.Ends().Verified; got != end {
				t.Errorf("verified is %d, was %d", got, end)
			}
		})
	}
}

// TestRetention_FollowsAMasterInOrder is what must go on to work.
func TestRetention_FollowsAMasterInOrder(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(300)
	s := startSlave(t, m.addr, slaveOptions{retention: true})
	m.acked("slave", end)
	s.stop()
	kept := end.SegmentBase(segmentSize)
	addr, _ := fakeMaster(t, func(p *peer, _ wire.PhyOffset) {
		p.send(&wirelink.Heartbeat{Min: kept, Confirmed: end, Visible: end})
	})
	again := startSlave(t, addr, slaveOptions{dir: s.opt.dir, retention: true})
	until(t, "the new beginning", func() bool { return again.store.Ends().Min == kept })
	if n := len(segmentsIn(t, s.opt.dir)); n != 1 {
		t.Errorf("%d segments are left", n)
	}
}

func segmentsIn(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "commitlog", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}
