package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// stream keeps an HA connection to the broker. Without one the end is still
// asked for, so that what goes wrong here does not end the session.
func (s *authoritySession) stream(ctx context.Context) error {
	loop := retry.Loop{First: s.a.timing.FirstRetry, Max: s.a.timing.MaxRetry, OnError: s.a.streaming}
	return loop.Run(ctx, s.connection)
}

// connection makes one HA connection and reads it to its end.
func (s *authoritySession) connection(ctx context.Context) (fruitful bool, err error) {
	addr := s.survey.HAAddr
	dial, cancel := context.WithTimeout(ctx, s.a.timing.Patience)
	conn, err := s.a.opt.Dial(dial, "tcp", addr)
	cancel()
	if err != nil {
		return false, fmt.Errorf("connect to HA port: %w", err)
	}
	since := time.Now()
	l := newEndLink(s, conn)
	if err := l.request(ctx, s); err != nil {
		return false, errors.Join(err, serve.Closed(conn.Close()))
	}
	s.a.streaming(nil)
	err = serve.Together(ctx, conn, l.read, l.report)
	// The broker may be gone, and be back with a shorter log. Whoever answers at
	// its remoting port is asked at once.
	s.a.forget()
	wake.Send(s.a.again)
	return time.Since(since) >= s.a.timing.Patience, streamProblem(addr, err)
}

// endLink is an HA connection of which only the headers are looked at.
type endLink struct {
	a       *Authority
	conn    net.Conn
	addr    string
	size    wire.ByteSize // of segments
	discard *discarder

	life   uint64         // in which the connection was made
	asked  wire.PhyOffset // the request, or the last report: what is acknowledged
	expect wire.PhyOffset // where the next frame must be; wire.NoOffset: any segment start, or anywhere
	proven bool           // a body was compared with our files
	head   [ha.HeaderSize]byte
	out    [ha.ReportSize]byte
}

func newEndLink(s *authoritySession, conn net.Conn) *endLink {
	return &endLink{a: s.a, conn: conn, addr: s.survey.HAAddr, size: s.survey.Config.SegmentSize, discard: newDiscarder(conn)}
}

// request asks for what comes behind the broker's present end. The broker takes
// that for an acknowledgement, so it is the end as the broker itself tells it
// now, with the connection made: if it is another broker by now, or has another
// role, nothing is sent.
func (l *endLink) request(ctx context.Context, s *authoritySession) error {
	life, _ := l.a.current()
	ctx, cancel := context.WithTimeout(ctx, 2*l.a.timing.Patience)
	defer cancel()
	now, end, err := s.glance(ctx)
	if err != nil {
		return err
	}
	if !same(now, s.survey) {
		wake.Send(l.a.again)
		return fmt.Errorf("broker %s is not what it was", l.a.opt.Broker.Addr())
	}
	l.a.raise(life, end)
	return l.ask(life, end)
}

// ask sends the request, for what comes behind an offset.
func (l *endLink) ask(life uint64, from wire.PhyOffset) error {
	l.life, l.asked, l.expect = life, from, from
	if from == 0 {
		l.expect = wire.NoOffset // 0 asks for the last segment, whichever that is by now
	}
	return l.send()
}

// anywhere stands for a first frame's offset. A broker that is slow to look takes
// the last of several reports for the request.
const anywhere wire.PhyOffset = wire.NoOffset - 1

// send reports what was asked for: the least that can be claimed.
func (l *endLink) send() error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.a.timing.Heartbeat)); err != nil {
		return fmt.Errorf("report to %s: %w", l.addr, err)
	}
	if _, err := l.conn.Write(ha.AppendReport(l.out[:0], l.asked)); err != nil {
		return fmt.Errorf("report %d to %s: %w", l.asked, l.addr, err)
	}
	return nil
}

// report keeps the broker from dropping a silent slave.
func (l *endLink) report(ctx context.Context) error {
	tick := time.NewTicker(l.a.timing.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := l.send(); err != nil {
				return err
			}
		}
	}
}

// read takes one frame after the other until the connection ends.
func (l *endLink) read(context.Context) error {
	for {
		if err := l.frame(); err != nil {
			return err
		}
	}
}

// frame reads one header and drops the body. The broker announces only what it
// has, so that the end moves before the body is there.
func (l *endLink) frame() error {
	if err := l.conn.SetReadDeadline(time.Now().Add(l.a.timing.Housekeeping)); err != nil {
		return fmt.Errorf("read from %s: %w", l.addr, err)
	}
	if _, err := io.ReadFull(l.conn, l.head[:]); err != nil {
		return fmt.Errorf("read from %s: %w", l.addr, err)
	}
	h, err := ha.ParseHeader(l.head[:], ha.MaxBody)
	if err != nil {
		return err
	}
	if err := l.place(h); err != nil {
		return err
	}
	left := h.BodySize
	if !l.proven && left > 0 {
		n, err := l.prove(h)
		if err != nil {
			return err
		}
		left -= n
	}
	if !h.Heartbeat() {
		l.expect = h.End()
		l.a.raise(l.life, l.expect)
	}
	if err := l.discard.discard(left); err != nil {
		return fmt.Errorf("read from %s: %w", l.addr, err)
	}
	return nil
}

// place checks that a frame is where it must be.
func (l *endLink) place(h ha.Header) error {
	ok := h.PhyOffset == l.expect
	switch l.expect {
	case wire.NoOffset:
		ok = h.PhyOffset == h.PhyOffset.SegmentBase(l.size)
	case anywhere:
		ok, l.expect = true, h.PhyOffset
	}
	if !ok || h.PhyOffset > maxOffset {
		return state.Problemf(state.ProtocolError, "offset_mismatch", "check that "+l.addr+" is the HA port of the local broker, and restart that if this lasts", nil,
			"%s sent offset %d where %d was due", l.addr, h.PhyOffset, l.expect)
	}
	return nil
}

// proofSize is how much of the first body is compared with our files.
const proofSize = 64 * wire.KiB

// prove reads the beginning of a body and compares it with our files: the HA
// port may be another broker's. It returns how much it has read.
func (l *endLink) prove(h ha.Header) (wire.ByteSize, error) {
	n := min(h.BodySize, proofSize)
	theirs, own := make([]byte, n), make([]byte, n)
	if _, err := io.ReadFull(l.conn, theirs); err != nil {
		return 0, fmt.Errorf("read from %s: %w", l.addr, err)
	}
	err := readLog(l.a.opt.CommitLogDir, l.size, h.PhyOffset, own)
	if err != nil || !bytes.Equal(own, theirs) {
		return 0, state.Problemf(state.Incompatible, "other_ha_port", "check --master-ha and haListenPort: "+l.addr+" must be the HA port of the broker whose storePathCommitLog is "+l.a.opt.CommitLogDir, err,
			"%s streams another log than %s: the bytes at offset %d differ", l.addr, l.a.opt.CommitLogDir, h.PhyOffset)
	}
	l.proven = true
	return n, nil
}
