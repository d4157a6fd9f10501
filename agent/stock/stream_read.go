package stock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/haagent/haagent/agent/beside"
	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// readSize is what one read of the socket takes: enough frames to share the
// cost of the system calls, little enough to stay in the cache of one core
// while it is received, written and checked.
const readSize = 512 << 10

// largePiece is from which length on a piece is taken while the next one is read.
// Smaller ones are taken at once: waking another goroutine would take longer.
const largePiece = readSize / 4

// piece is what one read brought.
type piece struct {
	in      []byte
	drained bool // the socket had no more
}

// read takes frames off the socket until it ends.
func (st *stream) read(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	side := beside.New(st.took, func(err error) {
		cancel(err)
		_ = st.conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer side.End()
	buf, spare := make([]byte, readSize), []byte(nil)
	for behind := true; ; {
		room := buf[:st.f.opt.Limits.Piece(readSize, behind)]
		n, err := st.receive(ctx, room, side.Busy())
		if failed := side.Wait(); failed != nil {
			return failed // and why receive ended, if it did
		}
		behind = st.state != state.Streaming
		if p := (piece{room[:n], n < len(room)}); n >= st.f.largePiece {
			if spare == nil {
				spare = make([]byte, readSize)
			}
			buf, spare = spare, buf
			side.Give(p)
		} else if n > 0 {
			if err := st.took(p); err != nil {
				return err
			}
		}
		// Read later, not less: the source's own flow control does the rest, and
		// reports go on meanwhile.
		if wait := st.f.opt.Limits.Spend(wire.ByteSize(n), behind); wait > 0 && !retry.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		if failed := side.Wait(); failed != nil {
			return failed
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return st.silence()
		}
		return fmt.Errorf("read from %s: %w", st.addr, err)
	}
}

// receive reads into room. While busy with bytes that came before, there is no
// doubt about what silence means.
func (st *stream) receive(ctx context.Context, room []byte, busy bool) (int, error) {
	var deadline time.Time
	if busy {
		st.patience = st.f.timing.Housekeeping
		deadline = time.Now().Add(st.patience)
	} else {
		deadline = st.deadline()
	}
	if err := st.conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	if ctx.Err() != nil { // looked at behind the deadline, which a failure shortens
		return 0, context.Cause(ctx)
	}
	return st.conn.Read(room)
}

// took takes what one read brought.
func (st *stream) took(p piece) error {
	came, timed, before := time.Time{}, st.watch.Idle(), st.store.Ends().Verified
	if timed {
		came = time.Now()
	}
	if err := st.take(p.in); err != nil {
		return err
	}
	if end := st.store.Ends().Verified; timed && end > before {
		st.watch.Mark(end, came)
	}
	st.progress(p.drained)
	return nil
}

// deadline is when silence means something. A stock master without an answer
// says so by its first heartbeat only; one that says nothing at all may hang, and
// tells nothing about its log.
func (st *stream) deadline() time.Time {
	t, since := st.f.timing, st.start
	switch {
	case st.got, !st.plan.data && (st.answered || st.f.opt.Broker != nil):
		st.patience, since = t.Housekeeping, time.Now()
	case st.answered:
		st.patience = t.Patience
	default:
		st.patience = max(2*t.Heartbeat, t.Patience)
	}
	return since.Add(st.patience)
}

// silence is called when a deadline passed. Either the source is gone, or it
// keeps quiet about bytes that it must have.
func (st *stream) silence() error {
	if st.got || !st.plan.data || !st.answered {
		return fmt.Errorf("%s was silent for %s", st.addr, st.patience)
	}
	if st.f.opt.Broker == nil && st.store.Empty() {
		st.f.askLast = true
		return retry.ErrAgain
	}
	return state.Problemf(state.Gap, "heartbeats_only", "ask the source's broker for commitLogMinOffset and commitLogMaxOffset (mqadmin brokerStatus); restart it if they include the offset", nil,
		"%s sends nothing from offset %d on within %s", st.addr, st.plan.request, st.patience)
}
