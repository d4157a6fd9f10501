package source

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// ErrRunning says that Run was called twice.
var ErrRunning = errors.New("the tail of this source runs already, or has ended")

// Source is the commit log of a broker, as it is now. Run keeps it so; all other
// methods may be called at any time, by any goroutine.
type Source struct {
	opt Options

	ends        endsBox
	incarnation atomic.Uint64
	size        atomic.Int64
	lastStored  atomic.Int64 // milliseconds since 1970, 0 unknown
	listeners   wake.Listeners

	running atomic.Bool
	recheck atomic.Bool // list the files and look at the proofs with the next look
	asks    chan chan<- wire.PhyOffset
	ended   chan struct{}
}

// New returns a Source that knows nothing until Run looks.
func New(o Options) *Source {
	s := &Source{
		opt:   o.withDefaults(),
		asks:  make(chan chan<- wire.PhyOffset),
		ended: make(chan struct{}),
	}
	s.size.Store(int64(max(o.SegmentSize, 0)))
	s.ends.store(noEnds)
	s.incarnation.Store(1)
	return s
}

// Run follows the log until ctx ends, and returns nil then. Whatever is wrong
// with the files is told to Options.OnState and looked at again; only options
// that can never work end Run early, a *state.Problem where an operator can do
// something about it.
func (s *Source) Run(ctx context.Context) error {
	if err := s.opt.check(); err != nil {
		s.opt.OnState(err)
		return err
	}
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer close(s.ended)
	t := newTail(s)
	defer t.close()
	t.run(ctx)
	return nil
}

// Ends returns how far the log reaches. It is cheap.
func (s *Source) Ends() Ends { return s.ends.load() }

// Listen returns a channel that gets a value after every move of an end (moves
// that come faster than they are taken are one), and a function that ends it.
func (s *Source) Listen() (moved <-chan struct{}, stop func()) { return s.listeners.Listen() }

// SegmentSize returns the length of every segment, 0 as long as it is not known.
// One that was guessed may change after the Incarnation has gone up.
func (s *Source) SegmentSize() wire.ByteSize { return wire.ByteSize(s.size.Load()) }

// Incarnation goes up, before Ends change, when Confirmed went back or bytes
// below it are not what they were: streams must end, and replicas ask anew. It
// starts at 1.
func (s *Source) Incarnation() uint64 { return s.incarnation.Load() }

// LastStored returns when the broker stored the last message that was looked at;
// the zero time where there was none.
func (s *Source) LastStored() time.Time {
	if ms := s.lastStored.Load(); ms != 0 {
		return commitlog.Millis(ms).Time()
	}
	return time.Time{}
}

// Now returns Visible, or the broker's own end where that is further, after a look
// at the tail that began after the call and reached the end of what can be seen:
// nothing that was stored whole before the call lies behind it. Where the log
// cannot be read so far, as Options.OnState was told before, it is what is known;
// wire.NoOffset where that is nothing. looked is false where ctx or Run ended before
// such a look: what was stored meanwhile may lie behind end then.
func (s *Source) Now(ctx context.Context) (end wire.PhyOffset, looked bool) {
	answer := make(chan wire.PhyOffset, 1)
	select {
	case s.asks <- answer:
		select {
		case end, looked = <-answer: // answered, or closed at the end of Run
			if looked {
				return end, true
			}
		case <-ctx.Done():
		}
	case <-ctx.Done():
	case <-s.ended:
	}
	return s.now(), false
}

// Recheck holds the files against what they were when they were last looked at, and
// returns the Incarnation after that: whatever anybody had written over confirmed
// bytes before the call has been seen, unless ctx has ended.
func (s *Source) Recheck(ctx context.Context) uint64 {
	s.recheck.Store(true)
	s.Now(ctx)
	return s.Incarnation()
}

func (s *Source) now() wire.PhyOffset {
	return max(s.ends.load().Visible, s.granted())
}

// granted returns the broker's own end, wire.NoOffset where it is not known.
func (s *Source) granted() wire.PhyOffset {
	if s.opt.Authority == nil {
		return wire.NoOffset
	}
	return s.opt.Authority.End()
}
