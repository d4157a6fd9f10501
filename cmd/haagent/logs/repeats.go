package logs

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// burst is how many equal records are written in one window: what comes and goes
	// a few times is told each time.
	burst = 5
	// window is how long more of them are counted before one is written with their
	// number.
	window = 10 * time.Second
	// maxKinds bounds the kinds of records that are remembered.
	maxKinds = 256
)

// repeatedKey is the attribute that says how many equal records were not written.
const repeatedKey = "repeated"

// Repeats writes records, but of equal ones only the first few in a window; the
// others are counted, and the last of them is written at the window's end with
// their number. Equal are records of one level, message and attributes. Memory is
// bounded: of records that are all different it forgets the oldest.
type Repeats struct {
	*repeats
	to     slog.Handler
	prefix uint64 // what was added by WithAttrs and WithGroup, hashed
}

// repeats belongs to a handler and those made of it.
type repeats struct {
	seed maphash.Seed
	due  chan struct{} // one slot: something was counted

	mu    sync.Mutex
	kinds map[uint64]*kind // by hash of level, message and attributes
}

// kind is a record that came, and may come again.
type kind struct {
	began   time.Time // of the window
	written int       // in this window
	counted int       // and not written
	last    slog.Record
	to      slog.Handler
}

// NewRepeats returns a handler that writes to another one.
func NewRepeats(to slog.Handler) *Repeats {
	return &Repeats{to: to, repeats: &repeats{seed: maphash.MakeSeed(), due: make(chan struct{}, 1), kinds: map[uint64]*kind{}}}
}

// Enabled implements slog.Handler.
func (h *Repeats) Enabled(ctx context.Context, l slog.Level) bool { return h.to.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *Repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	sum := h.begin("attrs")
	for _, a := range attrs {
		add(sum, a)
	}
	return &Repeats{repeats: h.repeats, to: h.to.WithAttrs(attrs), prefix: sum.Sum64()}
}

// WithGroup implements slog.Handler.
func (h *Repeats) WithGroup(name string) slog.Handler {
	return &Repeats{repeats: h.repeats, to: h.to.WithGroup(name), prefix: h.begin("group " + name).Sum64()}
}

// begin starts a hash with what this handler adds.
func (h *Repeats) begin(what string) *maphash.Hash {
	sum := new(maphash.Hash)
	sum.SetSeed(h.seed)
	maphash.WriteComparable(sum, h.prefix)
	maphash.WriteComparable(sum, what) // with its length, so that no two run together
	return sum
}

func add(sum *maphash.Hash, a slog.Attr) {
	maphash.WriteComparable(sum, a.Key)
	maphash.WriteComparable(sum, a.Value.Resolve().String())
}

// key is what equal records have in common.
func (h *Repeats) key(r slog.Record) uint64 {
	sum := h.begin("record")
	maphash.WriteComparable(sum, r.Level)
	maphash.WriteComparable(sum, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		add(sum, a)
		return true
	})
	return sum.Sum64()
}

// Handle implements slog.Handler.
func (h *Repeats) Handle(ctx context.Context, r slog.Record) error {
	key, now := h.key(r), time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	late := h.settle(ctx, now)
	k := h.kinds[key]
	if k == nil {
		late = errors.Join(late, h.makeRoom(ctx))
		k = &kind{began: now}
		h.kinds[key] = k
	}
	k.last, k.to = r.Clone(), h.to
	if k.written < burst {
		k.written++
		return errors.Join(late, h.to.Handle(ctx, r))
	}
	k.counted++
	select {
	case h.due <- struct{}{}:
	default:
	}
	return late
}

// settle ends the windows that are over: what was counted is written, what has not
// come again is forgotten. mu is held.
func (h *repeats) settle(ctx context.Context, now time.Time) error {
	var over []*kind
	for key, k := range h.kinds {
		if now.Sub(k.began) < window {
			continue
		}
		if k.counted == 0 {
			delete(h.kinds, key)
			continue
		}
		over = append(over, k)
	}
	slices.SortFunc(over, func(a, b *kind) int { return cmp.Compare(a.last.Time.UnixNano(), b.last.Time.UnixNano()) })
	var errs []error
	for _, k := range over {
		errs = append(errs, k.tell(ctx))
		k.began, k.written = now, burst // what goes on is counted from now on
	}
	return errors.Join(errs...)
}

// tell writes the last of the records that were counted, with their number.
func (k *kind) tell(ctx context.Context) error {
	r := k.last.Clone()
	r.AddAttrs(slog.Int(repeatedKey, k.counted))
	k.counted = 0
	return k.to.Handle(ctx, r)
}

// makeRoom forgets the kind whose window began first, if there are too many. mu is
// held.
func (h *repeats) makeRoom(ctx context.Context) error {
	if len(h.kinds) < maxKinds {
		return nil
	}
	var oldest uint64
	var victim *kind
	for key, k := range h.kinds {
		if victim == nil || k.began.Before(victim.began) {
			oldest, victim = key, k
		}
	}
	delete(h.kinds, oldest)
	if victim.counted == 0 {
		return nil
	}
	return victim.tell(ctx)
}

// Run tells what was counted when its window ends, also where nothing else is
// logged, until ctx ends, and then at once. A log that cannot be written is no
// reason to stop: the error is nil.
func (h *Repeats) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			h.flush(context.WithoutCancel(ctx), time.Now().Add(window))
			return nil
		case <-h.due:
			timer.Reset(window)
		case <-timer.C:
			if h.flush(ctx, time.Now()) {
				timer.Reset(window)
			}
		}
	}
}

// flush settles what is over by now, and reports whether something goes on.
func (h *Repeats) flush(ctx context.Context, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.settle(ctx, now) // there is nobody to tell
	return len(h.kinds) > 0
}
