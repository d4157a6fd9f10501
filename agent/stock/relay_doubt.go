package stock

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// witness is a copy of the bytes below an offset that replicas had acked, from the
// time when the broker was last known.
type witness struct {
	end  wire.PhyOffset
	tail []byte // empty: there is none
}

// witnessSize is how much is kept: a broker that has written this part of its log
// anew has other times in it.
const witnessSize = 4 * wire.KiB

// read copies the bytes of the log below end, as far as they lie in one segment.
func (w *witness) read(dir string, size wire.ByteSize, end wire.PhyOffset) error {
	w.end, w.tail = end, nil
	if end <= 0 {
		return nil
	}
	from := max(end.Add(-witnessSize), (end - 1).SegmentBase(size))
	tail := make([]byte, end.Sub(from))
	if err := readLog(dir, size, from, tail); err != nil {
		return err
	}
	w.tail = tail
	return nil
}

// remember copies what lies below the best ack. It is called when the broker is
// about to be lost from sight, or has just been.
func (r *Relay) remember(s *authoritySession) {
	_, best := r.opt.Acks.Since(r.after, 1)
	if best == wire.NoOffset {
		return // an older witness is as good
	}
	var w witness
	if err := w.read(s.a.opt.CommitLogDir, s.survey.Config.SegmentSize, best); err == nil {
		r.witness = w
	}
}

// staleTry is what to do about acks of a log that is not there any more.
const staleTry = "they connect and compare anew when the agent sees the change; restart the replicas' agents, or this one, if this lasts"

// changed is doubts for a broker that was not known before it lost its tail: the
// agent was started while it was down, and replicas have acked what lay there.
func (r *Relay) changed(ctx context.Context, end wire.PhyOffset) (*state.Problem, error) {
	if r.opt.Recheck == nil {
		return nil, nil
	}
	if same, err := r.opt.Recheck(ctx); same || err != nil {
		return nil, err
	}
	return state.Problemf(state.Diverged, "relay_acks_stale", staleTry, nil,
		"the local broker's log, which ends at %d, is not what replicas were sent", end), nil
}

// doubts says why replicas' acks cannot be about the log of a broker that may have
// been started anew and ends at end. It may have lost its tail and have gone on
// from there, which they learn when they connect the next time, and no earlier.
func (r *Relay) doubts(s *authoritySession, best, end wire.PhyOffset) *state.Problem {
	if best > end {
		return state.Problemf(state.Diverged, "relay_acks_stale", staleTry, nil,
			"replicas hold the log up to %d and the local broker's ends at %d: it has lost its tail", best, end)
	}
	if len(r.witness.tail) == 0 || best == wire.NoOffset {
		return nil
	}
	var now witness
	err := now.read(s.a.opt.CommitLogDir, s.survey.Config.SegmentSize, r.witness.end)
	if err != nil || !bytes.Equal(now.tail, r.witness.tail) {
		return state.Problemf(state.Diverged, "relay_acks_stale", staleTry, err,
			"the local broker's log below %d is not what it was, so that what replicas hold is another one", r.witness.end)
	}
	return nil
}

// watchPeers looks for slaves that the broker serves besides the relay.
func (r *Relay) watchPeers(ctx context.Context, s *authoritySession) {
	tick := time.NewTicker(s.a.timing.Survey)
	defer tick.Stop()
	var before []string
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			listed := s.peers.Swap(nil)
			if listed == nil {
				continue // of 4.x, or too busy to answer
			}
			foreign := r.foreign(*listed)
			// One that is there twice is there to stay.
			r.sawStrangers(slices.DeleteFunc(slices.Clone(foreign), func(addr string) bool { return !slices.Contains(before, addr) }))
			before = foreign
		}
	}
}

// forgetOwn forgets those of our connections that were closed before a time. mu is
// held.
func (r *Relay) forgetOwn(before time.Time) {
	for addr, closed := range r.own {
		if !closed.IsZero() && closed.Before(before) {
			delete(r.own, addr)
		}
	}
}

// foreign returns those peers that are not ours, sorted.
func (r *Relay) foreign(peers []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var foreign []string
	for _, p := range peers {
		if _, ours := r.own[peerName(p)]; !ours {
			foreign = append(foreign, p)
		}
	}
	slices.Sort(foreign)
	return foreign
}

// sawStrangers notes who else is the broker's slave, and warns of each change.
func (r *Relay) sawStrangers(strangers []string) {
	r.mu.Lock()
	same := slices.Equal(strangers, r.status.Strangers)
	r.status.Strangers = strangers
	r.mu.Unlock()
	if !same && len(strangers) > 0 {
		r.opt.Log.Warn("slaves sit on the local broker itself: each counts as one of its inSyncReplicas, beside the replicas of --relay-acks. Try: let them follow this agent",
			"slaves", strangers)
	}
}

// peerName is an address in one spelling: Java has another one than Go.
func peerName(addr string) string {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}
