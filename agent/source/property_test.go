package source

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

const propertySegment = 16 * wire.KiB

// world is a broker, the model of what it has completed, and an eye on it.
type world struct {
	t   *rapid.T
	dir string
	w   *forge.Writer
	eye *eye

	complete wire.PhyOffset // end of what the broker has completed
	last     wire.PhyOffset // start of the last completed record
	lasting  bool           // whether its last byte is part of a length
	before   Ends

	incarnation uint64
	shipped     []byte // settled bytes behind Confirmed, as a peer would have got them
	at          wire.PhyOffset
	round       uint64
}

// TestTail_NeverAheadOfTheBroker_I1 lets a broker append fast and slowly, roll,
// drop, die in the middle of a record and come back, with and without a word of
// its own, and looks in between.
func TestTail_NeverAheadOfTheBroker_I1(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "source")
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		start := wire.PhyOffset(rapid.Int64Range(0, 1<<40).Draw(rt, "start")).SegmentBase(propertySegment)
		x := &world{t: rt, dir: dir, complete: start, last: wire.NoOffset, before: noEnds, incarnation: 1}
		x.open(start)
		defer func() { _ = x.w.Abandon() }()
		x.eye = newEye(rt, Options{Dir: dir, SegmentSize: propertySegment, Settle: time.Second, Rescan: 20 * time.Millisecond})
		defer x.eye.close()
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(*rapid.T) { x.append() },
			"slowly": func(*rapid.T) { x.appendSlowly() },
			"torn":   func(*rapid.T) { x.die() },
			"roll":   func(*rapid.T) { x.roll() },
			"drop":   func(*rapid.T) { _, _ = x.w.DropOldest() },
			"change": func(*rapid.T) { x.change() },
			"word":   func(*rapid.T) { x.eye.word.end = x.complete },
			"silent": func(*rapid.T) { x.eye.word.end = wire.NoOffset },
			"look":   func(*rapid.T) { x.look(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "ms")) * time.Millisecond) },
			"": func(*rapid.T) {
				if x.eye.word.end > x.complete {
					x.eye.word.end = wire.NoOffset
				}
			},
		})
		x.eye.word.end = x.complete
		e := x.eye.settleDown()
		if e.Confirmed != x.complete || e.Visible != x.complete || e.Min != x.w.Min() {
			rt.Fatalf("the broker's log reaches from %d to %d, but %+v", x.w.Min(), x.complete, e)
		}
		x.eye.wantProblem("")
	})
}

func (x *world) open(start wire.PhyOffset) {
	o := forge.Options{
		Dir: x.dir, SegmentSize: propertySegment, Start: start, Garbage: randomOf(5),
		KeepTorn: rapid.Bool().Draw(x.t, "keepTorn"),
	}
	w, err := forge.Open(o)
	if err != nil { // one torn record over another looks like damage
		end := x.complete.SegmentBase(propertySegment).Add(propertySegment)
		scribble(x.t, x.dir, x.complete, propertySegment, make([]byte, end.Sub(x.complete)))
		w, err = forge.Open(o)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	x.w = w
}

func (x *world) message() forge.Message {
	return forge.RandomMessage(randomOf(rapid.Uint64().Draw(x.t, "message")), forge.Variety{MaxSize: 2 * wire.KiB, V2: true})
}

func (x *world) append() {
	m := x.message()
	end, err := x.w.Append(m)
	if err != nil {
		x.t.Fatal(err)
	}
	x.complete, x.last, x.lasting = end, end.Add(-m.Size()), m.Properties == ""
}

// partsOf draws one of the two orders in which parts appear.
func (x *world) partsOf() []string {
	parts := forge.Parts()
	if rapid.Bool().Draw(x.t, "backwards") {
		slices.Reverse(parts)
	}
	return parts
}

func (x *world) appendSlowly() {
	m := x.message()
	end, err := x.w.AppendSlowly(m, func(string) {
		if x.w.End() > x.complete {
			x.complete, x.last = x.w.End(), wire.NoOffset // a new segment
		}
		x.look(time.Duration(rapid.IntRange(0, 100).Draw(x.t, "ms")) * time.Millisecond)
	}, x.partsOf()...)
	if err != nil {
		x.t.Fatal(err)
	}
	x.complete, x.last, x.lasting = end, end.Add(-m.Size()), m.Properties == ""
}

// die kills the broker in the middle of a record and starts it again.
func (x *world) die() {
	left := rapid.IntRange(1, 4).Draw(x.t, "parts")
	func() {
		defer func() { _ = recover() }()
		_, _ = x.w.AppendSlowly(x.message(), func(string) {
			if left--; left == 0 {
				panic("killed")
			}
		}, x.partsOf()...)
	}()
	if x.w.End() > x.complete {
		x.complete, x.last = x.w.End(), wire.NoOffset // the record began a new segment
	}
	x.look(time.Duration(rapid.IntRange(0, 100).Draw(x.t, "ms")) * time.Millisecond)
	if err := x.w.Abandon(); err != nil {
		x.t.Fatal(err)
	}
	x.open(0)
	if x.w.End() > x.complete {
		x.complete, x.last = x.w.End(), wire.NoOffset // what was missing was all zero
	}
}

func (x *world) roll() {
	if err := x.w.Roll(); err != nil {
		x.t.Fatal(err)
	}
	x.complete, x.last = x.w.End(), wire.NoOffset
}

// change changes a byte in the last record, which nothing has followed yet and no
// word has confirmed, as a broker does that still stores it. A broker stores each
// byte once, so it never becomes again what it was: bytes that go and come back
// between two looks cannot be told from bytes that stayed.
func (x *world) change() {
	if e := x.before; x.last == wire.NoOffset || x.lasting || e.Confirmed != x.last || x.eye.word.end != wire.NoOffset {
		return
	}
	at := x.complete.Add(-1)
	b := bytesAt(x.t, x.dir, at, propertySegment, 1)
	scribble(x.t, x.dir, at, propertySegment, []byte{b[0] + 1})
}

// look looks, and holds what it sees against the model.
func (x *world) look(d time.Duration) {
	word := x.eye.word.end
	e := x.eye.look(d)
	if e.Confirmed > x.complete {
		x.t.Fatalf("confirmed up to %d, complete up to %d: %+v", e.Confirmed, x.complete, e)
	}
	if e.Confirmed < x.before.Confirmed {
		x.t.Fatalf("confirmed went from %d to %d", x.before.Confirmed, e.Confirmed)
	}
	if e.Settled > x.complete {
		x.t.Fatalf("settled up to %d, complete up to %d", e.Settled, x.complete)
	}
	if word == x.complete && e.Confirmed < word && d > 2*time.Second {
		x.t.Fatalf("the broker says %d, and %+v", word, e)
	}
	// Only where all that is known of the log has expired it might be another one.
	if n := x.eye.src.Incarnation(); n != x.incarnation && x.w.Min() <= x.before.Confirmed {
		x.t.Fatalf("nothing was cut or replaced, but this is incarnation %d", n)
	}
	x.incarnation = x.eye.src.Incarnation()
	if e.Min < x.before.Min || e.Min > x.w.Min() && e.Min != wire.NoOffset {
		x.t.Fatalf("min went from %d to %d; the oldest segment is at %d", x.before.Min, e.Min, x.w.Min())
	}
	if x.shipped != nil && x.w.Min() <= x.at && e.Resettled == x.round && e.Confirmed > x.at {
		if now := bytesAt(x.t, x.dir, x.at, propertySegment, wire.ByteSize(len(x.shipped))); !bytes.Equal(now, x.shipped) {
			x.t.Fatalf("settled bytes at %d changed and nobody was told: %+v", x.at, e)
		}
	}
	x.shipped = nil
	if e.Settled > e.Confirmed && x.w.Min() <= e.Confirmed {
		x.at, x.round = e.Confirmed, e.Resettled
		x.shipped = bytesAt(x.t, x.dir, e.Confirmed, propertySegment, e.Settled.Sub(e.Confirmed))
	}
	x.before = e
}
