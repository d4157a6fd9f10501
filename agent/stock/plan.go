package stock

import (
	"bytes"
	"context"
	"errors"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// overlap is how much of its own end a replica asks for again on each connect,
// to compare it with what it holds.
const overlap = 64 * wire.KiB

// plan is what to ask a source's HA port for, and what must come back. The
// request is an ack to the broker, unchecked, so it is never beyond what the
// replica holds and the source has.
type plan struct {
	request wire.PhyOffset // the first 8 bytes; 0 asks for the last segment
	// data says that bytes must come at once: the source has more than request.
	data bool
	// target is the source's end when it was asked, NoOffset where it cannot be.
	target wire.PhyOffset
}

// planFrom decides with what the source said of itself, after comparing the
// replica's last message with the source's.
func planFrom(ctx context.Context, b *Broker, s Survey, store *replica.Store) (plan, error) {
	ends := store.Ends()
	if store.Empty() {
		// Whole history: from byte 1 where the log starts at 0, because 0 asks for
		// the last segment only.
		request := max(s.Min, 1)
		return plan{request: request, data: s.Max > request, target: s.Max}, nil
	}
	switch {
	case ends.Verified < s.Min:
		return plan{}, replica.HistoryGone(s.Min, ends.Verified)
	case ends.Verified > s.Max:
		if err := proveSameHead(ctx, b, s, store); err != nil {
			return plan{}, err
		}
		return plan{}, replica.Behind(s.Max, ends.Verified)
	}
	if err := proveSameLog(ctx, b, s, store); err != nil {
		return plan{}, err
	}
	request := max(ends.Verified.Add(-overlap), ends.Min, s.Min)
	request = max(min(request, ends.Acked), 1)
	return plan{request: request, data: s.Max > request, target: s.Max}, nil
}

// proveSameLog asks for the replica's last message and compares it. A source
// that differs already at the head of the oldest common segment is another log.
func proveSameLog(ctx context.Context, b *Broker, s Survey, store *replica.Store) error {
	last := store.LastMessage()
	if last == wire.NoOffset || last < s.Min {
		return nil
	}
	same, err := sameMessage(ctx, b, store, last)
	if err != nil || same {
		return err
	}
	if err := proveSameHead(ctx, b, s, store); err != nil {
		return err
	}
	return diverged(b.Addr(), last, nil)
}

// proveSameHead compares the first message of the oldest segment that both have.
func proveSameHead(ctx context.Context, b *Broker, s Survey, store *replica.Store) error {
	ends := store.Ends()
	head := max(ends.Min, s.Min)
	if head >= min(ends.Verified, s.Max) {
		return nil // they have nothing in common
	}
	same, err := sameMessage(ctx, b, store, head)
	if err == nil && !same {
		return replaced(b.Addr(), head)
	}
	return err
}

func replaced(addr string, head wire.PhyOffset) error {
	return state.Problemf(state.SourceReplaced, "source_replaced", "point --master at the right broker, or haagent resync to follow this one from its beginning", nil,
		"%s is not the log that was followed: the first common segment differs at its head, offset %d", addr, head)
}

func diverged(addr string, at wire.PhyOffset, err error) error {
	return state.Problemf(state.Diverged, "diverged", "decide which side wins: promote the replica, or haagent resync to copy the source anew", err,
		"%s holds other bytes than the replica at offset %d", addr, at)
}

// sameMessage reports whether the source has, at a message boundary of the
// replica, the same message.
func sameMessage(ctx context.Context, b *Broker, store *replica.Store, at wire.PhyOffset) (bool, error) {
	own, err := store.Message(at)
	if err != nil {
		return false, replica.Problem(store.Dir(), err)
	}
	theirs, err := b.ViewMessage(ctx, at)
	if errors.Is(err, ErrNoMessage) {
		return false, nil
	}
	if err != nil {
		return false, BrokerProblem(b.Addr(), err)
	}
	return bytes.Equal(own, theirs), nil
}
