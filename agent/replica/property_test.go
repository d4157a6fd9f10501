package replica

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// machine is a replica and what is known about it from outside: how far bytes
// were offered and verified, and what the last process is known to have synced.
type machine struct {
	t   *rapid.T
	dir string
	log *sourceLog
	opt Options
	s   *Store

	written, verified wire.PhyOffset
	synced            wire.PhyOffset // what state.json says at least
	min               wire.PhyOffset
}

// TestI2_I3_I6_AnyRhythm feeds logs in pieces of any size, verifies in any
// rhythm, and closes, kills, flushes, drops and opens again in between.
func TestI2_I3_I6_AnyRhythm(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(parent, "store")
		if err != nil {
			t.Fatalf("%v", err)
		}
		size := wire.ByteSize(rapid.SampledFrom([]int{8192, 9000, 20480, 65536}).Draw(t, "segment"))
		start := wire.PhyOffset(size) * wire.PhyOffset(rapid.SampledFrom([]int64{0, 0, 1, 3, 1 << 30}).Draw(t, "start"))
		v := anyMessage
		v.MaxSize = wire.ByteSize(rapid.IntRange(1024, 7000).Draw(t, "largest"))
		m := &machine{
			t: t, dir: dir,
			log: makeLog(rapid.Uint64().Draw(t, "seed"), size, start, rapid.IntRange(1, 60).Draw(t, "messages"), v),
			min: wire.NoOffset, written: wire.NoOffset, verified: wire.NoOffset, synced: wire.NoOffset,
		}
		m.opt = Options{Dir: dir, SegmentSize: size, Ack: rapid.SampledFrom([]Ack{AckMemory, AckDisk}).Draw(t, "ack")}
		m.s = openStore(t, m.opt)
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"append2":  m.append,
			"verify":   m.verify,
			"verify2":  m.verify,
			"flush":    m.flush,
			"drop":     m.dropBefore,
			"discard":  m.discard,
			"compare":  m.compare,
			"misplace": m.misplace,
			"close":    m.closeAndOpen,
			"kill":     m.killAndOpen,
			"":         m.check,
		})
		m.finish()
	})
}

func (m *machine) begun() bool { return m.min != wire.NoOffset }

// append offers the next bytes, cut into pieces.
func (m *machine) append(t *rapid.T) {
	if !m.begun() {
		if err := m.s.Begin(m.log.start); err != nil {
			t.Fatalf("begin: %v", err)
		}
		m.min, m.written, m.verified = m.log.start, m.log.start, m.log.start
	}
	left := int(m.log.end().Sub(m.written))
	n := rapid.OneOf(rapid.IntRange(0, 13), rapid.IntRange(0, 3000), rapid.IntRange(0, int(2*m.log.size)+5)).Draw(t, "bytes")
	n = min(n, left)
	next := m.written.Add(wire.ByteSize(n))
	rest := m.log.at(m.written, next)
	var bufs [][]byte
	for len(rest) > 0 {
		k := rapid.OneOf(rapid.IntRange(0, 13), rapid.IntRange(1, max(1, n))).Draw(t, "piece")
		k = min(k, len(rest))
		bufs, rest = append(bufs, rest[:k:k]), rest[k:]
		if len(bufs) == 400 {
			bufs, rest = append(bufs, rest), nil
		}
	}
	if err := m.s.Append(m.written, bufs); err != nil {
		t.Fatalf("append: %v", err)
	}
	m.written = next
}

// verify moves the verified end over every whole message below a limit that may
// lie anywhere.
func (m *machine) verify(t *rapid.T) {
	if !m.begun() {
		return
	}
	limit := wire.PhyOffset(rapid.Int64Range(int64(m.min), int64(m.written)).Draw(t, "limit"))
	if rapid.Bool().Draw(t, "all") {
		limit = m.written
	}
	if err := m.s.Verify(limit); err != nil {
		t.Fatalf("verify: %v", err)
	}
	m.verified = max(m.verified, m.log.boundary(limit))
	if err := m.s.Verify(m.written + 1); !errors.Is(err, ErrNotAdjacent) {
		t.Fatalf("verify beyond what was written: %v", err)
	}
}

func (m *machine) flush(t *rapid.T) {
	if err := m.s.flush(); err != nil {
		t.Fatalf("flush: %v", err)
	}
	m.synced = m.verified
}

// dropBefore drops segments below any offset; only synced ones may go.
func (m *machine) dropBefore(t *rapid.T) {
	if m.s.Empty() {
		return
	}
	offset := wire.PhyOffset(rapid.Int64Range(int64(m.min), int64(m.log.end())).Draw(t, "offset"))
	before := len(segmentsOf(t, m.dir, m.log.size))
	n, err := m.s.DropBefore(offset)
	if err != nil {
		t.Fatalf("drop: %v", err)
	}
	after := segmentsOf(t, m.dir, m.log.size)
	if len(after) != before-n || len(after) == 0 {
		t.Fatalf("dropped %d of %d segments, %d are left", n, before, len(after))
	}
	if after[0].Base > m.min && after[0].Base > min(offset, m.s.Ends().Flushed) {
		t.Fatalf("dropped up to %d for offset %d", after[0].Base, offset)
	}
	if n > 0 {
		m.synced = max(m.synced, m.s.Ends().Flushed)
	}
	m.min = after[0].Base
}

func (m *machine) discard(t *rapid.T) {
	if err := m.s.DropUnverified(); err != nil {
		t.Fatalf("drop unverified: %v", err)
	}
	if m.begun() {
		m.written = m.verified
	}
}

func (m *machine) compare(t *rapid.T) {
	if !m.begun() || m.verified == m.min {
		return
	}
	from := wire.PhyOffset(rapid.Int64Range(int64(m.min), int64(m.verified-1)).Draw(t, "from"))
	own := bytes.Clone(m.log.at(from, m.verified))
	if err := m.s.Compare(from, own); err != nil {
		t.Fatalf("compare: %v", err)
	}
	i := rapid.IntRange(0, len(own)-1).Draw(t, "flip")
	own[i] ^= 0x40
	var differ *DifferenceError
	if err := m.s.Compare(from, own); !errors.As(err, &differ) || differ.PhyOffset != from.Add(wire.ByteSize(i)) {
		t.Fatalf("compare with byte %d changed: %v", from.Add(wire.ByteSize(i)), err)
	}
	if last := m.s.LastMessage(); last != wire.NoOffset {
		msg, err := m.s.Message(last)
		if err != nil || !bytes.Equal(msg, m.log.at(last, last.Add(wire.ByteSize(len(msg))))) {
			t.Fatalf("last message at %d: %v", last, err)
		}
		if end := last.Add(wire.ByteSize(len(msg))); end != m.verified && m.log.blanks[m.verified] != end {
			t.Fatalf("last message is [%d, %d), verified is %d", last, end, m.verified)
		}
	}
}

func (m *machine) misplace(t *rapid.T) {
	at := wire.PhyOffset(rapid.Int64Range(-5, int64(m.log.end())).Draw(t, "at"))
	if at == m.written && at >= 0 {
		at++
	}
	if err := m.s.Append(at, [][]byte{{1}}); !errors.Is(err, ErrNotAdjacent) {
		t.Fatalf("append at %d instead of %d: %v", at, m.written, err)
	}
	if !m.s.Empty() {
		if err := m.s.Begin(m.log.start); !errors.Is(err, ErrNotAdjacent) {
			t.Fatalf("begin again: %v", err)
		}
	}
}

// closeAndOpen: exactly what was verified is there afterwards.
func (m *machine) closeAndOpen(t *rapid.T) {
	empty := m.s.Empty()
	closeStore(t, m.s)
	m.s = openStore(t, m.opt)
	if empty {
		m.min, m.written, m.verified, m.synced = wire.NoOffset, wire.NoOffset, wire.NoOffset, wire.NoOffset
		return
	}
	m.written, m.synced = m.verified, m.verified
	if got := m.s.Ends().Verified; got != m.verified {
		t.Fatalf("verified %d after opening again, was %d", got, m.verified)
	}
}

// killAndOpen: what was verified is there afterwards, or with AckDisk what was
// synced, and perhaps whole messages behind it.
func (m *machine) killAndOpen(t *rapid.T) {
	empty, must := m.s.Empty(), m.verified
	if m.opt.Ack == AckDisk {
		must = m.s.Ends().Flushed
	}
	kill(t, m.s)
	m.s = openStore(t, m.opt)
	if empty {
		m.min, m.written, m.verified, m.synced = wire.NoOffset, wire.NoOffset, wire.NoOffset, wire.NoOffset
		return
	}
	got := m.s.Ends()
	// The last two bytes of a message without properties are zeros, come or not.
	if got.Verified < must || got.Verified > m.written+2 || got.Written != got.Verified || got.Flushed != got.Verified {
		t.Fatalf("ends %+v after a kill, want %d (written was %d, synced %d)", got, must, m.written, m.synced)
	}
	m.written, m.verified, m.synced = got.Verified, got.Verified, got.Verified
}

// check is called after every step.
func (m *machine) check(t *rapid.T) {
	if !m.begun() {
		checkEnds(t, m.s, m.log)
		if len(segmentsOf(t, m.dir, m.log.size)) != 0 {
			t.Fatalf("segments in an empty store")
		}
		return
	}
	e := checkEnds(t, m.s, m.log)
	if e.Written != m.written || e.Verified != m.verified || e.Min != m.min {
		t.Fatalf("ends %+v, want min %d, written %d, verified %d", e, m.min, m.written, m.verified)
	}
	checkPrefix(t, m.dir, m.log, m.written)
	if err := m.s.Intact(); err != nil {
		t.Fatalf("intact: %v", err)
	}
	if m.verified > m.min {
		if want, got := m.storedAt(), m.s.LastStored(); m.s.LastMessage() != wire.NoOffset && got.UnixMilli() != int64(want) {
			t.Fatalf("last stored %v, want %v", got, want.Time())
		}
	}
}

func (m *machine) storedAt() commitlog.Millis {
	if blank, ok := m.log.blanks[m.verified]; ok {
		return m.log.stored[blank]
	}
	return m.log.stored[m.verified]
}

// finish feeds the rest: from wherever it is, a replica becomes whole.
func (m *machine) finish() {
	if !m.begun() {
		if err := m.s.Begin(m.log.start); err != nil {
			m.t.Fatalf("begin: %v", err)
		}
		m.min, m.written = m.log.start, m.log.start
	}
	feed(m.t, m.s, m.log, m.written, m.log.end())
	if got := m.s.Ends().Verified; got != m.log.end() {
		m.t.Fatalf("verified %d of %d", got, m.log.end())
	}
	closeStore(m.t, m.s)
	checkPrefix(m.t, m.dir, m.log, m.log.end())
}
