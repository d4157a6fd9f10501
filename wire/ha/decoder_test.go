package ha_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// frame is what a master sent.
type frame struct {
	off  wire.PhyOffset
	body []byte
}

func encodeFrames(frames []frame) []byte {
	var b []byte
	for _, f := range frames {
		b = ha.AppendHeader(b, ha.Header{PhyOffset: f.off, BodySize: wire.ByteSize(len(f.body))})
		b = append(b, f.body...)
	}
	return b
}

// decodeFrames feeds the pieces to d and puts the frames together again. It
// fails the test where a piece does not continue its frame.
func decodeFrames(t testing.TB, d *ha.Decoder, next func() []byte) ([]frame, error) {
	t.Helper()
	var frames []frame
	open := false
	for piece := next(); piece != nil; piece = next() {
		for len(piece) > 0 {
			n, ev, err := d.Next(piece)
			if err != nil {
				return frames, err
			}
			if n <= 0 || n > len(piece) {
				t.Fatalf("consumed %d of %d bytes", n, len(piece))
			}
			switch ev.Kind {
			case ha.More:
				if n != len(piece) || ev.Data != nil || ev.FrameEnd {
					t.Fatalf("more, with %d of %d bytes consumed: %+v", n, len(piece), ev)
				}
			case ha.Heartbeat:
				if open || !ev.FrameEnd || ev.Data != nil {
					t.Fatalf("heartbeat inside a frame: %+v", ev)
				}
				frames = append(frames, frame{off: ev.PhyOffset})
			case ha.Body:
				if len(ev.Data) == 0 || &ev.Data[len(ev.Data)-1] != &piece[n-1] {
					t.Fatal("data is not the end of what was consumed")
				}
				if !open {
					frames = append(frames, frame{off: ev.PhyOffset})
				}
				f := &frames[len(frames)-1]
				if got := f.off.Add(wire.ByteSize(len(f.body))); got != ev.PhyOffset {
					t.Fatalf("piece at %d, want %d", ev.PhyOffset, got)
				}
				f.body = append(f.body, ev.Data...)
				open = !ev.FrameEnd
			}
			piece = piece[n:]
		}
	}
	return frames, nil
}

func inPieces(b []byte, size int) func() []byte {
	return func() []byte {
		if len(b) == 0 {
			return nil
		}
		n := min(size, len(b))
		p := b[:n]
		b = b[n:]
		return p
	}
}

func sameFrames(a, b []frame) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].off != b[i].off || !bytes.Equal(a[i].body, b[i].body) {
			return false
		}
	}
	return true
}

func TestFault1_FramesInPiecesOfAnySize(t *testing.T) {
	var sent []frame
	off := wire.PhyOffset(1)
	for i := range 200 {
		f := frame{off: off}
		if i%5 != 4 { // every fifth is a heartbeat
			f.body = bytes.Repeat([]byte{byte(i)}, 1+i*37%2000)
		}
		sent = append(sent, f)
		off = off.Add(wire.ByteSize(len(f.body)))
	}
	stream := encodeFrames(sent)
	for _, size := range []int{1, 7, 8, 11, 12, 13, 1000, len(stream)} {
		var d ha.Decoder
		got, err := decodeFrames(t, &d, inPieces(stream, size))
		if err != nil || !sameFrames(got, sent) {
			t.Errorf("pieces of %d: %d frames, %v", size, len(got), err)
		}
		if !d.Boundary() {
			t.Errorf("pieces of %d: no boundary at the end", size)
		}
	}
}

func TestFault8_EveryCutIsMoreAndNeverAnError(t *testing.T) {
	stream := encodeFrames([]frame{{off: 5, body: []byte("abc")}, {off: 8}, {off: 8, body: []byte("d")}})
	boundaries := map[int]bool{0: true, 15: true, 27: true, 40: true}
	for cut := range len(stream) + 1 {
		var d ha.Decoder
		first, err := decodeFrames(t, &d, inPieces(stream[:cut], 1<<20))
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if d.Boundary() != boundaries[cut] {
			t.Errorf("cut at %d: boundary %v", cut, d.Boundary())
		}
		received := wire.ByteSize(0)
		for _, f := range first {
			received += wire.ByteSize(len(f.body))
		}
		if received > 4 {
			t.Errorf("cut at %d: %d bytes out of nothing", cut, received)
		}
	}
}

func TestFault3_AFrameLargerThanAnyBufferPasses(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 5<<16) // 5 MiB
	var d ha.Decoder
	got, err := decodeFrames(t, &d, inPieces(encodeFrames([]frame{{off: 3, body: body}}), 4096))
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].body, body) {
		t.Errorf("%d frames, %v", len(got), err)
	}
}

func TestDecoderStaysAtAWrongHeader(t *testing.T) {
	good := encodeFrames([]frame{{off: 1, body: []byte("x")}})
	d := ha.Decoder{Limit: ha.StockBatch}
	stream := append(bytes.Clone(good), rawHeader(2, 32<<10+1)...)
	got, err := decodeFrames(t, &d, inPieces(append(stream, good...), 7))
	var fe *ha.FrameError
	if !errors.As(err, &fe) || fe.Reason != ha.ReasonTooLarge || fe.Limit != ha.StockBatch || len(got) != 1 {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	if n, ev, again := d.Next(good); n != 0 || ev.Kind != ha.More || again != err {
		t.Errorf("afterwards: %d, %+v, %v", n, ev, again)
	}
	d.Reset()
	if got, err := decodeFrames(t, &d, inPieces(good, 5)); err != nil || len(got) != 1 || d.Limit != ha.StockBatch {
		t.Errorf("after a reset: %d frames, %v", len(got), err)
	}
}

func TestBodiesTakenFromTheSocketAreSkipped(t *testing.T) {
	sent := []frame{{off: 10, body: bytes.Repeat([]byte("z"), 100)}, {off: 110}}
	stream := encodeFrames(sent)
	var d ha.Decoder
	if _, ok := d.Pending(); ok || d.Wants() != ha.HeaderSize {
		t.Fatal("pending before the first frame")
	}
	if n, ev, err := d.Next(stream[:5]); n != 5 || ev.Kind != ha.More || err != nil || d.Wants() != 7 {
		t.Fatalf("%d, %+v, %v, wants %d", n, ev, err, d.Wants())
	}
	if n, ev, err := d.Next(stream[5:12]); n != 7 || ev.Kind != ha.More || err != nil {
		t.Fatalf("%d, %+v, %v", n, ev, err)
	}
	for _, taken := range []wire.ByteSize{0, 60} {
		d.Skip(taken)
		h, ok := d.Pending()
		if want := (ha.Header{PhyOffset: sent[0].off.Add(taken), BodySize: 100 - taken}); !ok || h != want || d.Wants() != want.BodySize {
			t.Fatalf("pending %+v, %v; want %+v", h, ok, want)
		}
	}
	if _, ev, err := d.Next(stream[12+60:]); err != nil || ev.PhyOffset != 70 || len(ev.Data) != 40 || !ev.FrameEnd {
		t.Fatalf("rest of the body: %+v, %v", ev, err)
	}
	if _, ev, err := d.Next(stream[112:]); err != nil || ev.Kind != ha.Heartbeat || ev.PhyOffset != 110 {
		t.Fatalf("behind the body: %+v, %v", ev, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("skipped what is not there")
		}
	}()
	d.Skip(1)
}

func TestRealBrokersInPiecesOfAnySize(t *testing.T) {
	for _, v := range versions {
		stream := golden(t, v+".stream")
		for _, size := range []int{1, 7, 11, 12, 13, len(stream)} {
			var d ha.Decoder
			got, err := decodeFrames(t, &d, inPieces(stream, size))
			if err != nil || len(got) != 2 || !bytes.Equal(encodeFrames(got), stream) {
				t.Errorf("%s in pieces of %d: %d frames, %v", v, size, len(got), err)
			}
		}
	}
}

func TestDecodingUndoesEncoding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sent := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) frame {
			return frame{
				off:  wire.PhyOffset(rapid.Int64Range(0, math.MaxInt64-64).Draw(rt, "offset")),
				body: rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(rt, "body"),
			}
		}), 0, 20).Draw(rt, "frames")
		rest := encodeFrames(sent)
		var d ha.Decoder
		got, err := decodeFrames(t, &d, func() []byte {
			if len(rest) == 0 {
				return nil
			}
			n := rapid.IntRange(1, min(len(rest), 40)).Draw(rt, "piece")
			p := rest[:n]
			rest = rest[n:]
			return p
		})
		if err != nil || !sameFrames(got, sent) || !d.Boundary() {
			rt.Fatalf("sent %v, got %v, %v", sent, got, err)
		}
	})
}

func TestDecoderDoesNotAllocate(t *testing.T) {
	stream := encodeFrames([]frame{{off: 0, body: make([]byte, 4096)}, {off: 4096}})
	var d ha.Decoder
	if n := testing.AllocsPerRun(100, func() { drain(t, &d, stream, 1000) }); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

func drain(t testing.TB, d *ha.Decoder, stream []byte, size int) {
	for len(stream) > 0 {
		piece := stream[:min(size, len(stream))]
		n, _, err := d.Next(piece)
		if err != nil {
			t.Fatal(err)
		}
		stream = stream[n:]
	}
}

func BenchmarkDecoder(b *testing.B) {
	stream := encodeFrames([]frame{{off: 0, body: make([]byte, ha.StockBatch)}, {off: 32 << 10}})
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	var d ha.Decoder
	for b.Loop() {
		drain(b, &d, stream, 16<<10)
	}
}
