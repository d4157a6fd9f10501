package source

import (
	"os"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// TestTail_BrokerGoesBack_I9 restarts a broker that recovers less than was
// confirmed, and erases nothing: it is believed when it keeps to it, and what it
// writes then is followed.
func TestTail_BrokerGoesBack_I9(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]int{"one record": 1, "many": 30, "into an older segment": 90} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size = 128 * wire.KiB
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: size, Ahead: -1})
			m := whole
			m.Body = make([]byte, 900)
			for range 200 {
				if _, err := w.Append(m); err != nil {
					t.Fatal(err)
				}
			}
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			e.word.end = w.End()
			if ends := e.settleDown(); ends.Confirmed != w.End() {
				t.Fatalf("before: %+v", ends)
			}
			e.word.end = wire.NoOffset // it is down
			e.look(time.Second)
			last := w.End().SegmentBase(size)
			cut := w.End().Add(-wire.ByteSize(back) * m.Size())
			if cut < last { // the segments behind are deleted
				cut = last.Add(-size + 10*m.Size())
				if err := os.Remove(segmentFile(dir, last)); err != nil {
					t.Fatal(err)
				}
			}
			e.word.end = cut
			if ends := e.look(time.Second); cut >= last && ends.Confirmed != w.End() {
				t.Fatalf("it was believed at once: %+v", ends)
			}
			if ends := e.settleDown(); ends.Confirmed != cut || ends.Visible != cut || e.src.Incarnation() < 2 {
				t.Errorf("the broker says %d: %+v in incarnation %d", cut, ends, e.src.Incarnation())
			}
			incarnation := e.src.Incarnation()
			for range 5 {
				m.StoreTimestamp++
				scribble(t, dir, cut, size, forge.AppendMessage(nil, m, cut))
				cut = cut.Add(m.Size())
				e.word.end = cut
				if ends := e.look(50 * time.Millisecond); ends.Confirmed != cut {
					t.Errorf("the broker is at %d again: %+v", cut, ends)
				}
			}
			if n := e.src.Incarnation(); n != incarnation {
				t.Errorf("incarnation %d became %d", incarnation, n)
			}
		})
	}
}

// TestTail_BrokerLags_I9 hears from a broker that its log ends below Confirmed, and
// only is slow to say more: nothing goes back.
func TestTail_BrokerLags_I9(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: 256 * wire.KiB})
	r := randomOf(90)
	starts := add(t, w, r, 20)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.settleDown()
	for range 50 { // the log grows, and the word is always behind
		e.word.end = wire.NoOffset
		e.look(100 * time.Millisecond)
		e.word.end = starts[len(starts)-5]
		starts = append(starts, add(t, w, r, 1)...)
		for range 20 {
			e.look(100 * time.Millisecond)
		}
	}
	e.word.end = w.End()
	e.settleDown()
	starts = append(starts, add(t, w, r, 10)...) // and now it hangs
	ends := e.settleDown()
	if ends.Confirmed != starts[len(starts)-1] || e.src.Incarnation() != 1 {
		t.Errorf("%+v in incarnation %d", ends, e.src.Incarnation())
	}
}
