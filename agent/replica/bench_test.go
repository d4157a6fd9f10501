package replica

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// copyPath is what a stream from a stock broker does to a store: pieces of 32 KiB
// (bodies of frames) in batches of 512 KiB (reads of the socket), over and over.
type copyPath struct {
	s     *Store
	log   *sourceLog
	at    wire.PhyOffset
	bufs  [][]byte
	piece wire.ByteSize
	batch wire.ByteSize
}

// newCopyPath makes a log of messages of about the given size that fills one
// segment; offsets are patched in as it goes.
func newCopyPath(tb testing.TB, segment wire.ByteSize, body int) *copyPath {
	c := &copyPath{piece: 32 * wire.KiB, batch: 512 * wire.KiB}
	log := &sourceLog{size: segment}
	for {
		m := forge.Message{Topic: "bench", Body: make([]byte, body), Properties: "KEYS\x01k\x02", StoreTimestamp: 1_700_000_000_000}
		for i := range m.Body {
			m.Body[i] = byte(i)
		}
		room := log.size - wire.ByteSize(len(log.bytes))
		if m.Size()+8 > room {
			log.bytes = append(forge.AppendBlank(log.bytes, room), make([]byte, room-8)...)
			break
		}
		log.bounds = append(log.bounds, log.end())
		log.bytes = forge.AppendMessage(log.bytes, m, log.end())
	}
	c.log = log
	c.s = openStore(tb, Options{Dir: tb.TempDir(), SegmentSize: segment})
	if err := c.s.Begin(0); err != nil {
		tb.Fatal(err)
	}
	c.bufs = make([][]byte, 0, 64)
	return c
}

// step appends and verifies one batch.
func (c *copyPath) step(tb testing.TB) {
	from := c.at.Sub(c.at.SegmentBase(c.log.size))
	to := min(from+c.batch, c.log.size)
	c.bufs = c.bufs[:0]
	for at := from; at < to; at += c.piece {
		c.bufs = append(c.bufs, c.log.bytes[at:min(at+c.piece, to)])
	}
	if err := c.s.Append(c.at, c.bufs); err != nil {
		tb.Fatal(err)
	}
	c.at = c.at.Add(to - from)
	if err := c.s.Verify(c.at); err != nil {
		tb.Fatal(err)
	}
}

// nextSegment patches the log for the next segment, and lets go of the one
// that is full.
func (c *copyPath) nextSegment(tb testing.TB) {
	for _, at := range c.log.bounds {
		p := c.log.bytes[at+28:]
		for i := range 8 {
			p[i] = byte(c.at.Add(wire.ByteSize(at)) >> (56 - 8*i))
		}
	}
	if err := c.s.sync(); err != nil {
		tb.Fatal(err)
	}
	if _, err := c.s.DropBefore(c.at); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkAppendVerify(b *testing.B) {
	for _, body := range []int{100, 1 << 10, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("body=%d", body), func(b *testing.B) {
			c := newCopyPath(b, 64*wire.MiB, body)
			b.SetBytes(int64(c.batch))
			b.ReportAllocs()
			// Time of the processor is what a busy machine leaves comparable.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var cpu time.Duration
			var bytes wire.ByteSize
			for b.Loop() {
				if c.at > 0 && c.at == c.at.SegmentBase(c.log.size) {
					b.StopTimer()
					c.nextSegment(b)
					b.StartTimer()
				}
				before, at := threadTime(b), c.at
				c.step(b)
				cpu += threadTime(b) - before
				bytes += c.at.Sub(at)
			}
			b.StopTimer()
			b.ReportMetric(float64(bytes)/float64(cpu), "GB/cpu-s")
			closeStore(b, c.s)
		})
	}
}

// threadTime returns the processor time of this thread, in the kernel too.
func threadTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCopyPathDoesNotAllocate in steady state, which is within a segment.
func TestCopyPathDoesNotAllocate(t *testing.T) {
	c := newCopyPath(t, 64*wire.MiB, 1<<10)
	c.step(t)
	if n := testing.AllocsPerRun(100, func() { c.step(t) }); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
	closeStore(t, c.s)
}
