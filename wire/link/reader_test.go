package link_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/link"
)

func TestReader_RefusesHeaders(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame []byte
		kind  error
		say   string
	}{
		{"type 0", rawFrame(0, 0, 0, nil), link.ErrType, "type 0"},
		{"the first type that is not known", rawFrame(byte(link.LastType)+1, 0, 0, nil), link.ErrType, "type 15"},
		{"type 255", rawFrame(255, 0, 0, nil), link.ErrType, "type 255"},
		{"a flag", rawFrame(9, 0x80, 0, make([]byte, 24)), link.ErrFrame, "flags 0x80"},
		{"reserved bytes", rawFrame(9, 0, 1, make([]byte, 24)), link.ErrFrame, "reserved bytes 00 01"},
		{"other reserved bytes", rawFrame(9, 0, 1<<8, make([]byte, 24)), link.ErrFrame, "reserved bytes 01 00"},
		{"too short", rawFrame(9, 0, 0, make([]byte, 23)), link.ErrFrame, "23 bytes announced"},
		{"too long", rawFrame(9, 0, 0, make([]byte, 25)), link.ErrTooLarge, "at most 24"},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), link.ErrType, "type 47"},
	} {
		_, payload, err := link.NewReader(bytes.NewReader(c.frame)).Next()
		wantKind(t, err, c.kind)
		if payload != nil || err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %q, %v", c.name, payload, err)
		}
	}
}

// TestReader_LimitsFromTheHeader goes to both ends of what each type may have,
// with a payload that never comes: the header alone decides.
func TestReader_LimitsFromTheHeader(t *testing.T) {
	for typ := link.TypeHello; typ <= link.LastType; typ++ {
		least, most := link.Sizes(typ)
		for _, c := range []struct {
			size int64
			kind error // nil: the payload is waited for
		}{
			{0, link.ErrFrame}, {int64(least) - 1, link.ErrFrame}, {int64(least), nil}, {int64(most), nil},
			{int64(most) + 1, link.ErrTooLarge}, {0x7fffffff, link.ErrTooLarge}, {0xffffffff, link.ErrTooLarge},
		} {
			head := binary.BigEndian.AppendUint32(nil, uint32(c.size))
			head = append(head, byte(typ), 0, 0, 0, 0, 0, 0, 0)
			_, _, err := link.NewReader(bytes.NewReader(head)).Next()
			if c.kind == nil {
				if err != io.ErrUnexpectedEOF {
					t.Errorf("%v of %d bytes: %v", typ, c.size, err)
				}
				continue
			}
			wantKind(t, err, c.kind)
		}
	}
}

func TestReader_WrongChecksumIsFinal(t *testing.T) {
	frame := golden(t, "report")
	frame[8] ^= 1
	r := link.NewReader(bytes.NewReader(append(frame, golden(t, "report")...)))
	_, _, err := r.Next()
	wantKind(t, err, link.ErrChecksum)
	if _, _, again := r.Next(); again != err {
		t.Errorf("afterwards: %v", again)
	}
}

func TestReader_Expect(t *testing.T) {
	stream := append(golden(t, "report"), golden(t, "transfer")...)
	r := link.NewReader(bytes.NewReader(stream))
	r.Expect(link.TypeReport, link.TypeGoodbye)
	if typ, _, err := r.Next(); typ != link.TypeReport || err != nil {
		t.Fatalf("%v, %v", typ, err)
	}
	_, _, err := r.Next()
	wantKind(t, err, link.ErrUnexpected)
	if !strings.Contains(err.Error(), "transfer") {
		t.Errorf("%v does not name the frame", err)
	}
	if r.Buffered() > int(4*wire.KiB) {
		t.Errorf("%d bytes for frames that were refused", r.Buffered())
	}
	r = link.NewReader(bytes.NewReader(stream))
	r.Expect(link.TypeHello)
	r.Expect()
	for range 2 {
		if _, _, err := r.Next(); err != nil {
			t.Error(err)
		}
	}
}

// TestReader_StaysWithinTheFrame lets the stream be handed on between frames.
func TestReader_StaysWithinTheFrame(t *testing.T) {
	from := bytes.NewReader(append(golden(t, "report"), "something else"...))
	if _, _, err := link.NewReader(from).Next(); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(from); string(rest) != "something else" {
		t.Errorf("%q is left", rest)
	}
}

// TestFault4_AnnouncedBytesCostNothing announces the largest frame and stalls:
// memory follows what has arrived.
func TestFault4_AnnouncedBytesCostNothing(t *testing.T) {
	frame := (&link.Transfer{At: 0, Confirmed: 0, Body: make([]byte, link.MaxTransfer)}).Append(nil)
	const peers = 100
	for _, c := range []struct{ arrived, most int }{
		{0, 8 << 10}, {1, 8 << 10}, {4 << 10, 24 << 10}, {100 << 10, 600 << 10},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range peers {
			r := link.NewReader(bytes.NewReader(frame[:link.HeaderSize+c.arrived]))
			if _, _, err := r.Next(); err != io.ErrUnexpectedEOF {
				t.Fatal(err)
			}
			if most := max(2*c.arrived, 4<<10); r.Buffered() > most {
				t.Errorf("%d bytes held after %d arrived", r.Buffered(), c.arrived)
			}
		}
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc-before.TotalAlloc) / peers; got > c.most {
			t.Errorf("%d bytes allocated a peer after %d arrived, want at most %d", got, c.arrived, c.most)
		}
	}
}

// TestReader_DeadlineBetweenFrames shows which deadlines may pass.
func TestReader_DeadlineBetweenFrames(t *testing.T) {
	frame := golden(t, "report")
	late := iotest.ErrReader(os.ErrDeadlineExceeded)
	from := &chain{parts: []io.Reader{bytes.NewReader(frame), late, bytes.NewReader(frame), bytes.NewReader(frame[:3]), late, bytes.NewReader(frame[3:])}}
	r := link.NewReader(from)
	for i, want := range []error{nil, os.ErrDeadlineExceeded, nil, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded} {
		if _, _, err := r.Next(); !errors.Is(err, want) {
			t.Fatalf("call %d: %v, want %v", i, err, want)
		}
	}
	if len(from.parts) != 1 {
		t.Errorf("%d parts left: a torn frame was read on", len(from.parts))
	}
}

// A chain gives one part after the other; an error of a part is given once.
type chain struct{ parts []io.Reader }

func (c *chain) Read(b []byte) (int, error) {
	for len(c.parts) > 0 {
		n, err := c.parts[0].Read(b)
		if n > 0 {
			return n, nil
		}
		c.parts = c.parts[1:]
		if err != io.EOF {
			return 0, err
		}
	}
	return 0, io.EOF
}

// endless repeats a frame without allocating.
type endless struct {
	frame []byte
	at    int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.frame[e.at:])
	e.at = (e.at + n) % len(e.frame)
	return n, nil
}

func TestReader_TransfersAllocateNothing(t *testing.T) {
	for _, size := range []int{1, 4096, int(link.MaxTransfer)} {
		r := link.NewReader(&endless{frame: (&link.Transfer{At: 1, Confirmed: 1, Body: make([]byte, size)}).Append(nil)})
		head := make([]byte, 0, link.TransferHeadSize)
		next := func() {
			_, payload, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			at, confirmed, body, err := link.ParseTransfer(payload)
			if err != nil || len(body) != size {
				t.Fatal(len(body), err)
			}
			head = link.AppendTransfer(head[:0], at, confirmed, body)
		}
		next()
		if n := testing.AllocsPerRun(20, next); n != 0 {
			t.Errorf("%v allocations for a transfer of %d bytes", n, size)
		}
	}
}

func BenchmarkReader(b *testing.B) {
	for _, size := range []wire.ByteSize{wire.KiB, 64 * wire.KiB, wire.MiB} {
		b.Run(size.String(), func(b *testing.B) {
			r := link.NewReader(&endless{frame: (&link.Transfer{Body: make([]byte, size)}).Append(nil)})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				_, payload, err := r.Next()
				if err != nil {
					b.Fatal(err)
				}
				if _, _, _, err := link.ParseTransfer(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendTransfer(b *testing.B) {
	body := make([]byte, wire.MiB)
	head := make([]byte, 0, link.TransferHeadSize)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		head = link.AppendTransfer(head[:0], 1, 1, body)
	}
}
