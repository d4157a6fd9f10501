package stock_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// Fault 1: frames may be cut anywhere, also inside of their headers.
func TestFault1_FramesInPieces(t *testing.T) {
	for _, n := range []int{1, 7, 11, 12, 13} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
			m.append(200, 20)
			frame := wire.ByteSize(0)
			m.play(func(l *fakeLink) {
				l.serve(func() wire.ByteSize {
					frame = frame%211 + 1
					return frame
				})
			})
			var s *testSlave
			ready := make(chan struct{})
			honest(m, func() *testSlave { <-ready; return s })
			s = follow(t, m, slaveOptions{dial: pieces(n), beside: n > 7})
			close(ready)
			s.caughtUp(m)
			if got := m.asked(); len(got) != 1 {
				t.Errorf("connected %d times: %v", len(got), got)
			}
		})
	}
}

// Fault 2: a frame that spans segments is split where the segment ends.
func TestFault2_FramesAcrossSegments(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(300 * wire.KiB)
	m.play(func(l *fakeLink) { l.serve(func() wire.ByteSize { return 150 * wire.KiB }) })
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	if got := m.asked(); len(got) != 1 {
		t.Errorf("connected %d times", len(got))
	}
}

// Fault 3: a body larger than any buffer is taken all the same.
func TestFault3_FrameOfFiveMiB(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 16*wire.MiB, 0))
	m.append(2, 4*wire.MiB)
	m.append(100, 1000)
	m.play(func(l *fakeLink) { l.serve(func() wire.ByteSize { return 5 * wire.MiB }) })
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	if got := m.asked(); len(got) != 1 {
		t.Errorf("connected %d times", len(got))
	}
}

// Fault 4: a length is no reason to allocate, nor to wait for so much.
func TestFault4_LengthsAreNotBelieved(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	lengths := []uint32{math.MaxUint32, math.MaxInt32, 0x80000000, uint32(ha.MaxBody) + 1}
	m.play(func(l *fakeLink) {
		b := binary.BigEndian.AppendUint64(nil, 1)
		l.write(binary.BigEndian.AppendUint32(b, lengths[l.n%len(lengths)]))
		<-l.gone
	})
	timing := fast
	timing.FirstRetry, timing.MaxRetry = time.Millisecond, time.Millisecond
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := follow(t, m, slaveOptions{timing: timing})
	s.stuck(state.ProtocolError, "bad_frame")
	eventually(t, "100 connections", func() bool { return len(m.asked()) >= 100 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 8<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	if got := s.segments(); len(got) != 0 {
		t.Errorf("segments %v of nothing", got)
	}
	m.play(func(l *fakeLink) { l.serve(nil) })
	s.caughtUp(m)
}

// Fault 8: what is there of a message's header is waited for, not judged.
func TestFault8_TailEndsInsideAMessageHeader(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(5, 100)
	boundary := m.writer.End()
	m.append(5, 100)
	cut := make(chan wire.ByteSize)
	m.play(func(l *fakeLink) {
		at := l.request
		for {
			select {
			case <-l.gone:
				return
			case n, more := <-cut:
				if !more {
					l.serveFrom(at, nil)
					return
				}
				l.send(at, boundary.Add(n))
				at = boundary.Add(n)
			}
		}
	})
	timing := fast
	timing.Heartbeat = 5 * time.Millisecond
	s := follow(t, m, slaveOptions{timing: timing})
	for n := range wire.ByteSize(7) {
		cut <- n + 1
		eventually(t, "the whole messages", func() bool { return s.store.Ends().Verified == boundary })
		seen := len(m.happened("report"))
		eventually(t, "reports meanwhile", func() bool { return len(m.happened("report")) > seen+1 })
		if got := m.lastReport(); got != boundary {
			t.Errorf("%d bytes into the header: report %d, want %d", n+1, got, boundary)
		}
	}
	close(cut)
	s.caughtUp(m)
	if got := m.asked(); len(got) != 1 {
		t.Errorf("connected %d times", len(got))
	}
}

// Fault 11: a first frame that is not where it was asked for is refused, and
// nothing of it is written.
func TestFault11_FirstFrameElsewhere(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprintf("blind=%v", blind), func(t *testing.T) {
			m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
			m.grow(150 * wire.KiB)
			m.play(func(l *fakeLink) {
				base := m.writer.End().SegmentBase(m.size)
				l.send(base+1000, base+2000)
				<-l.gone
			})
			s := follow(t, m, slaveOptions{blind: blind})
			s.stuck(state.ProtocolError, "offset_mismatch")
			if got := s.segments(); len(got) != 0 {
				t.Errorf("segments %v", got)
			}
			m.play(func(l *fakeLink) { l.serve(nil) })
			s.caughtUp(m)
		})
	}
}

// Faults 11 and 17: the same for the one request whose answer is not known
// before, that for the last segment.
func TestFault17_OffsetsOutOfThisWorld(t *testing.T) {
	header := func(at uint64, n uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, at), n)
	}
	const segments = math.MaxInt64 / (64 << 10) * (64 << 10) // the last one that could be
	frames := map[string][]byte{
		"negative heartbeat":        header(math.MaxUint64, 0),
		"largest heartbeat":         header(math.MaxInt64, 0),
		"largest aligned heartbeat": header(segments, 0),
		"negative":                  append(header(1<<63, 4), 1, 2, 3, 4),
		"largest":                   append(header(math.MaxInt64-3, 3), 1, 2, 3),
		"largest aligned":           append(header(segments, 4), 1, 2, 3, 4),
		"beyond the largest":        append(header(math.MaxInt64, 4), 1, 2, 3, 4),
	}
	for name, frame := range frames {
		t.Run(name, func(t *testing.T) {
			m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
			m.append(10, 100)
			m.play(func(l *fakeLink) {
				if l.request == 1 { // no history: go on with the last segment
					l.heartbeat(1)
				} else {
					l.write(frame)
				}
				<-l.gone
			})
			timing := fast
			timing.Patience = 20 * time.Millisecond
			s := follow(t, m, slaveOptions{blind: true, timing: timing})
			eventually(t, "a refusal", func() bool { return s.last().problem.State == state.ProtocolError })
			if got, end := s.follower.SourceEnd(), s.follower.Received(); got > m.writer.End() || end > m.writer.End() {
				t.Errorf("source's end is shown as %d, received as %d", got, end)
			}
			if got := s.segments(); len(got) != 0 {
				t.Errorf("segments %v", got)
			}
		})
	}
}

// Fault 24: what is not this protocol at all leads to a closed link, nothing
// written, and a clean start when the right peer is back.
func TestFault24_Garbage(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	random := rand.New(rand.NewPCG(3, 4))
	m.play(func(l *fakeLink) {
		b := []byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		if l.n%2 == 0 {
			b = make([]byte, 4096)
			for i := range b {
				b[i] = byte(random.Uint32()) | 1
			}
		}
		l.write(b)
		<-l.gone
	})
	s := follow(t, m, slaveOptions{})
	eventually(t, "some attempts", func() bool { return len(m.asked()) >= 6 })
	eventually(t, "a refusal", func() bool { return s.last().problem.State == state.ProtocolError })
	if got := s.segments(); len(got) != 0 {
		t.Errorf("segments %v", got)
	}
	m.play(func(l *fakeLink) { l.serve(nil) })
	s.caughtUp(m)
}

// Faults 22 and 7: a message that says that it belongs elsewhere, or whose body
// is not the one that was summed, is neither verified nor acknowledged, nor is
// what follows it.
func TestFault22_MessagesThatAreNone(t *testing.T) {
	good := forge.Message{Topic: "orders", Body: []byte("the body"), StoreTimestamp: 1_700_000_000_000}
	for name, spoil := range map[string]func(at wire.PhyOffset) []byte{
		"other place": func(at wire.PhyOffset) []byte { return forge.AppendMessage(nil, good, at+4096) },
		"other body": func(at wire.PhyOffset) []byte {
			b := forge.AppendMessage(nil, good, at)
			b[len(b)-len("orders")-4]++
			return b
		},
		"other magic": func(at wire.PhyOffset) []byte {
			b := forge.AppendMessage(nil, good, at)
			b[4]++
			return b
		},
	} {
		for _, beside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, beside %t", name, beside), func(t *testing.T) { noMessage(t, spoil, good, beside) })
		}
	}
}

// noMessage sends what spoil makes in the place of a message.
func noMessage(t *testing.T, spoil func(at wire.PhyOffset) []byte, good forge.Message, beside bool) {
	t.Helper()
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	end := m.writer.End()
	m.play(func(l *fakeLink) {
		l.send(l.request, end)
		bad := spoil(end)
		all := append(bad, forge.AppendMessage(nil, good, end.Add(wire.ByteSize(len(bad))))...)
		l.write(append(ha.AppendHeader(nil, ha.Header{PhyOffset: end, BodySize: wire.ByteSize(len(all))}), all...))
		<-l.gone
	})
	var s *testSlave
	ready := make(chan struct{})
	honest(m, func() *testSlave { <-ready; return s })
	s = follow(t, m, slaveOptions{beside: beside})
	close(ready)
	s.stuck(state.ProtocolError, "corrupt_message")
	eventually(t, "another attempt", func() bool { return len(m.asked()) > 2 })
	if got := s.store.Ends().Verified; got != end {
		t.Errorf("verified %d, want %d", got, end)
	}
	for _, e := range m.happened("report", "request") {
		if e.off > end {
			t.Errorf("%v, beyond %d", e, end)
		}
	}
	m.play(func(l *fakeLink) { l.serve(nil) })
	m.append(10, 100)
	s.caughtUp(m)
}

// A source whose segments end elsewhere is refused by name (faults 2, 13).
func TestFault2_BlankOfAnotherSegmentSize(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	end := m.writer.End()
	m.play(func(l *fakeLink) {
		l.send(l.request, end)
		blank := forge.AppendBlank(nil, 32*wire.KiB-end.Sub(0))
		l.write(append(ha.AppendHeader(nil, ha.Header{PhyOffset: end, BodySize: wire.ByteSize(len(blank))}), blank...))
		<-l.gone
	})
	s := follow(t, m, slaveOptions{})
	s.stuck(state.Incompatible, "segment_size")
}
