package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// Why a difference has no place that is proven.
var (
	errUntold   = errors.New("the source does not say what it holds")
	errUnproven = errors.New("no common message before it is proven")
)

// maxBack is how many messages a search goes back from one that only looks common.
const maxBack = 32

// diverged is the Problem of logs that differ: the source holds other bytes in the
// overlap before high, all of them confirmed. It has a replica.Parted only where a
// replica is to be cut back and the first difference is proven (see first): whatever
// the source does not answer is no reason to cut.
func (j *judge) diverged(ctx context.Context, high wire.PhyOffset) error {
	low := max(j.hello.Min, j.welcome.Min)
	at, err := j.difference(ctx, low, high)
	var cause error
	try := "decide which side wins: promote the replica, or haagent resync to copy the source anew"
	if err == nil && j.rewind {
		if at, err = j.first(ctx, low, at); err == nil {
			cause = &replica.Parted{PhyOffset: at}
			try = "nothing: the replica is cut back to the last common message, and what is cut off is kept in its .haagent/salvage"
		}
	}
	where := fmt.Sprintf("from offset %d on", at)
	switch {
	case errors.Is(err, errUntold):
		where = fmt.Sprintf("before offset %d, and does not tell from where on", high)
	case errors.Is(err, errUnproven):
		where += ", and no message before it is known to be common: nothing is cut"
	case err != nil:
		return err
	}
	return state.Problemf(state.Diverged, "diverged", try, cause,
		"%s holds other bytes than the replica %s", j.addr, where)
}

// difference finds the first byte that differs in [low, high) by bisection: two logs
// that have parted stay different. What is compared each time is only the overlap
// before the middle, so it may be deceived by one body in two messages:
//
//	replica   |head a|same body··········|head c|
//	source    |head b|same body··········|head d|
//	              1st^          ^equal ^middle  ^found
func (j *judge) difference(ctx context.Context, low, high wire.PhyOffset) (wire.PhyOffset, error) {
	for low < high-1 {
		middle := low.Add(high.Sub(low) / 2)
		same, err := j.equal(ctx, max(middle.Add(-overlap), low), middle)
		if err != nil {
			return high, err
		}
		if same {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// first proves where two logs differ first, given a byte that seems to be the one:
// it differs, everything from the start of the last whole message before it is
// equal, and so are all before that, since no two messages have the same head.
func (j *judge) first(ctx context.Context, low, at wire.PhyOffset) (wire.PhyOffset, error) {
	for range maxBack {
		start, end, ok := j.store.MessageBefore(ctx, at)
		if ctx.Err() != nil {
			return at, context.Cause(ctx)
		}
		if !ok || start < low {
			return at, errUnproven
		}
		found, err := j.exact(ctx, start, at.Add(1))
		if err != nil || found >= end {
			return found, err
		}
		if at, err = j.difference(ctx, low, found.Add(1)); err != nil {
			return at, err
		}
	}
	return at, errUnproven
}

// exact finds the first byte that differs in [from, to) with every byte compared.
// One must: where there is none, the source is not what it was a moment ago.
func (j *judge) exact(ctx context.Context, from, to wire.PhyOffset) (wire.PhyOffset, error) {
	for from < to {
		end := min(from.Add(wirelink.MaxDigestRange), to)
		same, err := j.equal(ctx, from, end)
		if err != nil {
			return from, err
		}
		if same {
			from = end
			continue
		}
		for from < end-1 { // [from, end) differs
			middle := from.Add(end.Sub(from) / 2)
			if same, err = j.equal(ctx, from, middle); err != nil {
				return from, err
			}
			if same {
				from = middle
			} else {
				end = middle
			}
		}
		return from, nil
	}
	return to, j.cannotTell(to)
}

// equal compares [from, to), which the source must know.
func (j *judge) equal(ctx context.Context, from, to wire.PhyOffset) (bool, error) {
	same, known, err := j.same(ctx, from, to.Sub(from))
	if err == nil && !known {
		err = fmt.Errorf("from %d to %d: %w", from, to, errUntold)
	}
	return same, err
}
