package stock

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// inSync is how far a stream may fall behind before it counts as catching up.
const inSync = 64 * wire.MiB

// stream is one connection to a source's HA port, from the answer to the
// request on. read owns everything that is not atomic, and lends it to its worker
// while that takes a piece.
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
	target  wire.PhyOffset // the source's end as far as this connection knows it
	frame   wire.ByteSize  // what has come of the present frame
	short   bool           // the last frame was not full, so that the source had no more

	compared atomic.Bool   // everything held was compared with the source: acks may move
	allowed  chan struct{} // closed when compared becomes true after the connect
	state    state.State
	start    time.Time     // of the connection
	patience time.Duration // how long the present silence may last
	got      bool          // any body yet
	answered bool          // any frame yet
	watch    *meter.Stopwatch
}

func newStream(f *Follower, conn net.Conn, addr string, p plan) *stream {
	st := &stream{f: f, conn: conn, addr: addr, plan: p, store: f.opt.Store, expect: p.request, target: p.target, gather: make([][]byte, 0, 64),
		allowed: make(chan struct{}), start: time.Now(), watch: f.opt.Traffic.Stopwatch()}
	if p.request == 0 {
		st.expect = wire.NoOffset
	}
	st.own = max(f.opt.Store.Ends().Verified, 0)
	st.whole = st.own
	st.append = st.own
	st.compared.Store(st.own == 0 || st.own <= p.request)
	return st
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
			return replica.Problem(st.store.Dir(), err)
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
	return replica.Problem(st.store.Dir(), err)
}

// place checks that a frame is where it must be.
func (st *stream) place(at wire.PhyOffset) error {
	if st.expect == wire.NoOffset {
		if at > maxOffset || at != at.SegmentBase(st.store.SegmentSize()) {
			return state.Problemf(state.ProtocolError, "offset_mismatch", "check --segment-size and that "+st.addr+" is a stock HA port", nil,
				"asked for its last segment, %s began at %d, which starts no segment of %s", st.addr, at, st.store.SegmentSize())
		}
		st.expect = at
	}
	if at != st.expect {
		return state.Problemf(state.ProtocolError, "offset_mismatch", "restart the source's broker if this lasts; nothing of it was written", nil,
			"%s sent offset %d where %d was due", st.addr, at, st.expect)
	}
	return nil
}

// body compares what is already held, and gathers the rest.
func (st *stream) body(ev ha.Event) error {
	if err := st.place(ev.PhyOffset); err != nil {
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
	st.frame += wire.ByteSize(len(data))
	if ev.FrameEnd {
		st.whole = st.expect
		st.f.opt.Traffic.Frame(st.frame)
		st.short = st.frame < ha.StockBatch && st.expect != st.expect.SegmentBase(st.store.SegmentSize())
		st.frame = 0
	}
	if at < st.own {
		n := min(wire.ByteSize(len(data)), st.own.Sub(at))
		if err := st.compare(at, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	if st.expect >= st.own {
		st.allow()
	}
	if len(data) > 0 {
		st.gather = append(st.gather, data)
	}
	return nil
}

// compare holds bytes of the source against what the replica has of them.
func (st *stream) compare(at wire.PhyOffset, p []byte) error {
	if before := min(st.store.Ends().Min.Sub(at), wire.ByteSize(len(p))); before > 0 {
		at, p = at.Add(before), p[before:] // dropped here, or never held
	}
	err := st.store.Compare(at, p)
	var differ *replica.DifferenceError
	if errors.As(err, &differ) {
		return diverged(st.addr, differ.PhyOffset, nil)
	}
	return replica.Problem(st.store.Dir(), err)
}

// allow lets acks move: the source is known to hold what the replica holds. The
// source is told at once, its producers may be waiting for just that.
func (st *stream) allow() {
	if st.compared.CompareAndSwap(false, true) {
		close(st.allowed)
	}
}

// askForEnd reports that the source's last segment begins at or behind the
// replica's end, so that it cannot be compared with anything; the next attempt
// then asks for the replica's end.
func (st *stream) askForEnd(base wire.PhyOffset) bool {
	ends := st.store.Ends()
	again := st.plan.request == 0 && !st.store.Empty() && (base > st.own || base == st.own && st.own > ends.Min)
	if again {
		st.f.resume = true
	}
	return again
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
	switch {
	case st.askForEnd(base):
		return retry.ErrAgain
	case !st.store.Empty():
		return nil
	}
	if err := st.store.Begin(base); err != nil {
		return state.Problemf(state.ProtocolError, "offset_mismatch", "check --segment-size", err, "%s began at %d", st.addr, at)
	}
	st.own, st.append = base, base
	if st.plan.request == 0 && base > 0 {
		st.store.MissHistory(base)
	}
	return nil
}

// heartbeat says that the source has nothing beyond at.
func (st *stream) heartbeat(at wire.PhyOffset) error {
	if err := st.place(at); err != nil {
		return err
	}
	st.answered = true
	if st.f.opt.Broker != nil {
		return nil // the source's end is asked for, not guessed
	}
	switch {
	case !st.got && st.plan.data:
		return nil // an empty log, or one that begins later: silence decides
	case at < st.own:
		return replica.Behind(at, st.own)
	case !st.got && st.askForEnd(at):
		return retry.ErrAgain
	}
	st.allow()
	st.f.sourceEnd.Store(int64(at))
	st.target = at
	return nil
}

// progress derives the state from verified ends alone. drained says that the
// last read emptied the socket.
func (st *stream) progress(drained bool) {
	verified := st.store.Ends().Verified
	now := state.CatchingUp
	switch {
	case !st.compared.Load():
	case st.state == state.Streaming && max(st.f.SourceEnd(), st.f.Received()).Sub(verified) <= inSync:
		now = state.Streaming
	case st.arrived(verified, drained):
		now = state.Streaming
	}
	if now != st.state {
		st.state = now
		st.f.opt.OnState(now, nil)
	}
}

// arrived reports whether the replica is where the source ends, which grows
// while it is followed.
func (st *stream) arrived(verified wire.PhyOffset, drained bool) bool {
	end := st.target
	if st.f.opt.Broker != nil {
		end = max(end, st.f.SourceEnd())
	} else if received := st.f.Received(); end == wire.NoOffset || received > end {
		// Nobody says where the source ends, but one that has more fills its frames.
		if !drained || !st.short {
			return false
		}
		end = received
	}
	return verified >= end || st.store.Empty() && end == 0
}
