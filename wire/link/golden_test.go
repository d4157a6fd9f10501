package link_test

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/wire/link"
)

func TestGolden_EveryFrameBothWays(t *testing.T) {
	seen := map[link.Type]bool{}
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			seen[g.want.Type()] = true
			frame := golden(t, g.name)
			r := link.NewReader(bytes.NewReader(frame))
			typ, payload, err := r.Next()
			if err != nil || typ != g.want.Type() {
				t.Fatalf("read %v, %v", typ, err)
			}
			got, err := link.Decode(typ, payload)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(g.want, got); diff != "" {
				t.Error(diff)
			}
			if b := g.want.Append([]byte("before")); !bytes.Equal(b, append([]byte("before"), frame...)) {
				t.Errorf("written as\n% x, want\n% x", b[6:], frame)
			}
			if _, _, err := r.Next(); err != io.EOF {
				t.Errorf("behind it: %v", err)
			}
		})
	}
	for typ := link.TypeHello; typ <= link.LastType; typ++ {
		if !seen[typ] {
			t.Errorf("no golden %v", typ)
		}
	}
}

// TestGolden_AllAreUsed keeps testdata from holding what no test reads.
func TestGolden_AllAreUsed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.hex")
	if err != nil || len(files) != len(goldens)+2 {
		t.Fatalf("%d files, %v; want one for each golden frame and two greetings", len(files), err)
	}
	names := []string{"greeting", "greeting-future"}
	for _, g := range goldens {
		names = append(names, g.name)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".hex")
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") {
			t.Errorf("%s is not in the table", f)
		}
	}
}

func TestReader_CutAtEveryByte(t *testing.T) {
	for _, g := range goldens {
		frame := golden(t, g.name)
		for cut := range frame {
			want := io.ErrUnexpectedEOF
			if cut == 0 {
				want = io.EOF
			}
			r := link.NewReader(bytes.NewReader(frame[:cut]))
			for range 2 { // the second call tells the same
				if _, _, err := r.Next(); err != want {
					t.Fatalf("%s cut at %d: %v, want %v", g.name, cut, err, want)
				}
			}
		}
	}
}

func TestDecode_CutAtEveryByte(t *testing.T) {
	for _, g := range goldens {
		payload := golden(t, g.name)[link.HeaderSize:]
		_, isTransfer := g.want.(*link.Transfer)
		_, isFile := g.want.(*link.File)
		if _, isPacked := g.want.(*link.Packed); isPacked {
			payload = payload[:25] // as those
		}
		for cut := range payload {
			m, err := link.Decode(g.want.Type(), payload[:cut])
			if (isTransfer || isFile) && err == nil { // the bytes at the end have no length of their own
				if m.Type() != g.want.Type() || !bytes.Equal(m.Append(nil)[link.HeaderSize:], payload[:cut]) {
					t.Errorf("%s cut at %d: another value with another encoding", g.name, cut)
				}
				continue
			}
			wantKind(t, err, link.ErrFrame)
			if m != nil {
				t.Errorf("%s cut at %d: a message with an error", g.name, cut)
			}
		}
	}
}

func TestDecode_BytesBehind(t *testing.T) {
	for _, g := range goldens {
		switch g.want.(type) {
		case *link.Transfer, *link.File, *link.Packed:
			continue // the bytes at the end have no length of their own
		}
		_, err := link.Decode(g.want.Type(), append(bytes.Clone(golden(t, g.name)[link.HeaderSize:]), 0))
		wantKind(t, err, link.ErrFrame)
	}
}

func TestReader_InPiecesOfAnySize(t *testing.T) {
	var stream []byte
	for _, g := range goldens {
		stream = append(stream, golden(t, g.name)...)
	}
	for name, from := range map[string]io.Reader{
		"one byte at a time": iotest.OneByteReader(bytes.NewReader(stream)),
		"halves":             iotest.HalfReader(bytes.NewReader(stream)),
		"end with the data":  iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		r := link.NewReader(from)
		for _, g := range goldens {
			typ, payload, err := r.Next()
			if err != nil {
				t.Fatalf("%s: %s: %v", name, g.name, err)
			}
			got, err := link.Decode(typ, payload)
			if diff := cmp.Diff(g.want, got); err != nil || diff != "" {
				t.Errorf("%s: %s: %v %s", name, g.name, err, diff)
			}
		}
		if _, _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: behind the last: %v", name, err)
		}
	}
}

// TestReader_EveryBitCounts turns each bit of each frame around: nothing of it
// is ever taken for a frame, and where the length became larger the stream ends
// too early.
func TestReader_EveryBitCounts(t *testing.T) {
	for _, g := range goldens {
		frame := golden(t, g.name)
		for bit := range len(frame) * 8 {
			broken := bytes.Clone(frame)
			broken[bit/8] ^= 1 << (bit % 8)
			_, _, err := link.NewReader(bytes.NewReader(broken)).Next()
			if err != io.ErrUnexpectedEOF && !errors.Is(err, link.ErrFrame) {
				t.Fatalf("%s with bit %d turned: %v", g.name, bit, err)
			}
		}
	}
}
