package stock_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// fakeLink is one connection of a slave.
type fakeLink struct {
	m       *fakeMaster
	n       int
	conn    net.Conn
	request wire.PhyOffset
	gone    chan struct{} // closed when the slave has closed it
	whole   atomic.Int64  // end of the last frame that was handed over whole
}

// run reads the request, plays the script and notes the reports.
func (l *fakeLink) run(script func(*fakeLink)) {
	var head [ha.ReportSize]byte
	defer func() {
		closeAll(l.m.t, l.conn)
		l.m.state.Lock()
		defer l.m.state.Unlock()
		delete(l.m.live, l)
	}()
	if _, err := io.ReadFull(l.conn, head[:]); err != nil {
		close(l.gone)
		return
	}
	off, err := ha.ParseReport(head[:])
	if err != nil {
		l.m.t.Errorf("request: %v", err)
	}
	l.request = off
	l.whole.Store(int64(off))
	l.m.noteEvent(fakeEvent{kind: "request", link: l.n, off: off})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(l.gone)
		for {
			if _, err := io.ReadFull(l.conn, head[:]); err != nil {
				l.m.noteEvent(fakeEvent{kind: "close", link: l.n})
				return
			}
			off, err := ha.ParseReport(head[:])
			if err != nil {
				l.m.t.Errorf("report: %v", err)
			}
			l.m.noteEvent(fakeEvent{kind: "report", link: l.n, off: off})
			l.m.state.Lock()
			onReport := l.m.onReport
			l.m.state.Unlock()
			if onReport != nil {
				onReport(l, off)
			}
		}
	})
	script(l)
	closeAll(l.m.t, l.conn)
	reading.Wait()
}

// await waits for a value, or the end, of ch; false says that the slave is gone.
func (l *fakeLink) await(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-l.gone:
		return false
	}
}

// write hands bytes over; false says that the slave is gone.
func (l *fakeLink) write(b []byte) bool {
	_, err := l.conn.Write(b)
	return err == nil
}

func (l *fakeLink) heartbeat(at wire.PhyOffset) bool {
	return l.write(ha.AppendHeader(nil, ha.Header{PhyOffset: at}))
}

// send sends the log's bytes [from, to) as one frame.
func (l *fakeLink) send(from, to wire.PhyOffset) bool {
	body := l.m.bytes(from, to)
	ok := l.write(append(ha.AppendHeader(nil, ha.Header{PhyOffset: from, BodySize: wire.ByteSize(len(body))}), body...))
	if ok {
		l.whole.Store(int64(to))
	}
	return ok
}

// start is where a master begins to serve a request.
func (l *fakeLink) start() wire.PhyOffset {
	if l.request == 0 {
		return l.m.writer.End().SegmentBase(l.m.size)
	}
	return l.request
}

// serve does as a stock master: all there is, and then what comes, in frames of
// the sizes that next tells (32 KiB where nil), which may cross segments.
func (l *fakeLink) serve(next func() wire.ByteSize) { l.serveFrom(l.start(), next) }

func (l *fakeLink) serveFrom(at wire.PhyOffset, next func() wire.ByteSize) {
	moved, stop := l.m.listen()
	defer stop()
	for {
		end := l.m.writer.End()
		if at >= l.m.writer.Min() || at == 1 && l.m.writer.Min() == 0 {
			for at < end {
				n := ha.StockBatch
				if next != nil {
					n = next()
				}
				to := min(end, at.Add(n))
				if next == nil {
					to = min(to, at.SegmentBase(l.m.size).Add(l.m.size))
				}
				if !l.send(at, to) {
					return
				}
				at = to
			}
		}
		select {
		case <-l.gone:
			return
		case <-moved:
		case <-time.After(l.m.beat):
			if !l.heartbeat(at) {
				return
			}
		}
	}
}
