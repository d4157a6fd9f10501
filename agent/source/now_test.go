package source

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// ask leaves a question for the next turn.
func (e *eye) ask() chan wire.PhyOffset {
	answer := make(chan wire.PhyOffset, 1)
	e.awaiting = append(e.awaiting, answer)
	return answer
}

// untilAnswered turns until the question is answered, and returns the answer.
func (e *eye) untilAnswered(answer chan wire.PhyOffset) wire.PhyOffset {
	e.t.Helper()
	for range 1000 {
		e.turn(context.Background(), e.now)
		select {
		case end := <-answer:
			return end
		default:
			e.now = e.now.Add(time.Millisecond)
		}
	}
	e.t.Fatalf("no answer: %+v", e.src.Ends())
	return wire.NoOffset
}

// TestTail_NowSeesAllThatWasStored_I6 stores more than one turn takes, and asks
// then: the answer comes when all of it was seen.
func TestTail_NowSeesAllThatWasStored_I6(t *testing.T) {
	t.Parallel()
	small := forge.Message{Topic: "t", Body: []byte("small")}
	large := forge.Message{Topic: "t", Body: make([]byte, wire.MiB)}
	for name, c := range map[string]struct {
		m forge.Message
		n int
	}{"many records": {small, 3*batch + 7}, "large records": {large, 11}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := forged(t, forge.Options{Dir: dir, SegmentSize: 16 * wire.MiB})
			add(t, w, randomOf(60), 1)
			e := newEye(t, Options{Dir: dir, Settle: -1})
			defer e.close()
			e.settleDown()
			for range c.n {
				if _, err := w.Append(c.m); err != nil {
					t.Fatal(err)
				}
			}
			if now := e.untilAnswered(e.ask()); now != w.End() {
				t.Errorf("stored up to %d, and the answer is %d", w.End(), now)
			}
		})
	}
}

// TestTail_NowDoesNotWaitToTryAgain_I6 asks the moment a record is whole that was
// looked at in vain for long.
func TestTail_NowDoesNotWaitToTryAgain_I6(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	add(t, w, randomOf(61), 3)
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	e.settleDown()
	start := w.End()
	end, err := w.AppendSlowly(whole, func(string) {
		for range 100 {
			e.look(10 * time.Millisecond)
		}
		if now := e.untilAnswered(e.ask()); now != start {
			t.Errorf("half a record is at %d, and the answer is %d", start, now)
		}
	}, forge.Parts()...)
	if err != nil {
		t.Fatal(err)
	}
	if now := e.untilAnswered(e.ask()); now != end {
		t.Errorf("the record is whole up to %d, and the answer is %d", end, now)
	}
}

// TestTail_NowLooksForALog asks before the next listing is due, when a log has
// just come.
func TestTail_NowLooksForALog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := newEye(t, Options{Dir: dir, Settle: -1})
	defer e.close()
	if now := e.untilAnswered(e.ask()); now != wire.NoOffset {
		t.Errorf("there is no log, and the answer is %d", now)
	}
	e.settleDown()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment})
	add(t, w, randomOf(62), 3)
	if now := e.untilAnswered(e.ask()); now != w.End() {
		t.Errorf("a log came that reaches to %d, and the answer is %d", w.End(), now)
	}
}

// TestTail_NowLooksWhereItFaulted cuts the file short under the tail and brings it
// back before it would be tried again.
func TestTail_NowLooksWhereItFaulted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := forged(t, forge.Options{Dir: dir, SegmentSize: testSegment, Ahead: -1})
	starts := add(t, w, randomOf(63), 12)
	e := newEye(t, Options{Dir: dir, Settle: -1, Rescan: time.Hour})
	defer e.close()
	e.settleDown()
	all, err := os.ReadFile(segmentFile(dir, 0))
	if err != nil {
		t.Fatal(err)
	}
	e.faultyAt, e.now = e.now, e.now.Add(time.Millisecond)
	if _, err := w.Append(whole); err != nil {
		t.Fatal(err)
	}
	if now := e.untilAnswered(e.ask()); now != w.End() {
		t.Errorf("it faulted, is well again up to %d, and the answer is %d", w.End(), now)
	}
	if err := os.Truncate(segmentFile(dir, 0), 0); err != nil {
		t.Fatal(err)
	}
	e.word.end = starts[11]
	if now := e.untilAnswered(e.ask()); now != starts[11] {
		t.Errorf("the log is cut short, the broker says %d, and the answer is %d", starts[11], now)
	}
	if err := os.WriteFile(segmentFile(dir, 0), all, 0o644); err != nil {
		t.Fatal(err)
	}
}
