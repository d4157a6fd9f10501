package stock_test

import (
	"bytes"
	"io"
	"net"
	"testing"

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
		if err := discard(p.conn, int64(end)-1+frames*ha.HeaderSize); err != nil && err != io.EOF {
			b.Fatal(err)
		}
		if err := p.conn.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(frames), "frames/op")
}
