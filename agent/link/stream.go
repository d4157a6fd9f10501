package link

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/beside"
	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// largePayload is from which payload on a frame is taken while the next one is
// read. Smaller ones are taken at once: waking another goroutine would take longer.
const largePayload = 64 << 10

// stream is a replica's log connection, from the start on. read owns everything
// that is not atomic, and lends it to its side while that takes a frame.
type stream struct {
	*pipe
	f      *Follower
	store  *replica.Store
	addr   string
	source *wirelink.Welcome

	started   bool
	confirmed wire.PhyOffset // the source's, as last told
	sourceMin wire.PhyOffset // the source's, as last told
	retained  time.Time      // when Retention was last told
	state     state.State
	bufs      [1][]byte
	packs     bool // the source may pack what it sends
	unpacker  unpacker
	received  atomic.Int64
	watch     *meter.Stopwatch
	reached   chan struct{} // one slot: what was received should be reported
}

// begin tells the source to start.
func (st *stream) begin(ctx context.Context, from wire.PhyOffset) error {
	st.confirmed, st.sourceMin = st.source.Confirmed, st.source.Min
	st.received.Store(int64(st.store.Ends().Verified))
	st.f.received.Store(st.received.Load())
	st.f.sourceEnd.Store(int64(st.source.Confirmed))
	if err := st.write(ctx, &wirelink.Start{From: from}); err != nil {
		return err
	}
	st.started = true
	st.progress()
	return nil
}

// read takes frames until the connection ends.
func (st *stream) read(ctx context.Context) error {
	if st.expect(wirelink.TypeTransfer, wirelink.TypeHeartbeat); st.packs {
		st.expect(wirelink.TypeTransfer, wirelink.TypeHeartbeat, wirelink.TypePacked)
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	side := beside.New(func(f largeFrame) error { return st.frame(run, f.t, f.payload) }, func(err error) {
		cancel(err)
		_ = st.conn.SetReadDeadline(longAgo)
	})
	defer side.End()
	var spare []byte
	for {
		t, payload, err := st.raw(run)
		if failed := side.Wait(); failed != nil {
			return failed // and why raw ended, if it did
		}
		switch {
		case err != nil:
			return fmt.Errorf("read from %s: %w", st.addr, err)
		case len(payload) >= st.f.opt.largeFrame:
			spare = st.session.Reader().Exchange(spare)
			side.Give(largeFrame{t, payload})
		default:
			if err := st.frame(run, t, payload); err != nil {
				return err
			}
		}
	}
}

// largeFrame is a frame that is taken while the next one is read.
type largeFrame struct {
	t       wirelink.Type
	payload []byte
}

// frame takes one frame.
func (st *stream) frame(ctx context.Context, t wirelink.Type, payload []byte) (err error) {
	switch t {
	case wirelink.TypeTransfer:
		err = st.transfer(payload)
	case wirelink.TypePacked:
		err = st.packed(payload)
	default:
		err = st.other(t, payload)
	}
	if err != nil {
		return err
	}
	st.progress()
	if t == wirelink.TypeHeartbeat {
		return nil
	}
	return st.rest(ctx, wire.ByteSize(len(payload)))
}

// transfer takes bytes of the log as they are.
func (st *stream) transfer(payload []byte) error {
	at, confirmed, body, err := wirelink.ParseTransfer(payload)
	if err != nil {
		return err
	}
	return st.take(at, confirmed, body)
}

// packed takes bytes of the log that are compressed.
func (st *stream) packed(payload []byte) error {
	p, err := wirelink.ParsePacked(payload)
	if err != nil {
		return err
	}
	body, err := st.unpacker.unpack(&p)
	if err != nil {
		return err
	}
	return st.take(p.At, p.Confirmed, body)
}

// take writes what came, and checks it as far as the source has confirmed it.
func (st *stream) take(at, confirmed wire.PhyOffset, body []byte) error {
	st.f.opt.Traffic.Frame(wire.ByteSize(len(body)))
	if st.watch.Idle() {
		came, before := time.Now(), st.store.Ends().Verified
		defer func() {
			if end := st.store.Ends().Verified; end > before {
				st.watch.Mark(end, came)
			}
		}()
	}
	if err := st.place(at); err != nil {
		return err
	}
	if at.Add(wire.ByteSize(len(body))) > confirmed {
		if err := st.store.ExpectProvisional(); err != nil {
			return replica.Problem(st.store.Dir(), err)
		}
	}
	st.bufs[0] = body
	if err := st.store.Append(at, st.bufs[:]); err != nil {
		return replica.Problem(st.store.Dir(), err)
	}
	received := int64(st.store.Ends().Written)
	st.received.Store(received)
	st.f.received.Store(received)
	return st.verify(confirmed)
}

// place makes the written end the place where a frame begins. A frame may begin
// at the verified end anew: what lies behind it was provisional and is replaced.
func (st *stream) place(at wire.PhyOffset) error {
	if st.store.Empty() {
		if err := st.store.Begin(at); err != nil {
			return state.Problemf(state.ProtocolError, "offset_mismatch", "check --segment-size", err, "%s began at %d", st.addr, at)
		}
		return nil
	}
	ends := st.store.Ends()
	if at == ends.Written {
		return nil
	}
	if at == ends.Verified {
		return replica.Problem(st.store.Dir(), st.store.DropUnverified())
	}
	return state.Problemf(state.ProtocolError, "offset_mismatch", "use the same version of haagent on both sides; nothing of it was written", nil,
		"%s sent offset %d where %d was due", st.addr, at, ends.Written)
}

// verify moves the verified end as far as the source has confirmed the log (I1,
// I3). The confirmed end is the end of a message.
func (st *stream) verify(confirmed wire.PhyOffset) error {
	if confirmed < st.confirmed {
		return state.Problemf(state.ProtocolError, "confirmed_fell", "use the same version of haagent on both sides", nil,
			"%s had confirmed its log up to %d, now up to %d", st.addr, st.confirmed, confirmed)
	}
	st.confirmed = confirmed
	st.f.sourceEnd.Store(int64(confirmed))
	ends := st.store.Ends()
	limit := min(ends.Written, confirmed)
	if st.store.Empty() || limit <= ends.Verified {
		return nil
	}
	if err := st.store.Verify(limit); err != nil {
		if p := problemOf(st.addr, err); state.AsProblem(p) != nil {
			return p
		}
		return replica.Problem(st.store.Dir(), err)
	}
	if verified := st.store.Ends().Verified; limit == confirmed && verified < limit {
		return state.Problemf(state.ProtocolError, "corrupt_message", "run haagent verify on the source's store: what it sends there is not a message; nothing behind it is acked", nil,
			"the source confirmed its log up to %d, where no message ends; the last whole one ends at %d", confirmed, verified)
	}
	return nil
}

// other takes every frame but transfers.
func (st *stream) other(t wirelink.Type, payload []byte) error {
	m, err := decode(t, payload)
	if err != nil {
		return err
	}
	h, ok := m.(*wirelink.Heartbeat)
	if !ok {
		return unexpected(m, "in the stream")
	}
	if err := st.verify(h.Confirmed); err != nil {
		return err
	}
	return st.retain(h.Min)
}

// retain drops old segments: at once when the source's beginning moves, and now
// and then for what has only grown old. A source that begins beyond what the
// replica has verified, or beyond its own confirmed end, drops nothing here: it
// has a gap to tell, or is wrong.
func (st *stream) retain(sourceMin wire.PhyOffset) error {
	moved := sourceMin != st.sourceMin
	st.sourceMin = sourceMin
	if st.f.opt.Retention == nil || sourceMin == wire.NoOffset || !moved && time.Since(st.retained) < st.f.opt.Timing.Heartbeat {
		return nil
	}
	if sourceMin > min(st.store.Ends().Verified, st.confirmed) {
		return nil
	}
	st.retained = time.Now()
	return replica.Problem(st.store.Dir(), st.f.opt.Retention(sourceMin))
}

// progress derives the state from verified ends alone (I9).
func (st *stream) progress() {
	// A log may begin anywhere: an empty replica lacks nothing that is not there.
	lag := max(st.confirmed, 0).Sub(max(st.store.Ends().Verified, st.sourceMin, 0))
	now := state.CatchingUp
	if lag <= 0 || st.state == state.Streaming && lag <= inSync {
		now = state.Streaming
	}
	if now != st.state {
		st.state = now
		st.f.opt.OnState(now, nil)
	}
}

// report tells the source how far the replica is: at once when that moves, and
// at least every heartbeat. It runs apart from reading and writing, so that a
// busy disk cannot make the source drop the link.
func (st *stream) report(ctx context.Context) error {
	moved, stop := st.store.Listen()
	defer stop()
	tick := time.NewTicker(st.f.opt.Timing.Heartbeat)
	defer tick.Stop()
	last := wirelink.Report{}
	now := new(wirelink.Report) // one for all
	for due := true; ; {
		ends := st.store.Ends()
		*now = wirelink.Report{Received: max(wire.PhyOffset(st.received.Load()), ends.Verified), Verified: ends.Verified, Flushed: ends.Flushed}
		if st.store.Empty() {
			*now = wirelink.Report{Received: wire.NoOffset, Verified: wire.NoOffset, Flushed: wire.NoOffset}
		}
		if due || now.Verified != last.Verified || now.Flushed != last.Flushed {
			if err := st.write(ctx, now); err != nil {
				return err
			}
			st.watch.Acked(ends.Acked)
			last = *now
			tick.Reset(st.f.opt.Timing.Heartbeat)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-moved:
			due = false
		case <-tick.C:
			due = true
		}
	}
}
