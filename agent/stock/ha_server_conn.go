package stock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// How often a connection looks for more while it has nothing to send.
const (
	pollNear    = 250 * time.Microsecond // just behind traffic
	pollIdle    = 10 * time.Millisecond  // longest without Listen
	pollMissed  = 100 * time.Millisecond // longest with Listen: wake-ups may get lost
	pollMissing = 100 * time.Millisecond // while there is no segment to read from
)

// groupSize is how much of the log one pair of system calls moves: several
// frames share their cost, and it stays in the cache of one core.
const groupSize = 512 * wire.KiB

// haConn is one slave.
type haConn struct {
	opt     HAServerOptions
	conn    net.Conn
	request chan wire.PhyOffset // one slot, filled once

	// sent is the end of what was handed to the socket; the request before that.
	sent atomic.Int64

	// What follows belongs to write.

	next  wire.PhyOffset // of the next body
	file  *os.File       // the segment that holds next, nil where it is to be opened
	base  wire.PhyOffset // its first offset
	body  []byte         // bytes of the log, for several frames
	heads []byte         // their headers
	parts [][]byte       // both, in the order in which they are sent
	out   net.Buffers    // what of parts is still to be sent

	arrived bool      // it was sent everything once
	due     time.Time // no log is sent before, for the sake of the limits
}

// serveHA serves one slave to its end, which is always an error.
func serveHA(ctx context.Context, conn net.Conn, opt HAServerOptions) error {
	c := &haConn{opt: opt, conn: conn, request: make(chan wire.PhyOffset, 1)}
	return serve.Together(ctx, conn, c.read, c.write)
}

// read takes the slave's reports until the connection ends. It never touches a
// file, so that a slow disk cannot make a good slave look silent.
func (c *haConn) read(ctx context.Context) error {
	reports := ha.NewReportReader(serve.PatientReader{Conn: c.conn, Silence: c.opt.Housekeeping})
	request, err := reports.First()
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if err := c.opt.Admit(ctx, c.conn.RemoteAddr(), request); err != nil {
		return err
	}
	c.sent.Store(int64(request))
	c.opt.OnReport(c.conn.RemoteAddr(), request, true)
	c.request <- request
	for {
		off, err := reports.Next()
		if err != nil {
			return fmt.Errorf("reports: %w", err)
		}
		end := c.opt.End()
		if end < 0 {
			continue // nothing was sent, and nobody knows whether there is so much
		}
		if off > end {
			return fmt.Errorf("%w: %d of %d", ErrAheadOfLog, off, end)
		}
		c.opt.OnReport(c.conn.RemoteAddr(), min(off, wire.PhyOffset(c.sent.Load())), false)
	}
}

// write sends frames and heartbeats until the connection ends.
func (c *haConn) write(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, c.closeFile()) }()
	w := c.newWaiter()
	defer w.stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case c.next = <-c.request:
	}
	last := time.Now() // of the last frame
	for resolved := c.next != 0; ctx.Err() == nil; {
		end := c.opt.End()
		if !resolved && end >= 0 {
			c.next, resolved = c.start(end)
		}
		n, missing, now := wire.ByteSize(0), false, time.Now()
		if resolved && !now.Before(c.due) {
			if n, missing, err = c.send(end); err != nil {
				return err
			}
		}
		now = time.Now()
		if n > 0 {
			last = now
			continue
		}
		idle := now.Sub(last)
		if idle >= c.opt.Heartbeat && resolved {
			if err := c.heartbeat(); err != nil {
				return err
			}
			last = now
			continue
		}
		w.wait(ctx, idle, missing, c.due.Sub(now))
	}
	return ctx.Err()
}

// start returns where a slave begins that has nothing; false where that is not
// known yet.
func (c *haConn) start(end wire.PhyOffset) (wire.PhyOffset, bool) {
	if c.opt.Start == nil {
		return end.SegmentBase(c.opt.SegmentSize), true
	}
	first := c.opt.Start()
	return max(first, 0), first >= 0 && first <= end
}

// waiter waits for the log to grow.
type waiter struct {
	moved     <-chan struct{} // nil: poll
	stop      func()
	timer     *time.Timer
	heartbeat time.Duration
}

func (c *haConn) newWaiter() waiter {
	w := waiter{stop: func() {}, timer: time.NewTimer(time.Hour), heartbeat: c.opt.Heartbeat}
	if c.opt.Listen != nil {
		w.moved, w.stop = c.opt.Listen()
	}
	return w
}

// wait returns when it is time to look again. The longer it has been idle, the
// longer it waits; where the segment is missing, or the limits hold the log back,
// growth of the log is no reason.
func (w waiter) wait(ctx context.Context, idle time.Duration, missing bool, held time.Duration) {
	moved := w.moved
	pause := min(max(idle/64, pollNear), pollIdle)
	switch {
	case missing:
		moved, pause = nil, pollMissing
	case held > 0:
		moved, pause = nil, held
	case moved != nil:
		pause = pollMissed
	}
	if left := w.heartbeat - idle; left > 0 {
		pause = min(pause, left)
	}
	w.timer.Reset(pause)
	select {
	case <-ctx.Done():
	case <-moved:
	case <-w.timer.C:
	}
}

// send sends what there is between next and end, up to one group of frames and
// the end of the segment, and returns how much that was. missing says that
// there is no segment to take it from.
func (c *haConn) send(end wire.PhyOffset) (n wire.ByteSize, missing bool, err error) {
	if c.next >= end {
		c.arrived = true
		return 0, false, nil
	}
	if ok, err := c.open(); err != nil || !ok {
		return 0, true, err
	}
	last := c.base.Add(c.opt.SegmentSize)
	behind := !c.arrived || end.Sub(c.next) > inSync
	n = min(min(end, last).Sub(c.next), c.opt.Limits.Piece(wire.ByteSize(len(c.body)), behind))
	body := c.body[:n]
	got, err := c.file.ReadAt(body, int64(c.next.Sub(c.base)))
	if got < len(body) {
		if errors.Is(err, io.EOF) {
			err = ErrCutShort
		}
		return 0, false, fmt.Errorf("read %d bytes at offset %d of %s: %w", n, c.next, c.file.Name(), err)
	}
	if err := c.frames(body); err != nil {
		return 0, false, fmt.Errorf("send %d bytes at offset %d: %w", n, c.next, err)
	}
	if wait := c.opt.Limits.Spend(n, behind); wait > 0 {
		c.due = time.Now().Add(wait)
	}
	c.next = c.next.Add(n)
	if c.next == last {
		// Not kept until there is more: it may be deleted meanwhile.
		return n, false, c.closeFile()
	}
	return n, false, nil
}

// frames sends the bytes at next, cut into frames.
func (c *haConn) frames(body []byte) error {
	batch := int(c.opt.Batch)
	heads, parts := c.heads[:0], c.parts[:0]
	for at := 0; at < len(body); at += batch {
		piece := body[at:min(at+batch, len(body))]
		start := len(heads)
		heads = ha.AppendHeader(heads, ha.Header{PhyOffset: c.next.Add(wire.ByteSize(at)), BodySize: wire.ByteSize(len(piece))})
		parts = append(parts, heads[start:], piece)
		c.opt.Traffic.Frame(wire.ByteSize(len(piece)))
	}
	// Before, not after: the slave may acknowledge while the write still returns.
	c.sent.Store(int64(c.next.Add(wire.ByteSize(len(body)))))
	c.out = parts
	_, err := c.out.WriteTo(c.conn)
	return err
}

func (c *haConn) heartbeat() error {
	c.heads = ha.AppendHeader(c.heads[:0], ha.Header{PhyOffset: c.next})
	if _, err := c.conn.Write(c.heads); err != nil {
		return fmt.Errorf("heartbeat at offset %d: %w", c.next, err)
	}
	return nil
}

// open makes file the segment that holds next. false says that there is none of
// full length.
func (c *haConn) open() (bool, error) {
	if c.file != nil {
		return true, nil // closed at its end, so it is the right one
	}
	base := c.next.SegmentBase(c.opt.SegmentSize)
	f, err := openSegment(c.opt.CommitLogDir, base, c.opt.SegmentSize)
	if f == nil {
		return false, err
	}
	c.file, c.base = f, base
	if c.body == nil {
		frames := max(1, int(groupSize/c.opt.Batch))
		c.body = make([]byte, frames*int(c.opt.Batch))
		c.heads = slices.Grow(c.heads[:0], frames*ha.HeaderSize)
		c.parts = make([][]byte, 0, 2*frames)
	}
	return true, nil
}

// openSegment opens the segment that starts at base. It returns nil without an
// error where there is none of full length, such as one that is just being born.
func openSegment(dir string, base wire.PhyOffset, size wire.ByteSize) (*os.File, error) {
	// O_NONBLOCK keeps a FIFO of that name from holding us up.
	f, err := os.OpenFile(filepath.Join(dir, commitlog.Name(base)), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || wire.ByteSize(info.Size()) != size {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (c *haConn) closeFile() error {
	if c.file == nil {
		return nil
	}
	err := c.file.Close()
	c.file = nil
	if err != nil {
		return fmt.Errorf("close segment: %w", err)
	}
	return nil
}
