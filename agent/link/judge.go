package link

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

const (
	// overlap is how much of its own end a replica has compared on each connect.
	overlap = 64 * wire.KiB
	// headSize is how much of a segment's beginning tells which log it is from.
	headSize = 4 * wire.KiB
)

// hello says who the replica is and what it holds: digests of the heads of its
// newest segments, and last that of its end. Where the last one reaches into an
// older segment, which a source may not have any more, there is one more that ends
// there too, of the newest segment alone.
func (f *Follower) hello(channel wirelink.Channel) (*wirelink.Hello, error) {
	st, ends := f.opt.Store.State(), f.opt.Store.Ends()
	h := &wirelink.Hello{Channel: channel, Ack: ackOf(f.opt.Ack), SegmentSize: f.opt.Store.SegmentSize(),
		Min: ends.Min, Verified: ends.Verified, Flushed: ends.Flushed, Epoch: st.Epoch,
		Cluster: st.Cluster, BrokerName: st.BrokerName, Node: f.opt.Self.Node, Version: f.opt.Self.Version}
	if f.opt.Store.Empty() {
		h.Min, h.Verified, h.Flushed = wire.NoOffset, wire.NoOffset, wire.NoOffset
		return h, nil
	}
	if channel != wirelink.ChannelLog || ends.Verified == ends.Min {
		return h, nil
	}
	size := f.opt.Store.SegmentSize()
	last := ends.Verified.Add(-1).SegmentBase(size)
	first := max(ends.Min, last.Add(-(wirelink.MaxDigests-3)*size))
	for base := first; base <= last; base = base.Add(size) {
		d, err := digest(f.opt.Store, base, min(headSize, ends.Verified.Sub(base)))
		if err != nil {
			return nil, err
		}
		h.Digests = append(h.Digests, d)
	}
	at := max(ends.Verified.Add(-overlap), ends.Min)
	ats := []wire.PhyOffset{at}
	if at < last {
		ats = []wire.PhyOffset{last, at}
	}
	for _, at := range ats {
		d, err := digest(f.opt.Store, at, ends.Verified.Sub(at))
		if err != nil {
			return nil, err
		}
		h.Digests = append(h.Digests, d)
	}
	return h, nil
}

func digest(store *replica.Store, at wire.PhyOffset, size wire.ByteSize) (wirelink.Digest, error) {
	buf := make([]byte, size)
	if err := store.ReadAt(buf, at); err != nil {
		return wirelink.Digest{}, err
	}
	return wirelink.Digest{At: at, Size: size, Sum: sha256.Sum256(buf)}, nil
}

// judge decides whether a source is the log that a replica holds.
type judge struct {
	*pipe
	store   *replica.Store
	addr    string
	hello   *wirelink.Hello
	welcome *wirelink.Welcome
	rewind  bool // FollowerOptions.Rewind
}

// start returns where to start, or the Problem of a source that cannot be
// followed.
func (j *judge) start(ctx context.Context) (wire.PhyOffset, error) {
	w, verified := j.welcome, j.hello.Verified
	if p := j.identity(); p != nil {
		return 0, p
	}
	j.expect(wirelink.TypeAnswer)
	switch {
	case verified == wire.NoOffset:
		return max(w.Min, 0), nil
	case w.Min == wire.NoOffset:
		return 0, j.behind()
	case verified < w.Min:
		return 0, replica.HistoryGone(w.Min, verified)
	case len(j.hello.Digests) == 0 || verified == w.Min:
		return verified, nil // nothing in common that could be compared
	}
	last := len(j.hello.Digests) - 1
	if w.Verdicts[last] == wirelink.Equal {
		return verified, j.longLast(ctx, j.hello.Digests[last].At)
	}
	if err := j.heads(ctx, last); err != nil {
		return 0, err
	}
	if verified > w.Visible {
		return 0, j.shorter(ctx)
	}
	return j.compare(ctx, j.hello.Digests[last])
}

// identity checks who the source says it is.
func (j *judge) identity() error {
	h, w := j.hello, j.welcome
	switch {
	case len(w.Verdicts) != len(h.Digests):
		return state.Problemf(state.ProtocolError, "bad_frame", "use the same version of haagent on both sides", nil, "%s answered %d digests with %d verdicts", j.addr, len(h.Digests), len(w.Verdicts))
	case h.Cluster != "" && w.Cluster != h.Cluster, h.BrokerName != "" && w.BrokerName != h.BrokerName:
		return state.Problemf(state.Incompatible, "wrong_broker", "give another --dir for another broker", nil, "the replica holds %s of %s, %s is %s of %s", h.BrokerName, h.Cluster, j.addr, w.BrokerName, w.Cluster)
	case w.SegmentSize != h.SegmentSize:
		return state.Problemf(state.Incompatible, "segment_size", "give the source's mappedFileSizeCommitLog as --segment-size, or another --dir", nil, "segments have %s at %s, %s here", w.SegmentSize, j.addr, h.SegmentSize)
	case w.Epoch < h.Epoch:
		return staleEpoch(j.addr, fmt.Sprintf("%s has epoch %d, the replica has followed %d", j.addr, w.Epoch, h.Epoch))
	}
	return nil
}

// heads looks at the oldest segment that both have. The last digest is no head.
func (j *judge) heads(ctx context.Context, last int) error {
	for i, d := range j.hello.Digests[:last] {
		switch j.welcome.Verdicts[i] {
		case wirelink.Differs:
			return j.head(ctx, d)
		case wirelink.Equal:
			return nil
		}
	}
	return nil
}

// head says what a segment means that differs at its head: another log where
// not even its first message is the same.
func (j *judge) head(ctx context.Context, d wirelink.Digest) error {
	at := d.At
	if first, err := j.store.Message(at); err == nil {
		same, known, err := j.same(ctx, at, min(wire.ByteSize(len(first)), wirelink.MaxDigestRange))
		switch {
		case err != nil:
			return err
		case !known:
			return j.cannotTell(at.Add(wire.ByteSize(len(first))))
		case same:
			return j.diverged(ctx, at.Add(d.Size))
		}
	}
	return state.Problemf(state.SourceReplaced, "source_replaced", "look for the right master, or haagent resync to follow this one from its beginning", nil,
		"%s is not the log that was followed: the first common segment differs at its head, offset %d", j.addr, at)
}

// shorter judges a source that ends before the replica does: it may be a log
// that has parted even before.
func (j *judge) shorter(ctx context.Context) error {
	end := j.welcome.Confirmed
	low := max(j.hello.Min, j.welcome.Min, end.Add(-overlap))
	if low >= end {
		return j.behind()
	}
	same, known, err := j.same(ctx, low, end.Sub(low))
	if err != nil {
		return err
	}
	if known && !same {
		return j.diverged(ctx, end)
	}
	return j.behind()
}

// longLast looks at the head of the last message where it lies before what was found
// equal from at on: one body can be sent twice, with other times.
func (j *judge) longLast(ctx context.Context, at wire.PhyOffset) error {
	last := j.store.LastMessage()
	if last == wire.NoOffset || last >= at || last < j.welcome.Min {
		return nil
	}
	size := min(headSize, j.hello.Verified.Sub(last))
	same, known, err := j.same(ctx, last, size)
	switch {
	case err != nil || same && known:
		return err
	case !known || last.Add(size) > j.welcome.Confirmed:
		return j.cannotTell(last.Add(size))
	}
	return j.diverged(ctx, last.Add(size))
}

func (j *judge) cannotTell(end wire.PhyOffset) error {
	return fmt.Errorf("%s cannot tell yet whether it has the same bytes up to %d", j.addr, end)
}

func (j *judge) behind() error {
	return replica.Behind(j.welcome.Visible, j.hello.Verified)
}

// compare asks for the digest of the end where the verdict said nothing, and for
// the first byte that differs where it does.
func (j *judge) compare(ctx context.Context, end wirelink.Digest) (wire.PhyOffset, error) {
	low := max(end.At, j.welcome.Min)
	same, known, err := j.same(ctx, low, j.hello.Verified.Sub(low))
	switch {
	case err != nil:
		return 0, err
	case same && known:
		return j.hello.Verified, j.longLast(ctx, low)
	}
	// What is not confirmed may still become the same.
	if confirmed := j.welcome.Confirmed; !known || confirmed < j.hello.Verified {
		if low < confirmed {
			if same, known, err = j.same(ctx, low, min(confirmed, j.hello.Verified).Sub(low)); err != nil {
				return 0, err
			}
			if known && !same {
				return 0, j.diverged(ctx, min(confirmed, j.hello.Verified))
			}
		}
		return 0, j.cannotTell(j.hello.Verified)
	}
	return 0, j.diverged(ctx, j.hello.Verified)
}

// same asks the source for the digest of a range that the replica holds.
func (j *judge) same(ctx context.Context, at wire.PhyOffset, size wire.ByteSize) (same, known bool, err error) {
	own, err := digest(j.store, at, size)
	if err != nil {
		return false, false, replica.Problem(j.store.Dir(), err)
	}
	if err := j.write(ctx, &wirelink.Ask{At: at, Size: size}); err != nil {
		return false, false, err
	}
	m, err := j.next(ctx)
	if err != nil {
		return false, false, err
	}
	a, ok := m.(*wirelink.Answer)
	if !ok || a.At != at || a.Known() && a.Size != size {
		return false, false, unexpected(m, "instead of an answer")
	}
	return a.Known() && a.Sum == own.Sum, a.Known(), nil
}
