package stock_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// discard reads n bytes as fast as it can.
func discard(conn net.Conn, n int64) error {
	buf := make([]byte, 512<<10)
	for n > 0 {
		got, err := conn.Read(buf)
		if n -= int64(got); err != nil && n > 0 {
			return err
		}
	}
	return nil
}

func BenchmarkHAServer(b *testing.B) {
	const size = 64 * wire.MiB
	l := newServedLog(b, size, 0)
	for range 4 {
		l.grow(8 * wire.MiB)
		l.roll()
	}
	end := l.writer.End()
	frames := int64(end) / int64(ha.StockBatch)
	addr := serveHA(b, l.options())
	b.SetBytes(int64(end) - 1)
	b.ReportAllocs()
	for b.Loop() {
		p := dialHA(b, addr, 1)
		if err := discard(p.conn, int64(end)-1+frames*ha.HeaderSize); err != nil && !errors.Is(err, io.EOF) {
			b.Fatal(err)
		}
		if err := p.conn.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(frames), "frames/op")
}
