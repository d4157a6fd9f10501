package stock_test

import (
	"bytes"
	"crypto/sha256"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

func TestHAServerSendsFromExactlyWhereAsked(t *testing.T) {
	const size = 64 * wire.KiB
	l := newServedLog(t, size, 3*wire.PhyOffset(size))
	l.grow(3*size + size/2)
	end := l.writer.End()
	addr := serveHA(t, l.options())
	for name, from := range map[string]wire.PhyOffset{
		"first byte":       l.writer.Min(),
		"inside a message": l.writer.Min() + 1,
		"last of segment":  l.writer.Min().Add(size) - 1,
		"segment start":    l.writer.Min().Add(size),
		"last byte":        end - 1,
	} {
		t.Run(name, func(t *testing.T) {
			p := dialHA(t, addr, from)
			if got := p.take(from, end, size, ha.StockBatch); !bytes.Equal(got, l.bytes(from, end)) {
				t.Error("other bytes than the log's")
			}
		})
	}
}

// Faults 10, 11: a request of 0 means the last segment, and only it does.
func TestFault11_HAServerStartsAtTheLastSegmentForZero(t *testing.T) {
	const size = 64 * wire.KiB
	l := newServedLog(t, size, 0)
	addr := serveHA(t, l.options())
	early := dialHA(t, addr, 0) // while there is nothing
	l.grow(1000)
	if got := early.take(0, l.writer.End(), size, ha.StockBatch); !bytes.Equal(got, l.bytes(0, l.writer.End())) {
		t.Error("empty log: other bytes")
	}
	l.grow(2 * size)
	base, end := l.writer.End().SegmentBase(size), l.writer.End()
	if got := dialHA(t, addr, 0).take(base, end, size, ha.StockBatch); !bytes.Equal(got, l.bytes(base, end)) {
		t.Error("request 0: other bytes than the last segment's")
	}
	if got := dialHA(t, addr, 1).take(1, end, size, ha.StockBatch); !bytes.Equal(got, l.bytes(1, end)) {
		t.Error("request 1: other bytes than all from 1 on")
	}
	l.roll() // now the last segment is empty
	base = l.writer.End().SegmentBase(size)
	p := dialHA(t, addr, 0)
	l.awaitRequests(4)
	l.grow(1000)
	if got := p.take(base, l.writer.End(), size, ha.StockBatch); !bytes.Equal(got, l.bytes(base, l.writer.End())) {
		t.Error("end at the end of a segment: other bytes than the next one's")
	}
}

// Faults 2, 3: frames keep within a batch and a segment, whatever the batch.
func TestFault3_HAServerFramesAreBounded(t *testing.T) {
	const size = 64 * wire.KiB
	l := newServedLog(t, size, 0)
	l.grow(5 * size / 2)
	for _, batch := range []wire.ByteSize{1, 13, 1000, 32*wire.KiB - 1, 40 * wire.KiB, 300 * wire.KiB, ha.MaxBody} {
		t.Run(batch.String(), func(t *testing.T) {
			opt := l.options()
			opt.Batch = batch
			from := wire.PhyOffset(1)
			if batch < 1000 {
				from = l.writer.End().SegmentBase(size).Add(-3000)
			}
			p := dialHA(t, serveHA(t, opt), from)
			if got := p.take(from, l.writer.End(), size, batch); !bytes.Equal(got, l.bytes(from, l.writer.End())) {
				t.Error("other bytes than the log's")
			}
		})
	}
}

// I1: nothing beyond the confirmed end is sent, wherever it stands.
func TestI1_HAServerSendsConfirmedBytesOnly(t *testing.T) {
	const size = 64 * wire.KiB
	l := newServedLog(t, size, 0)
	l.grow(4 * size)
	rapid.Check(t, func(rt *rapid.T) {
		var end atomic.Int64
		opt := l.options()
		moved := make(chan struct{}, 1)
		opt.Listen = func() (<-chan struct{}, func()) { return moved, func() {} }
		opt.End = func() wire.PhyOffset { return wire.PhyOffset(end.Load()) }
		from := wire.PhyOffset(rapid.Int64Range(1, int64(l.writer.End())).Draw(rt, "from"))
		end.Store(int64(from))
		server := startHA(opt)
		defer server.stop(t)
		p := dialHA(t, opt.Listener.Addr().String(), from)
		for at := from; at < l.writer.End(); {
			next := min(at+wire.PhyOffset(rapid.Int64Range(1, int64(size)+10).Draw(rt, "step")), l.writer.End())
			end.Store(int64(next))
			moved <- struct{}{}
			if !bytes.Equal(p.take(at, next, size, ha.StockBatch), l.bytes(at, next)) {
				rt.Fatalf("other bytes in [%d, %d)", at, next)
			}
			at = next
		}
	})
}

// Three slaves at once get all of a log that grows and rolls while it is served.
func TestHAServerServesSlavesWhileTheLogRolls(t *testing.T) {
	const size = 64 * wire.KiB
	l := newServedLog(t, size, 0)
	addr := serveHA(t, l.options())
	var slaves sync.WaitGroup
	end := make(chan wire.PhyOffset)
	for i := range 3 {
		p := dialHA(t, addr, 1)
		slaves.Go(func() {
			h := sha256.New()
			for at := wire.PhyOffset(1); ; {
				select {
				case last := <-end:
					h.Write(p.take(at, last, size, ha.StockBatch))
					if !bytes.Equal(h.Sum(nil), l.sum(1, last)) {
						t.Errorf("slave %d: other bytes than the log's", i)
					}
					p.report(last)
					return
				default:
				}
				f, body := p.frame()
				if f.PhyOffset != at || f.End() > at.SegmentBase(size).Add(size) {
					t.Errorf("slave %d: frame [%d, %d) at %d", i, f.PhyOffset, f.End(), at)
				}
				h.Write(body)
				at = f.End()
				p.report(at)
			}
		})
	}
	for range 20 {
		l.grow(size / 3)
		l.roll()
	}
	l.grow(1)
	for range 3 {
		end <- l.writer.End()
	}
	slaves.Wait()
	l.await(func(reports []haReport, _ []error) bool {
		n := 0
		for _, r := range reports {
			if r.off == l.writer.End() {
				n++
			}
		}
		return n >= 3
	})
}

// Fault 9: of glued reports the last counts, a torn one counts when it is whole.
func TestFault9_HAServerReportsAreWhole(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(10_000)
	end := l.writer.End()
	p := dialHA(t, serveHA(t, l.options()), end)
	l.awaitRequests(1)
	p.report(end-5, end-4, end-3, end-2, end-1)
	l.await(func(r []haReport, _ []error) bool { return r[len(r)-1].off == end-1 })
	torn := ha.AppendReport(nil, end)
	p.write(torn[:3])
	p.write(torn[3:])
	l.await(func(r []haReport, _ []error) bool { return r[len(r)-1].off == end })
	// Cut off in the middle of a report.
	p.write(ha.AppendReport(nil, 77)[:7])
	if tcp, ok := p.conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.conn.Close(); err != nil {
		t.Fatal(err)
	}
	l.await(func(_ []haReport, closes []error) bool { return len(closes) == 1 })
	for i, r := range l.seen() {
		if r.request != (i == 0) || r.off < end-5 || r.off > end {
			t.Errorf("report %d: %+v", i, r)
		}
	}
}

// What a slave reports behind its request in the same write is no request.
func TestFault9_HAServerTakesTheFirstValueAsRequest(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(10_000)
	p := dialHA(t, serveHA(t, l.options()), 1, 5)
	if h, _ := p.frame(); h.PhyOffset != 1 {
		t.Errorf("first frame at %d", h.PhyOffset)
	}
	l.await(func(r []haReport, _ []error) bool { return len(r) == 2 })
	got := l.seen()
	if got[0] != (haReport{1, true}) || got[1].request || got[1].off < 1 || got[1].off > 5 {
		t.Errorf("reports %v", got)
	}
}

// Fault 20: a later report above the end closes the connection and moves nothing;
// the first one is a request and closes nothing.
func TestFault20_HAServerDropsASlaveThatIsAhead(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(10_000)
	end := l.writer.End()
	addr := serveHA(t, l.options())
	p := dialHA(t, addr, end)
	p.report(end + 1)
	p.ended()
	l.awaitClose(1, stock.ErrAheadOfLog)
	if got := l.seen(); len(got) != 1 {
		t.Errorf("reports %v", got)
	}
	p = dialHA(t, addr, end+1)
	l.awaitRequests(2)
	p.report(end)
	l.await(func(r []haReport, _ []error) bool { return len(r) == 3 })
}

// I3: an acknowledgement never exceeds what the connection was sent.
func TestI3_HAServerCapsReportsAtWhatItSent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		run(t, stock.NewHAServer(opt).Run)
		p := &haPeer{t, ln.dial()} // never reads
		defer p.conn.Close()
		from := l.writer.Min()
		p.report(from)
		l.awaitRequests(1)
		p.report(l.writer.End())
		l.await(func(r []haReport, _ []error) bool { return len(r) == 2 })
		if got := l.seen()[1].off; got > from.Add(l.size) {
			t.Errorf("acknowledged %d, at most %d was sent", got, from.Add(l.size))
		}
	})
}

// Fault 60: a segment that is deleted while it is sent is sent to its end, and
// its descriptor is not kept.
func TestFault60_HAServerFinishesADeletedSegment(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		opt.Batch = 1000
		run(t, stock.NewHAServer(opt).Run)
		from := l.writer.Min()
		want := l.bytes(from, from.Add(l.size))
		p := &haPeer{t, ln.dial()}
		defer p.conn.Close()
		p.report(from)
		got := p.take(from, from+1000, l.size, 1000)
		for range 2 {
			if _, err := l.writer.DropOldest(); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, p.take(from+1000, from.Add(l.size), l.size, 1000)...)
		if !bytes.Equal(got, want) {
			t.Error("other bytes than the deleted segment's")
		}
		// The next one is gone.
		for range 3 {
			if h, _ := p.frame(); !h.Heartbeat() || h.PhyOffset != from.Add(l.size) {
				t.Errorf("%+v", h)
			}
			p.report(from)
		}
		for _, name := range openFiles(t) {
			if strings.Contains(name, l.dir) && strings.HasSuffix(name, "(deleted)") {
				t.Errorf("still open: %s", name)
			}
		}
	})
}

func openFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if name, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// Fault 73: a segment that is cut short ends its connection, and no other.
func TestFault73_HAServerOutlivesACutSegment(t *testing.T) {
	const size = 4 * wire.MiB
	l := newServedLog(t, size, 0)
	l.grow(size + size/2)
	opt := l.options()
	addr := serveHA(t, opt)
	p := dialHA(t, addr, 1)
	p.frame()
	other := dialHA(t, addr, wire.PhyOffset(size))
	other.take(wire.PhyOffset(size), l.writer.End(), size, ha.StockBatch)
	if err := os.Truncate(filepath.Join(l.dir, commitlog.Name(0)), int64(ha.StockBatch)); err != nil {
		t.Fatal(err)
	}
	// What the socket had taken before may be all of it on some machines; then the
	// next connection meets the short file.
	if !drained(p, wire.PhyOffset(size)) {
		l.awaitClose(1, stock.ErrCutShort)
	}
	end := l.writer.End()
	l.grow(1000)
	other.take(end, l.writer.End(), size, ha.StockBatch)
}

// drained reads until the connection ends and reports whether it got to end.
func drained(p *haPeer, end wire.PhyOffset) bool {
	for {
		h, _, err := readFrame(p.conn)
		if err != nil {
			return false
		}
		if h.End() >= end {
			return true
		}
	}
}

// What is no segment of full length is not served, and does not end anything.
func TestHAServerServesSegmentsOnly(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, l *servedLog, ln *pipeListener, opt stock.HAServerOptions) {
		run(t, stock.NewHAServer(opt).Run)
		first := filepath.Join(l.dir, commitlog.Name(l.writer.Min()))
		saved := filepath.Join(t.TempDir(), "saved")
		if err := os.Rename(first, saved); err != nil {
			t.Fatal(err)
		}
		p, frames := pipePeer(t, ln, l.writer.Min())
		for name, put := range map[string]func() error{
			"symbolic link": func() error { return os.Symlink(saved, first) },
			"pipe":          func() error { return unix.Mkfifo(first, 0o600) },
			"directory":     func() error { return os.Mkdir(first, 0o700) },
			"empty":         func() error { return os.WriteFile(first, nil, 0o600) },
			"short":         func() error { return os.WriteFile(first, make([]byte, 100), 0o600) },
		} {
			if err := put(); err != nil {
				t.Fatal(err)
			}
			if f := <-frames; f.err != nil || !f.Heartbeat() {
				t.Errorf("%s: %+v", name, f)
			}
			if err := os.Remove(first); err != nil {
				t.Fatal(err)
			}
			if f := <-frames; f.err != nil || !f.Heartbeat() {
				t.Errorf("nothing: %+v", f)
			}
			p.report(0)
		}
		if err := os.Rename(saved, first); err != nil {
			t.Fatal(err)
		}
		if f := <-frames; f.Heartbeat() || f.PhyOffset != l.writer.Min() {
			t.Errorf("back again: %+v", f.Header)
		}
	})
}
