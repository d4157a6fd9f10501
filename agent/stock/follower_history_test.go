package stock_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// Fault 10: an empty replica gets every segment that the source has.
func TestFault10_WholeHistory(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(4*m.size + 1000)
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	if ends := s.store.Ends(); ends.Min != 0 || len(s.segments()) != 5 || s.store.State().HistoryFrom != 0 {
		t.Errorf("ends %+v, segments %v, history from %d", ends, s.segments(), s.store.State().HistoryFrom)
	}
	if got := m.asked(); !slices.Equal(got, []wire.PhyOffset{1}) {
		t.Errorf("asked for %v", got)
	}
}

// Fault 10: where the HA port is all there is, byte 0 comes along by itself.
func TestFault10_HAPortAloneGetsTheWholeHistory(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(4*m.size + 1000)
	s := follow(t, m, slaveOptions{blind: true})
	s.caughtUp(m)
	if ends := s.store.Ends(); ends.Min != 0 || s.store.State().HistoryFrom != 0 {
		t.Errorf("ends %+v, history from %d", ends, s.store.State().HistoryFrom)
	}
	if got := m.asked(); !slices.Equal(got, []wire.PhyOffset{1}) {
		t.Errorf("asked for %v", got)
	}
}

// Fault 10: where the history cannot be asked for, the replica says from where
// on it has something.
func TestFault10_HAPortAloneSaysWhatIsMissing(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 3*wire.PhyOffset(64*wire.KiB)))
	m.grow(2*m.size + 1000)
	timing := fast
	timing.Patience = 100 * time.Millisecond
	s := follow(t, m, slaveOptions{blind: true, timing: timing})
	s.caughtUp(m)
	base := m.writer.End().SegmentBase(m.size)
	if ends := s.store.Ends(); ends.Min != base || s.store.State().HistoryFrom != base {
		t.Errorf("ends %+v, history from %d, want %d", ends, s.store.State().HistoryFrom, base)
	}
	if got := m.asked(); !slices.Equal(got, []wire.PhyOffset{1, 0}) {
		t.Errorf("asked for %v", got)
	}
	s.stop()
	if st, err := replica.ReadState(s.dir); err != nil || st.HistoryFrom != base {
		t.Errorf("remembered: %+v, %v", st, err)
	}
}

// Fault 10: a source that hangs has not said that it has no history.
func TestFault10_ASilentSourceHasNotLostItsHistory(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(2 * m.size)
	m.play(func(l *fakeLink) { <-l.gone })
	timing := fast
	timing.Heartbeat, timing.Patience = 20*time.Millisecond, 40*time.Millisecond
	s := follow(t, m, slaveOptions{blind: true, timing: timing})
	eventually(t, "some attempts", func() bool { return len(m.asked()) >= 3 })
	m.play(func(l *fakeLink) { l.serve(nil) })
	s.caughtUp(m)
	if got := m.asked(); slices.Contains(got, 0) || s.store.Ends().Min != 0 {
		t.Errorf("asked for %v, replica begins at %d", got, s.store.Ends().Min)
	}
}

// Fault 10: an empty source may get a history while nobody is connected.
func TestFault10_HAPortAloneAsksForTheHistoryAgain(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	timing := fast
	timing.Patience = 20 * time.Millisecond
	s := follow(t, m, slaveOptions{blind: true, timing: timing})
	eventually(t, "streaming of nothing", func() bool { return s.last().state == state.Streaming })
	m.play(func(l *fakeLink) {}) // closes at once
	m.cut()
	m.grow(3 * m.size)
	m.play(func(l *fakeLink) { l.serve(nil) })
	s.caughtUp(m)
	if got := s.store.Ends().Min; got != 0 {
		t.Errorf("replica begins at %d; asked for %v", got, m.asked())
	}
}

// Fault 12: a log that does not begin at 0 is replicated from where it begins.
func TestFault12_LogThatBeginsLater(t *testing.T) {
	const start = 3145728
	m := newFakeMaster(t, newServedLog(t, wire.MiB, start))
	m.grow(wire.MiB + 5000)
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	if got := m.asked(); !slices.Equal(got, []wire.PhyOffset{start}) || s.segments()[0] != start {
		t.Errorf("asked for %v, segments %v", got, s.segments())
	}
	eventually(t, "all synced", func() bool { return s.store.Ends().Flushed == m.writer.End() })
	for _, e := range m.happened("report") {
		if e.off != 0 && e.off < start {
			t.Errorf("%v: no offset below %d but none at all", e, start)
		}
	}
}

// A new broker has no segment at all, then one.
func TestI2_SourceThatBeginsEmpty(t *testing.T) {
	for _, blind := range []bool{false, true} {
		m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
		timing := fast
		timing.Patience = 200 * time.Millisecond
		s := follow(t, m, slaveOptions{blind: blind, timing: timing})
		eventually(t, "streaming of nothing", func() bool { return s.last().state == state.Streaming })
		if got := s.segments(); len(got) != 0 {
			t.Errorf("blind=%v: segments %v", blind, got)
		}
		m.append(3, 100)
		s.caughtUp(m)
	}
}

// Fault 18: looking at progress makes nothing.
func TestFault18_GettersCreateNothing(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	closeAll(t, m.haPort)
	s := follow(t, m, slaveOptions{blind: true})
	eventually(t, "an attempt", func() bool { return s.last().state == state.Connecting })
	for range 1000 {
		if s.follower.Received() != wire.NoOffset || s.follower.SourceEnd() != wire.NoOffset || s.store.Ends().Verified != wire.NoOffset {
			t.Fatal("offsets of nothing")
		}
		s.store.State()
		s.store.LastMessage()
		s.store.Messages()
	}
	if got := s.segments(); len(got) != 0 {
		t.Errorf("segments %v", got)
	}
}

// Fault 67: segments that the source made ahead are neither data nor a gap.
func TestFault67_SegmentsMadeAhead(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(m.size / 2)
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	if got := s.segments(); len(got) != 1 {
		t.Errorf("segments %v while the source writes its first", got)
	}
	m.roll() // exactly at the end of a segment
	eventually(t, "the end of the segment", func() bool { return s.store.Ends().Verified == m.writer.End() })
	eventually(t, "its report", func() bool { return m.lastReport() == m.writer.End() })
	rolled := time.Now()
	m.append(1, 100)
	eventually(t, "the report", func() bool { return m.lastReport() == m.writer.End() })
	if took := time.Since(rolled); took > time.Second {
		t.Errorf("the roll took %v", took)
	}
	m.grow(m.size)
	s.caughtUp(m)
	if got := m.asked(); len(got) != 1 || s.was(state.Gap) {
		t.Errorf("asked for %v", got)
	}
}

// Fault 90: what the source did while nobody looked is caught up with as long as
// the bytes are there, and otherwise named.
func TestFault90_SourceMovedOn(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(m.size / 2)
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	s.stop()
	held := s.store.Ends().Verified

	m.grow(3 * m.size)
	s = follow(t, m, slaveOptions{dir: s.dir})
	s.caughtUp(m)
	s.stop()
	held = max(held, s.store.Ends().Verified)

	m.grow(3 * m.size)
	for m.writer.Min() < held {
		if _, err := m.writer.DropOldest(); err != nil {
			t.Fatal(err)
		}
	}
	before := len(m.asked())
	s = follow(t, m, slaveOptions{dir: s.dir})
	p := s.stuck(state.Gap, "history_gone")
	if !strings.Contains(p.Reason, held.String()) || !strings.Contains(p.Reason, m.writer.Min().String()) {
		t.Errorf("the missing range is not named: %s", p.Reason)
	}
	if got := m.asked(); len(got) != before {
		t.Errorf("asked for %v", got[before:])
	}
	if got := s.store.Ends().Verified; got != held {
		t.Errorf("verified %d, was %d", got, held)
	}
}

// Fault 90: the same with the HA port alone, which only ever sends heartbeats.
func TestFault90_HAPortAloneMeetsAGap(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(m.size / 2)
	s := follow(t, m, slaveOptions{blind: true})
	s.caughtUp(m)
	s.stop()
	m.grow(3 * m.size)
	for m.writer.Min() < m.writer.End().SegmentBase(m.size) {
		if _, err := m.writer.DropOldest(); err != nil {
			t.Fatal(err)
		}
	}
	timing := fast
	timing.Patience = 100 * time.Millisecond
	held := s.store.Ends().Verified
	s = follow(t, m, slaveOptions{dir: s.dir, blind: true, timing: timing})
	s.stuck(state.Gap, "heartbeats_only")
	if got := s.store.Ends().Verified; got != held {
		t.Errorf("verified %d, was %d", got, held)
	}
}

// The replica's beginning follows the source's, but not before both were
// compared.
func TestI2_RetentionFollowsAComparedSource(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(4 * m.size)
	s := follow(t, m, slaveOptions{retain: func(store *replica.Store) func(wire.PhyOffset) error {
		return func(limit wire.PhyOffset) error {
			_, err := store.DropBefore(limit)
			return err
		}
	}})
	s.caughtUp(m)
	eventually(t, "all synced", func() bool { return s.store.Ends().Flushed == m.writer.End() })
	for range 2 {
		if _, err := m.writer.DropOldest(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the same beginning", func() bool { return s.store.Ends().Min == m.writer.Min() })
	m.grow(m.size)
	s.caughtUp(m)
	for _, e := range m.happened("ask") {
		if e.code == remoting.ViewMessageByID {
			t.Errorf("an empty replica has nothing to compare: %v", e)
		}
	}
}
