package stock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// readSize is what one read of the socket takes: enough frames to share the
// cost of the system calls, little enough to stay in the cache of one core
// while it is received, written and checked.
const readSize = 512 << 10

// inSync is how far a stream may fall behind before it counts as catching up.
const inSync = 64 * wire.MiB

// stream is one connection to a source's HA port, from the answer to the
// request on. read owns everything that is not atomic.
type stream struct {
	f     *Follower
	conn  net.Conn
	addr  string
	plan  plan
	store *replica.Store

	decoder ha.Decoder
	expect  wire.PhyOffset // where the next body or heartbeat must be; NoOffset: any segment start
	own     wire.PhyOffset // the verified end at connect: bytes below it are compared, not written
	whole   wire.PhyOffset // end of the last frame that came whole
	append  wire.PhyOffset // where gather begins
	gather  [][]byte       // pieces of bodies to be written, adjacent
	target  wire.PhyOffset // streaming from here on

	compared atomic.Bool // everything held was compared with the source: acks may move
	state    state.State
	got      bool // any body yet
	answered bool // any frame yet
}

func newStream(f *Follower, conn net.Conn, addr string, p plan) *stream {
	st := &stream{f: f, conn: conn, addr: addr, plan: p, store: f.opt.Store, expect: p.request, target: p.target, gather: make([][]byte, 0, 64)}
	if p.request == 0 {
		st.expect = wire.NoOffset
	}
	st.own = max(f.opt.Store.Ends().Verified, 0)
	st.whole = st.own
	st.append = st.own
	st.compared.Store(st.own == 0 || st.own <= p.request)
	return st
}

// read takes frames off the socket until it ends.
func (st *stream) read() error {
	buf := make([]byte, readSize)
	start := time.Now()
	for {
		deadline := time.Now().Add(st.f.timing.Housekeeping)
		if st.plan.data && !st.got {
			deadline = start.Add(st.f.timing.Patience)
		} else if st.f.opt.Broker == nil && st.plan.request == 0 && !st.answered {
			deadline = start.Add(2 * st.f.timing.Heartbeat)
		}
		if err := st.conn.SetReadDeadline(deadline); err != nil {
			return fmt.Errorf("read from %s: %w", st.addr, err)
		}
		n, err := st.conn.Read(buf)
		if n > 0 {
			if err := st.take(buf[:n]); err != nil {
				return err
			}
			st.progress(n < len(buf))
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return st.silence()
		default:
			return fmt.Errorf("read from %s: %w", st.addr, err)
		}
	}
}

// take handles what one read brought: decode all of it, write it with one call,
// then check it as far as whole frames reach.
func (st *stream) take(in []byte) error {
	st.gather = st.gather[:0]
	for len(in) > 0 {
		n, ev, err := st.decoder.Next(in)
		if err != nil {
			return err
		}
		in = in[n:]
		switch ev.Kind {
		case ha.Heartbeat:
			err = st.heartbeat(ev.PhyOffset)
		case ha.Body:
			err = st.body(ev)
		}
		if err != nil {
			return err
		}
	}
	if len(st.gather) > 0 {
		if err := st.store.Append(st.append, st.gather); err != nil {
			return StoreProblem(st.store.Dir(), err)
		}
		st.append = st.store.Ends().Written
	}
	if st.whole > st.own {
		return st.verify()
	}
	return nil
}

func (st *stream) verify() error {
	err := st.store.Verify(st.whole)
	if err == nil {
		return nil
	}
	if sp := streamProblem(st.addr, err); state.AsProblem(sp) != nil {
		return sp
	}
	return StoreProblem(st.store.Dir(), err)
}

// place checks that a frame is where it must be.
func (st *stream) place(at wire.PhyOffset, body bool) error {
	if st.expect == wire.NoOffset {
		if body && at != at.SegmentBase(st.store.SegmentSize()) {
			return problem(state.ProtocolError, "offset_mismatch", "check --segment-size and that "+st.addr+" is a stock HA port", nil,
				"asked for its last segment, %s began at %d, which starts no segment of %s", st.addr, at, st.store.SegmentSize())
		}
		st.expect = at
	}
	if at != st.expect {
		return problem(state.ProtocolError, "offset_mismatch", "restart the source's broker if this lasts; nothing of it was written", nil,
			"%s sent offset %d where %d was due", st.addr, at, st.expect)
	}
	return nil
}

// body compares what is already held, and gathers the rest.
func (st *stream) body(ev ha.Event) error {
	if err := st.place(ev.PhyOffset, true); err != nil {
		return err
	}
	if !st.got {
		if err := st.first(ev.PhyOffset); err != nil {
			return err
		}
	}
	data, at := ev.Data, ev.PhyOffset
	st.expect = at.Add(wire.ByteSize(len(data)))
	st.f.received.Store(int64(st.expect))
	if ev.FrameEnd {
		st.whole = st.expect
	}
	if at < st.own {
		n := min(wire.ByteSize(len(data)), st.own.Sub(at))
		if err := st.store.Compare(at, data[:n]); err != nil {
			var differ *replica.DifferenceError
			if errors.As(err, &differ) {
				return diverged(st.addr, differ.PhyOffset, nil)
			}
			return StoreProblem(st.store.Dir(), err)
		}
		data = data[n:]
	}
	if st.expect >= st.own {
		st.compared.Store(true)
	}
	if len(data) > 0 {
		st.gather = append(st.gather, data)
	}
	return nil
}

// first is called with the offset of the first byte that comes.
func (st *stream) first(at wire.PhyOffset) error {
	st.got, st.answered = true, true
	base := at
	if at == 1 && st.own == 0 {
		// Byte 0 cannot be asked for. It is the top byte of the first TOTALSIZE, 0
		// for messages below 16 MiB; the first message's own magic, offset and
		// checksum prove it before anything is acked.
		base = 0
		st.gather = append(st.gather, []byte{0})
	}
	if !st.store.Empty() {
		if base > st.own {
			// HA port alone: the last segment begins behind our end.
			st.f.resume = true
			return errAgain
		}
		return nil
	}
	if err := st.store.Begin(base); err != nil {
		return problem(state.ProtocolError, "offset_mismatch", "check --segment-size", err, "%s began at %d", st.addr, at)
	}
	st.own, st.append = base, base
	if st.f.askLast && base > 0 {
		st.store.MissHistory(base)
	}
	return nil
}

// heartbeat says that the source has nothing beyond at.
func (st *stream) heartbeat(at wire.PhyOffset) error {
	if err := st.place(at, false); err != nil {
		return err
	}
	st.answered = true
	if st.f.opt.Broker != nil {
		return nil // the source's end is asked for, not guessed
	}
	switch {
	case !st.got && at == 1:
		return nil // an empty log, or one that begins later: silence decides
	case at < st.own && !(st.plan.data && !st.got):
		return behind(at, st.own)
	case at > st.own && !st.got && !st.store.Empty():
		st.f.resume = true
		return errAgain
	case at == st.own:
		st.compared.Store(true)
	}
	st.f.sourceEnd.Store(int64(at))
	st.target = at
	return nil
}

// silence is called when a deadline passed. Either the source is gone, or it
// keeps quiet about bytes that it must have.
func (st *stream) silence() error {
	if st.got || !st.plan.data {
		return fmt.Errorf("%s was silent for %s", st.addr, st.f.timing.Housekeeping)
	}
	if st.f.opt.Broker == nil && st.store.Empty() {
		st.f.askLast = true
		return errAgain
	}
	return problem(state.Gap, "heartbeats_only", "ask the source's broker for commitLogMinOffset and commitLogMaxOffset (mqadmin brokerStatus); restart it if they include the offset", nil,
		"%s sends nothing from offset %d on within %s", st.addr, st.plan.request, st.f.timing.Patience)
}

// progress derives the state from verified ends alone. drained says that the
// last read emptied the socket.
func (st *stream) progress(drained bool) {
	ends := st.store.Ends()
	target := st.target
	if target == wire.NoOffset && drained {
		target = st.f.Received()
	}
	now := state.CatchingUp
	switch {
	case !st.compared.Load():
	case st.state == state.Streaming && st.f.SourceEnd().Sub(ends.Verified) <= inSync:
		now = state.Streaming
	case target != wire.NoOffset && ends.Verified >= target, st.store.Empty() && target == 0:
		now = state.Streaming
	}
	if now != st.state {
		st.state = now
		st.f.opt.OnState(now, nil)
	}
}
