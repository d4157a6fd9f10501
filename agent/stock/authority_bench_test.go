package stock_test

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// endSource is an HA port from which a test sends frames at will. All that it
// sends but the first body, which is true, are zeros.
type endSource struct {
	t    testing.TB
	a    *stock.Authority
	conn net.Conn
	next wire.PhyOffset
	out  []byte
}

// newEndSource returns one to which an Authority is connected, which has proven
// it and waits for the next frame.
func newEndSource(t testing.TB) *endSource {
	t.Helper()
	l := newServedLog(t, wire.MiB, 0)
	l.grow(wire.KiB)
	m := ownMaster(t, l, "ASYNC_MASTER")
	links := make(chan *fakeLink, 1)
	done := make(chan struct{})
	m.play(func(l *fakeLink) {
		links <- l
		<-done
	})
	t.Cleanup(func() { close(done) })
	s := &endSource{t: t, a: listenTo(t, m, seldom), out: make([]byte, ha.HeaderSize+ha.StockBatch)}
	link := <-links
	s.conn, s.next = link.conn, link.request
	l.grow(wire.KiB)
	link.send(s.next, l.writer.End())
	s.next = l.writer.End()
	awaitEnd(t, s.a, s.next)
	return s
}

// frame sends a frame with a body of size bytes.
func (s *endSource) frame(size wire.ByteSize) {
	ha.AppendHeader(s.out[:0], ha.Header{PhyOffset: s.next, BodySize: size})
	s.next = s.next.Add(size)
	if _, err := s.conn.Write(s.out[:ha.HeaderSize+size]); err != nil {
		s.t.Error(err)
	}
}

// await waits for the end to be there.
func (s *endSource) await(moved <-chan struct{}) {
	for s.a.End() != s.next {
		<-moved
	}
}

// Frames cost no memory, however many there are and whoever listens.
func TestAuthority_FramesAllocateNothing(t *testing.T) {
	s := newEndSource(t)
	moved, stop := s.a.Listen()
	defer stop()
	frames := func(n int) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			s.frame(ha.StockBatch)
			s.await(moved)
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / float64(n)
	}
	frames(100)
	if got := frames(2000); got > 0.2 { // others of the process allocate now and then
		t.Errorf("%.2f allocations a frame", got)
	}
}

// BenchmarkAuthority_End is the time from a frame being written to the end being
// known, against the same bytes echoed over loopback.
func BenchmarkAuthority_End(b *testing.B) {
	const size = wire.KiB
	b.Run("frame", func(b *testing.B) {
		s := newEndSource(b)
		moved, stop := s.a.Listen()
		defer stop()
		b.ReportAllocs()
		for b.Loop() {
			s.frame(size)
			s.await(moved)
		}
	})
	b.Run("echo", func(b *testing.B) {
		near, far := tcpPair(b)
		go func() {
			buf := make([]byte, size)
			for {
				if _, err := io.ReadFull(far, buf); err != nil {
					return
				}
				if _, err := far.Write(buf[:1]); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, size)
		for b.Loop() {
			if _, err := near.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(near, buf[:1]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAuthority_Frames is what a busy broker's frames cost.
func BenchmarkAuthority_Frames(b *testing.B) {
	s := newEndSource(b)
	b.SetBytes(int64(ha.StockBatch))
	b.ReportAllocs()
	for b.Loop() {
		s.frame(ha.StockBatch)
	}
	awaitEnd(b, s.a, s.next)
}

// tcpPair returns the two ends of a connection, which are closed with the test.
func tcpPair(t testing.TB) (near, far net.Conn) {
	t.Helper()
	l := listenTCP(t)
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, near, far, l) })
	return near, far
}
