package source

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// eye is a tail whose turns and clock a test makes itself.
type eye struct {
	*tail
	t    check
	now  time.Time
	told []error
	word *word
}

// check is what tests and properties have in common.
type check interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// word is an authority that a test speaks for.
type word struct {
	end    wire.PhyOffset
	wanted bool
}

func (w *word) End() wire.PhyOffset { return w.end }

func (w *word) Listen() (moved <-chan struct{}, stop func()) { return nil, func() {} }

func (w *word) Want(unconfirmed bool) { w.wanted = unconfirmed }

func (w *word) Tells() bool { return false }

// newEye returns an eye on o.Dir with an authority that knows nothing yet.
func newEye(t check, o Options) *eye {
	e := &eye{t: t, now: time.Unix(1_700_000_000, 0), word: &word{end: wire.NoOffset}}
	if o.Authority == nil {
		o.Authority = e.word
	}
	o.OnState = func(err error) { e.told = append(e.told, err) }
	e.tail = newTail(New(o))
	return e
}

// look turns once after d and returns the ends.
func (e *eye) look(d time.Duration) Ends {
	e.t.Helper()
	e.now = e.now.Add(d)
	e.turn(context.Background(), e.now)
	for e.rescan { // what was to be looked at at once
		e.turn(context.Background(), e.now)
	}
	ends := e.src.Ends()
	if none := ends.Min == wire.NoOffset; none && (ends.Confirmed != wire.NoOffset || ends.Settled != wire.NoOffset || ends.Visible != wire.NoOffset) ||
		ends.Min > ends.Confirmed || ends.Confirmed > ends.Settled || ends.Settled > ends.Visible {
		e.t.Fatalf("the ends are not in order: %+v", ends)
	}
	return ends
}

// settleDown looks until nothing that takes time is outstanding.
func (e *eye) settleDown() Ends {
	e.t.Helper()
	for range 40 {
		e.look(500 * time.Millisecond)
	}
	return e.src.Ends()
}

// problem returns the code of what was told last, "" for well.
func (e *eye) problem() string {
	if len(e.told) == 0 {
		return "nothing told"
	}
	err := e.told[len(e.told)-1]
	if err == nil {
		return ""
	}
	p := state.AsProblem(err)
	if p == nil || p.Try == "" || p.Reason == "" {
		e.t.Errorf("told without a next step: %v", err)
		return "no problem"
	}
	return p.Code
}

func (e *eye) wantProblem(code string) {
	e.t.Helper()
	if got := e.problem(); got != code {
		e.t.Errorf("told %q, want %q: %v", got, code, e.told)
	}
}

// forged opens a store for writing until the test ends.
func forged(t *testing.T, o forge.Options) *forge.Writer {
	t.Helper()
	if o.SegmentSize == 0 {
		o.SegmentSize = 16 * wire.KiB
	}
	w, err := forge.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Abandon(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func randomOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

// add appends n random messages and returns where each starts.
func add(t check, w *forge.Writer, r *rand.Rand, n int) []wire.PhyOffset {
	t.Helper()
	starts := make([]wire.PhyOffset, 0, n)
	for range n {
		m := forge.RandomMessage(r, forge.Variety{MaxSize: wire.KiB, V2: true, IPv6: true})
		end, err := w.Append(m)
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		starts = append(starts, end.Add(-m.Size()))
	}
	return starts
}

// fillSegments appends until the writer's end lies in the n-th segment behind
// the one it is in, and returns the last record's start.
func fillSegments(t check, w *forge.Writer, r *rand.Rand, size wire.ByteSize, n int) wire.PhyOffset {
	t.Helper()
	target := w.End().SegmentBase(size).Add(wire.ByteSize(n) * size)
	for {
		last := add(t, w, r, 1)[0]
		if w.End() > target {
			return last
		}
	}
}

func segmentFile(dir string, base wire.PhyOffset) string {
	return filepath.Join(dir, "commitlog", commitlog.Name(base))
}

// scribble stores b at offset at, as somebody who does not care.
func scribble(t check, dir string, at wire.PhyOffset, size wire.ByteSize, b []byte) {
	t.Helper()
	base := at.SegmentBase(size)
	f, err := os.OpenFile(segmentFile(dir, base), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(b, int64(at.Sub(base)))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatalf("scribble: %v", err)
	}
}

// bytesAt reads n bytes of the log at offset at, all in one segment.
func bytesAt(t check, dir string, at wire.PhyOffset, size, n wire.ByteSize) []byte {
	t.Helper()
	base := at.SegmentBase(size)
	all, err := os.ReadFile(segmentFile(dir, base))
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return all[at.Sub(base):][:n]
}
