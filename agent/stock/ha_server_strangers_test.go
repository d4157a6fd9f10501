package stock_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"

	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// Fault 4: strangers cost nothing, and nobody else notices.
func TestFault4_HAServerBoundsStrangers(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(10_000)
	opt := l.options()
	opt.MaxConns = 200
	addr := serveHA(t, opt)
	good := dialHA(t, addr, l.writer.End())
	l.awaitRequests(1)
	random := rand.New(rand.NewPCG(5, 6))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var strangers []*haPeer
	for i := range 100 {
		b := []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		switch i % 4 {
		case 0:
			b = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
		case 1:
			b = make([]byte, random.IntN(3000))
			for k := range b {
				b[k] = byte(random.Uint32())
			}
		case 2:
			b = []byte{0, 0, 0} // and never more
		}
		p := dialHA(t, addr)
		p.write(b)
		strangers = append(strangers, p)
		end := l.writer.End()
		l.grow(1)
		good.take(end, l.writer.End(), l.size, ha.StockBatch)
		good.report(l.writer.End())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 4<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	for _, p := range strangers {
		if err := p.conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l.await(func(r []haReport, closes []error) bool { return len(closes) == len(strangers) })
	for _, r := range l.seen() {
		if !r.request && r.off > l.writer.End() {
			t.Errorf("a stranger moved the acknowledgement to %d of %d", r.off, l.writer.End())
		}
	}
}

func TestHAServerBoundsConnections(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(1000)
	opt := l.options()
	opt.MaxConns = 2
	addr := serveHA(t, opt)
	first, second := dialHA(t, addr, 1), dialHA(t, addr, 1)
	l.awaitRequests(2)
	dialHA(t, addr, 1).ended()
	l.awaitClose(1, serve.ErrTooManyConns)
	for _, p := range []*haPeer{first, second} {
		p.take(1, l.writer.End(), l.size, ha.StockBatch)
	}
	if err := first.conn.Close(); err != nil {
		t.Fatal(err)
	}
	l.awaitClose(2, io.EOF)
	dialHA(t, addr, 1).take(1, l.writer.End(), l.size, ha.StockBatch)
}

// A server ends within patience though its slaves neither read nor speak.
func TestHAServerEndsWithStuckSlaves(t *testing.T) {
	l := newServedLog(t, 16*wire.MiB, 0)
	for range 2 {
		l.grow(wire.MiB)
		l.roll()
	}
	opt := l.options()
	server := startHA(opt)
	for range 4 {
		dialHA(t, opt.Listener.Addr().String(), 1)
	}
	dialHA(t, opt.Listener.Addr().String())
	l.awaitRequests(4)
	server.stop(t)
	// The silent one may not even have been accepted.
	l.await(func(_ []haReport, closes []error) bool { return len(closes) >= 4 })
	for i := range 4 {
		l.awaitClose(i+1, nil)
	}
}

func TestHAServerRefusesImpossibleOptions(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	good := l.options()
	defer good.Listener.Close()
	for name, spoil := range map[string]func(*stock.HAServerOptions){
		"no listener":    func(o *stock.HAServerOptions) { o.Listener = nil },
		"no end":         func(o *stock.HAServerOptions) { o.End = nil },
		"no directory":   func(o *stock.HAServerOptions) { o.CommitLogDir = "" },
		"no size":        func(o *stock.HAServerOptions) { o.SegmentSize = 0 },
		"negative batch": func(o *stock.HAServerOptions) { o.Batch = -1 },
		"huge batch":     func(o *stock.HAServerOptions) { o.Batch = ha.MaxBody + 1 },
		"negative time":  func(o *stock.HAServerOptions) { o.Heartbeat = -1 },
	} {
		opt := good
		spoil(&opt)
		if err := stock.NewHAServer(opt).Run(t.Context()); err == nil || errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
