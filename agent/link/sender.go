package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// smallBody is up to which length a body is copied into the same write as its
// head: below it one system call costs less than no copy.
const smallBody = 16 * wire.KiB

// missingPause is how long a sender waits for a segment that is not there (yet).
const missingPause = 100 * time.Millisecond

// sender streams the log to one replica.
type sender struct {
	peer  *logPeer
	src   *source.Source
	batch wire.ByteSize

	next  wire.PhyOffset
	begun bool // some bytes were sent
	// provisional is the start of what was sent above the confirmed end; NoOffset:
	// nothing. resettled is that of the ends when it was sent.
	provisional wire.PhyOffset
	resettled   uint64
	// replacing says that the replica holds provisional bytes from next on that
	// are not what they were: nothing behind next may be confirmed to it.
	replacing bool
	// unproven says that the replica began above the confirmed end, with bytes that
	// were equal then, and are compared again once they are confirmed.
	unproven bool
	told     source.Ends // what the replica knows
	beat     time.Time   // of the last heartbeat
	due      time.Time   // no log is sent before, for the sake of the limits
	segment  *source.Segment
	pump     *pump  // sends from files; nil where the connection is no plain TCP
	out      []byte // a frame's head, and what is copied behind it
	packer   *packer
}

func newSender(p *logPeer, from wire.PhyOffset) *sender {
	s := &sender{peer: p, src: p.server.opt.Source, batch: p.server.opt.Batch, next: from, provisional: wire.NoOffset,
		unproven: from > p.server.opt.Source.Ends().Confirmed && len(p.hello.Digests) > 0,
		out:      make([]byte, 0, wirelink.TransferHeadSize+int(smallBody)),
		packer:   newPacker(p.server.opt.Compress, p.hello.Accepts)}
	if tcp, ok := p.conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			s.pump = newPump(raw)
		}
	}
	return s
}

func (s *sender) close() {
	if s.segment != nil {
		_ = s.segment.Close() // it was only read
		s.segment = nil
	}
}

// run sends frames and heartbeats until the connection ends. The first frame is
// a heartbeat: it tells where the log begins and ends.
func (s *sender) run(ctx context.Context) error {
	moved, stop := s.src.Listen()
	defer stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		ends := s.src.Ends()
		if s.peer.changed() { // looked at behind the ends, which change later
			return sourceChanged()
		}
		if err := s.settle(ends); err != nil {
			return err
		}
		if time.Since(s.beat) >= s.peer.server.opt.Timing.Heartbeat {
			if err := s.heartbeat(ctx, ends); err != nil {
				return err
			}
		}
		n, err := s.send(ctx, ends)
		if err != nil {
			return err
		}
		if n > 0 && ctx.Err() == nil {
			continue
		}
		if (ends.Min != s.told.Min || s.confirmable(ends) != s.told.Confirmed) && !s.held() {
			if err := s.heartbeat(ctx, ends); err != nil {
				return err
			}
		}
		timer.Reset(s.pause(ends))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-moved:
		case <-timer.C:
		}
	}
}

// pause is how long nothing is looked at unless the log moves.
func (s *sender) pause(ends source.Ends) time.Duration {
	left := max(s.peer.server.opt.Timing.Heartbeat-time.Since(s.beat), time.Millisecond)
	switch {
	case s.next >= ends.Settled:
	case s.held():
		left = min(left, time.Until(s.due))
	default: // its segment is missing
		left = min(left, missingPause)
	}
	return left
}

// settle goes back to where provisional bytes began if they are not what they
// were, and forgets them once they are confirmed.
func (s *sender) settle(ends source.Ends) error {
	if s.unproven {
		if ends.Visible < s.next {
			return sourceChanged()
		}
		if ends.Confirmed >= s.next {
			if verdict, _ := s.peer.compareEnd(); verdict != source.Equal && s.peer.hello.Verified > ends.Min {
				return sourceChanged()
			}
			s.unproven = false
		}
	}
	if s.provisional == wire.NoOffset {
		return nil
	}
	if ends.Resettled != s.resettled {
		s.next, s.provisional, s.replacing = s.provisional, wire.NoOffset, true
		s.peer.sentUpTo(s.next)
	} else if ends.Confirmed >= s.next {
		s.provisional = wire.NoOffset
	}
	return nil
}

// confirmable is how much of the log may be called confirmed to the replica.
func (s *sender) confirmable(ends source.Ends) wire.PhyOffset {
	if s.replacing {
		return min(ends.Confirmed, s.next)
	}
	return ends.Confirmed
}

// send sends what there is from next on, at most one batch and never over the
// confirmed end together with what lies behind it. It returns how much that was.
func (s *sender) send(ctx context.Context, ends source.Ends) (wire.ByteSize, error) {
	if s.next < ends.Min && s.segment == nil {
		if s.begun || s.peer.hello.Verified != wire.NoOffset {
			return 0, &goodbye{wirelink.CodeGap, fmt.Sprintf("the log starts at %d, %d is gone", ends.Min, s.next)}
		}
		s.next = ends.Min
		s.peer.begin(s.next)
	}
	limit := ends.Confirmed
	if s.next >= limit {
		limit = ends.Settled
	}
	if s.next >= limit || s.held() {
		return 0, nil
	}
	if ok, err := s.open(); err != nil || !ok {
		return 0, err
	}
	behind := s.peer.behind(ends)
	n := min(s.peer.server.opt.Limits.Piece(s.batch, behind), min(limit, s.segment.End).Sub(s.next))
	if over := s.next.Add(n).Sub(s.segment.Base) % wirelink.PageSize; n == s.batch && over < n {
		n -= over // large frames begin and end with pages, which are copied faster
	}
	if s.next >= ends.Confirmed && s.provisional == wire.NoOffset {
		s.provisional, s.resettled = s.next, ends.Resettled
	}
	began := time.Now()
	size, err := s.transfer(ctx, n, ends)
	if err != nil {
		return 0, fmt.Errorf("send %d bytes at offset %d: %w", n, s.next, err)
	}
	s.packer.spent(n, time.Since(began)+s.spend(size, behind))
	s.next = s.next.Add(n)
	s.begun, s.replacing, s.told.Confirmed = true, false, ends.Confirmed
	if s.next == s.segment.End {
		s.close() // not kept until there is more: it may be deleted meanwhile
	}
	return n, nil
}

// open makes segment the one that holds next. false says that there is none now.
func (s *sender) open() (bool, error) {
	if s.segment != nil && s.next >= s.segment.Base && s.next < s.segment.End {
		return true, nil
	}
	s.close()
	seg, err := s.src.OpenSegment(s.next)
	if errors.Is(err, source.ErrNoSegment) {
		return false, nil
	}
	s.segment = seg
	return err == nil, err
}

// transfer sends one frame, and returns how many bytes that was. The checksum of a large body is made from the mapped
// bytes, and the kernel sends the same pages. Provisional bytes may change
// meanwhile, so they are always copied first.
func (s *sender) transfer(ctx context.Context, n wire.ByteSize, ends source.Ends) (size wire.ByteSize, err error) {
	off := s.next.Sub(s.segment.Base)
	if s.packer.wants() {
		frame, err := s.pack(off, n, ends)
		if err != nil {
			return 0, err
		}
		if frame != nil {
			return wire.ByteSize(len(frame)), s.frame(ctx, n, ends, func() error {
				_, err := s.peer.conn.Write(frame)
				return err
			})
		}
	}
	copied := s.pump == nil || n <= smallBody || s.next >= ends.Confirmed
	err = commitlog.Guard(func() error {
		body := s.segment.Bytes()[off : off+n]
		if copied {
			s.out = append(s.out[:wirelink.TransferHeadSize], body...)
			body = s.out[wirelink.TransferHeadSize:]
		}
		s.out = wirelink.AppendTransfer(s.out[:0], s.next, ends.Confirmed, body)
		return nil
	})
	if err != nil {
		return 0, err
	}
	if copied {
		s.out = s.out[:wirelink.TransferHeadSize+int(n)]
	}
	return n, s.frame(ctx, n, ends, func() error {
		if copied {
			_, err := s.peer.conn.Write(s.out)
			return err
		}
		return s.pump.send(s.out, s.segment.File, int64(off), int(n))
	})
}

// pack copies the next n bytes and compresses them. The frame is nil where that
// gains nothing.
func (s *sender) pack(off, n wire.ByteSize, ends source.Ends) (frame []byte, err error) {
	err = commitlog.Guard(func() error {
		s.packer.body = append(s.packer.body[:0], s.segment.Bytes()[off:off+n]...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.packer.pack(s.next, ends.Confirmed)
}

// frame sends the frame of the next n bytes.
func (s *sender) frame(ctx context.Context, n wire.ByteSize, ends source.Ends, send func() error) error {
	// Before, not after: the replica may report while the write still returns.
	s.peer.sentUpTo(s.next.Add(n))
	if end := s.next.Add(n); end <= ends.Confirmed && s.peer.watch.Idle() { // what is not confirmed is not acked
		s.peer.watch.Mark(end, time.Now())
	}
	s.peer.server.opt.Traffic.Frame(n)
	return s.peer.frame(ctx, send)
}

// heartbeat tells where the log begins and ends.
func (s *sender) heartbeat(ctx context.Context, ends source.Ends) error {
	if err := s.peer.server.admit(); err != nil {
		return err
	}
	h := &wirelink.Heartbeat{Min: ends.Min, Confirmed: s.confirmable(ends), Visible: ends.Visible}
	h.Min = min(h.Min, h.Confirmed) // a segment that is gone may still be sent
	if err := s.peer.write(ctx, h); err != nil {
		return err
	}
	s.told, s.beat = source.Ends{Min: h.Min, Confirmed: h.Confirmed}, time.Now()
	return nil
}
