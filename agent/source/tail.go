package source

import (
	"context"
	"errors"
	"hash/maphash"
	"log/slog"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// How the tail is polled. Near traffic a look comes every nearPoll. Without, the
// pause grows with the time that nothing came. It is the wake-ups that cost, not
// the looks, so that a log that rests for long is looked at less than one that
// rests between two messages.
const (
	nearPoll = 100 * time.Microsecond
	nearFor  = 5 * time.Millisecond
	idlePoll = 10 * time.Millisecond // after a fifth of a second
	restPoll = 50 * time.Millisecond // after 10 s

	idleGrowth = 20  // the pause is this part of the time since the last move,
	restGrowth = 200 // and then this one

	// findPoll is how often segments are looked for while there are none.
	findPoll = 200 * time.Millisecond
	// faultPause is how long the files are left alone after one of them faulted.
	faultPause = 500 * time.Millisecond
	// batch and batchSize bound what is confirmed before it is told.
	batch     = 1024
	batchSize = 4 * wire.MiB
)

// tail is the state of Run. Only its goroutine touches it.
type tail struct {
	src  *Source
	opt  *Options
	log  *slog.Logger
	nap  func(time.Duration)
	seed maphash.Seed

	size  wire.ByteSize // of a segment, 0: not known
	guess guess
	min   wire.PhyOffset // start of the first segment
	base  wire.PhyOffset // of the segment that at lies in, NoOffset: there is no log
	at    wire.PhyOffset // Confirmed: everything below is complete
	seg   *Segment       // at base; nil: to be opened
	next  *Segment       // behind seg, while at stands at a BLANK

	last      pending
	rec       commitlog.Record // scratch
	prev      wire.PhyOffset   // start of the last confirmed record in seg, NoOffset: none
	prevSize  wire.ByteSize
	resettled uint64
	recanted  recanted
	proofs    proofs
	checked   bool // the last proof was seen to hold, since it was taken
	stuck     stuck
	behind    behind
	stale     stale // behind the place where the tail was found

	active   time.Time // when something last moved
	naps     int       // since then
	scanned  time.Time // when the directory was last listed
	rescan   bool      // list it now
	faultyAt time.Time // of the last fault, zero: none since the last good look

	scanErr  error          // what the last listing found
	lookErr  error          // what the last look at the tail ran into
	problem  error          // what was told last
	told     bool           // whether anything was
	foreign  bool           // whether a file that is no segment was logged
	suspect  wire.PhyOffset // where the last listing found something that it was not sure of
	wanted   bool
	awaiting []chan<- wire.PhyOffset
}

func newTail(s *Source) *tail {
	return &tail{
		src: s, opt: &s.opt, log: s.opt.Log, nap: nap, seed: maphash.MakeSeed(),
		size: s.opt.SegmentSize,
		min:  wire.NoOffset, base: wire.NoOffset, at: wire.NoOffset, prev: wire.NoOffset, suspect: wire.NoOffset,
		recanted: recanted{word: wire.NoOffset, at: wire.NoOffset},
		rescan:   true,
	}
}

func (t *tail) close() {
	t.closeSegments()
	if t.wanted {
		t.opt.Authority.Want(false)
	}
	for _, a := range t.awaiting {
		close(a) // no look came any more
	}
}

// run looks and waits until ctx ends.
func (t *tail) run(ctx context.Context) {
	var moved <-chan struct{}
	if t.opt.Authority != nil {
		var stop func()
		moved, stop = t.opt.Authority.Listen()
		defer stop()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		pause := t.turn(ctx, now)
		if pause > 0 && pause < time.Millisecond {
			if t.opt.Authority != nil && t.opt.Authority.Tells() {
				pause = time.Millisecond // cut short by its word, and a nap is not
			} else {
				t.nap(pause)
				pause = 0
			}
		}
		if pause == 0 {
			t.poll(moved)
			continue
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-moved:
		case <-t.opt.Hints:
			t.rescan = true
		case a := <-t.src.asks:
			t.awaiting = append(t.awaiting, a)
		}
	}
}

// poll takes what has been signalled, without waiting.
func (t *tail) poll(moved <-chan struct{}) {
	for {
		select {
		case <-moved:
		case <-t.opt.Hints:
			t.rescan = true
		case a := <-t.src.asks:
			t.awaiting = append(t.awaiting, a)
		default:
			return
		}
	}
}

// turn looks once at whatever is due, tells what it found, and returns how long
// to wait before the next turn.
func (t *tail) turn(ctx context.Context, now time.Time) time.Duration {
	due := t.due()
	if t.opt.Authority != nil && t.base != wire.NoOffset {
		t.hear(now)
	}
	asked := len(t.awaiting) > 0
	if t.src.recheck.Swap(false) {
		t.rescan = true
	}
	if asked && t.base == wire.NoOffset {
		t.rescan = true // there may be a log now
	}
	if t.rescan || now.Sub(t.scanned) >= due {
		t.rescan, t.scanned = false, now
		err := commitlog.Guard(func() error { return t.scan(ctx, now) })
		if !errors.Is(err, errUndecided) && ctx.Err() == nil {
			t.scanErr = t.judgeError(err)
		}
	}
	more := false
	if t.base != wire.NoOffset && (asked || t.faultyAt.IsZero() || now.Sub(t.faultyAt) >= faultPause) {
		t.lookErr = t.look(now, &more)
	}
	t.tell()
	t.publish(now)
	if more {
		return 0
	}
	if !t.rescan && !t.guess.open && ctx.Err() == nil {
		t.answer()
	}
	return t.pace(now)
}

// look advances over what is there.
func (t *tail) look(now time.Time, more *bool) error {
	err := commitlog.Guard(func() (err error) {
		*more, err = t.advance(now)
		if !*more && err == nil && t.proofs.last.end() != t.at && now.Sub(t.active) >= nearFor {
			t.keepProof(now)
		}
		return err
	})
	if err == nil {
		t.faultyAt = time.Time{}
		return nil
	}
	var fault *commitlog.FaultError
	if !errors.As(err, &fault) {
		return t.judgeError(err)
	}
	// What lies below may be gone too: find out, but not over and over.
	t.rescan = t.faultyAt.IsZero()
	t.faultyAt = now
	return t.judgeError(err)
}

// due returns how long after the last listing the next one comes.
func (t *tail) due() time.Duration {
	switch {
	case t.guess.open:
		return min(t.opt.Rescan, guessAfter)
	case t.base == wire.NoOffset:
		return min(t.opt.Rescan, findPoll)
	}
	return t.opt.Rescan
}

// pace returns how long to wait: a nap near traffic, longer the longer nothing
// has come.
func (t *tail) pace(now time.Time) time.Duration {
	if t.rescan {
		return 0
	}
	if t.base == wire.NoOffset {
		return max(t.scanned.Add(t.due()).Sub(now), time.Millisecond)
	}
	idle := now.Sub(t.active)
	// Naps are counted too, so that a clock that stands does not keep us awake.
	if idle < nearFor && t.naps < int(nearFor/nearPoll) {
		t.naps++
		return nearPoll
	}
	return min(max(min(idle/idleGrowth, idlePoll), idle/restGrowth, time.Millisecond), restPoll)
}

// publish stores the ends for everybody and wakes who waits for a move.
func (t *tail) publish(now time.Time) {
	e := noEnds
	if t.base != wire.NoOffset {
		e = Ends{Min: t.min, Confirmed: t.at, Settled: t.at, Visible: t.at.Add(t.last.size)}
		if t.last.settled {
			e.Settled = e.Visible
		}
	}
	e.Resettled = t.resettled
	before := t.src.ends.load()
	if before == e {
		return
	}
	if before.Confirmed != e.Confirmed || before.Visible != e.Visible {
		t.active, t.naps = now, 0
	}
	if want := e.Visible > e.Confirmed; want != t.wanted && t.opt.Authority != nil {
		t.wanted = want
		t.opt.Authority.Want(want)
	}
	t.src.ends.store(e)
	t.src.listeners.Wake()
}

// answer answers who asked for a fresh look, after one that could see all.
func (t *tail) answer() {
	for _, a := range t.awaiting {
		a <- t.src.now()
	}
	t.awaiting = t.awaiting[:0]
}

func (t *tail) closeSegments() {
	for _, seg := range []*Segment{t.seg, t.next} {
		if seg == nil {
			continue
		}
		if err := seg.Close(); err != nil {
			t.log.Warn("closing a segment of the source failed", "error", err)
		}
	}
	t.seg, t.next = nil, nil
}
