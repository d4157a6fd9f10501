package link

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	next        wire.PhyOffset
	provisional wire.PhyOffset // start of what was sent above the confirmed end; NoOffset: nothing
	resettled   uint64         // of the ends when that was sent
	told        source.Ends    // what the replica knows
	incarnation uint64
	last        time.Time // of the last frame
	segment     *source.Segment
	out         []byte
}

func newSender(p *logPeer, from wire.PhyOffset) *sender {
	return &sender{peer: p, src: p.server.opt.Source, batch: p.server.opt.Batch, next: from, provisional: wire.NoOffset,
		incarnation: p.server.opt.Source.Incarnation(), out: make([]byte, 0, int(smallBody)+wirelink.TransferHeadSize)}
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
	defer s.close()
	for {
		ends := s.src.Ends()
		if s.src.Incarnation() != s.incarnation {
			return &goodbye{wirelink.CodeSourceChanged, "the log is not what it was; ask anew"}
		}
		s.settle(ends)
		n, err := s.send(ctx, ends)
		if err != nil {
			return err
		}
		if n > 0 && ctx.Err() == nil {
			continue
		}
		if err := s.heartbeat(ctx, ends); err != nil {
			return err
		}
		timer.Reset(s.pause(ends))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-timer.C:
		}
	}
}

// pause is how long nothing is looked at unless the log moves.
func (s *sender) pause(ends source.Ends) time.Duration {
	left := max(s.peer.server.opt.Timing.Heartbeat-time.Since(s.last), time.Millisecond)
	if s.next < ends.Settled { // its segment is missing
		left = min(left, missingPause)
	}
	return left
}

// settle goes back to where provisional bytes began if they are not what they
// were, and forgets them once they are confirmed.
func (s *sender) settle(ends source.Ends) {
	if s.provisional == wire.NoOffset {
		return
	}
	if ends.Resettled != s.resettled {
		s.next, s.provisional = s.provisional, wire.NoOffset
		return
	}
	if ends.Confirmed >= s.next {
		s.provisional = wire.NoOffset
	}
}

// send sends what there is from next on, at most one batch and never over the
// confirmed end together with what lies behind it. It returns how much that was.
func (s *sender) send(ctx context.Context, ends source.Ends) (wire.ByteSize, error) {
	if s.next < ends.Min && s.segment == nil {
		if s.peer.hello.Verified == wire.NoOffset && s.told == (source.Ends{}) {
			s.next = ends.Min
		} else {
			return 0, &goodbye{wirelink.CodeGap, fmt.Sprintf("the log starts at %d, %d is gone", ends.Min, s.next)}
		}
	}
	limit := ends.Confirmed
	if s.next >= limit {
		limit = ends.Settled
	}
	if s.next >= limit {
		return 0, nil
	}
	if ok, err := s.open(); err != nil || !ok {
		return 0, err
	}
	n := min(s.batch, min(limit, s.segment.End).Sub(s.next))
	if s.next >= ends.Confirmed && s.provisional == wire.NoOffset {
		s.provisional, s.resettled = s.next, ends.Resettled
	}
	if err := s.transfer(ctx, n, ends); err != nil {
		return 0, fmt.Errorf("send %d bytes at offset %d: %w", n, s.next, err)
	}
	s.next = s.next.Add(n)
	s.told, s.last = ends, time.Now()
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

// transfer sends one frame. The checksum is made from the mapped bytes, and the
// kernel sends the same pages.
func (s *sender) transfer(ctx context.Context, n wire.ByteSize, ends source.Ends) error {
	off := s.next.Sub(s.segment.Base)
	err := commitlog.Guard(func() error {
		body := s.segment.Bytes()[off : off+n]
		s.out = wirelink.AppendTransfer(s.out[:0], s.next, ends.Confirmed, body)
		if n <= smallBody {
			s.out = append(s.out, body...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Before, not after: the replica may report while the write still returns.
	s.peer.mu.Lock()
	s.peer.sent = max(s.peer.sent, s.next.Add(n))
	s.peer.mu.Unlock()
	return s.peer.frame(ctx, func() error { return s.write(int64(off), int64(n)) })
}

// write sends the head, and the body behind it where the head does not hold it.
func (s *sender) write(off, n int64) error {
	if _, err := s.peer.conn.Write(s.out); err != nil || wire.ByteSize(n) <= smallBody {
		return err
	}
	if _, err := s.segment.File.Seek(off, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyN(s.peer.conn, s.segment.File, n) // sendfile where the connection is plain TCP
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("segment %s was cut short: %w", s.segment.File.Name(), io.ErrUnexpectedEOF)
	}
	return err
}

// heartbeat tells where the log begins and ends: at once when that moves without
// bytes to send, and after a while of silence.
func (s *sender) heartbeat(ctx context.Context, ends source.Ends) error {
	news := ends.Min != s.told.Min || ends.Confirmed != s.told.Confirmed || s.last.IsZero()
	if !news && time.Since(s.last) < s.peer.server.opt.Timing.Heartbeat {
		return nil
	}
	if p := s.peer.server.opt.Admit(); p != nil {
		return &goodbye{wirelink.CodeNotMaster, p.Reason}
	}
	h := &wirelink.Heartbeat{Min: ends.Min, Confirmed: ends.Confirmed, Visible: ends.Visible}
	if err := s.peer.write(ctx, h); err != nil {
		return err
	}
	s.told, s.last = ends, time.Now()
	return nil
}
