package source_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// running is a Source whose Run is going on, and what it told.
type running struct {
	*source.Source
	t   testing.TB
	dir string

	mu     sync.Mutex
	states []error
	told   chan struct{}
	cancel context.CancelFunc
	done   chan error
}

// start runs a Source over dir until the test ends.
func start(t testing.TB, o source.Options) *running {
	t.Helper()
	r := &running{t: t, dir: o.Dir, told: make(chan struct{}, 1), done: make(chan error, 1)}
	o.OnState = func(err error) {
		r.mu.Lock()
		r.states = append(r.states, err)
		r.mu.Unlock()
		select {
		case r.told <- struct{}{}:
		default:
		}
	}
	r.Source = source.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.done <- r.Run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

func (r *running) stop() {
	r.cancel()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("Run returned %v", err)
		}
		r.done <- nil
	case <-time.After(patience):
		r.t.Error("Run does not end")
	}
}

// until waits until ok holds for the ends.
func (r *running) until(what string, ok func(source.Ends) bool) source.Ends {
	r.t.Helper()
	moved, stop := r.Listen()
	defer stop()
	limit := time.After(patience)
	for {
		e := r.Ends()
		if ok(e) {
			return e
		}
		select {
		case <-moved:
		case <-limit:
			r.t.Fatalf("%s did not come: %+v, state %v", what, e, r.state())
		}
	}
}

func (r *running) untilConfirmed(end wire.PhyOffset) source.Ends {
	r.t.Helper()
	return r.until("the confirmed end "+end.String(), func(e source.Ends) bool { return e.Confirmed == end })
}

func (r *running) state() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.states) == 0 {
		return errors.New("nothing told")
	}
	return r.states[len(r.states)-1]
}

// untilWell waits until the last thing told is that all is well.
func (r *running) untilWell() {
	r.t.Helper()
	limit := time.After(patience)
	for r.state() != nil {
		select {
		case <-r.told:
		case <-limit:
			r.t.Fatalf("it is not well: %v", r.state())
		}
	}
}

// authority is a broker's word that a test gives.
type authority struct {
	end    atomic.Int64
	wanted atomic.Bool
	tells  atomic.Bool
	moved  chan struct{}
}

func newAuthority() *authority {
	a := &authority{moved: make(chan struct{}, 1)}
	a.end.Store(int64(wire.NoOffset))
	return a
}

func (a *authority) End() wire.PhyOffset { return wire.PhyOffset(a.end.Load()) }

func (a *authority) Listen() (moved <-chan struct{}, stop func()) { return a.moved, func() {} }

func (a *authority) Want(unconfirmed bool) { a.wanted.Store(unconfirmed) }

func (a *authority) Tells() bool { return a.tells.Load() }

func (a *authority) say(end wire.PhyOffset) {
	a.end.Store(int64(end))
	select {
	case a.moved <- struct{}{}:
	default:
	}
}

func open(t testing.TB, o forge.Options) *forge.Writer {
	t.Helper()
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

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func appendTo(t testing.TB, w *forge.Writer, m forge.Message) wire.PhyOffset {
	t.Helper()
	end, err := w.Append(m)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// fill appends n random messages and returns the start of the last and the end.
func fill(t testing.TB, w *forge.Writer, r *rand.Rand, n int) (last, end wire.PhyOffset) {
	t.Helper()
	for range n {
		m := forge.RandomMessage(r, forge.Variety{MaxSize: 2 * wire.KiB})
		end = appendTo(t, w, m)
		last = end.Add(-m.Size())
	}
	return last, end
}

func segmentPath(dir, name string) string { return filepath.Join(dir, "commitlog", name) }
