package link_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/link"
)

// FuzzDecode: a payload that is decoded is exactly what its message is encoded
// as, and one that is not gives a FrameError.
func FuzzDecode(f *testing.F) {
	for _, g := range goldens {
		b := golden(f, g.name)
		f.Add(b[4], b[link.HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, typ byte, payload []byte) {
		m, err := link.Decode(link.Type(typ), payload)
		if err != nil {
			var fe *link.FrameError
			if !errors.As(err, &fe) || !errors.Is(err, link.ErrFrame) || m != nil {
				t.Fatalf("%v, %v", m, err)
			}
			if _, err := link.ParseReport(payload); err == nil && link.Type(typ) == link.TypeReport {
				t.Fatalf("% x is no report, and one", payload)
			}
			return
		}
		if again := m.Append(nil); !bytes.Equal(again[link.HeaderSize:], payload) {
			t.Fatalf("% x was read as %+v, which is written as % x", payload, m, again[link.HeaderSize:])
		}
		if link.Type(typ) == link.TypeReport {
			if r, err := link.ParseReport(payload); err != nil || r != *m.(*link.Report) {
				t.Fatalf("the same payload in parts: %+v, %v", r, err)
			}
		}
		if link.Type(typ) == link.TypePacked {
			if p, err := link.ParsePacked(payload); err != nil || !bytes.Equal(p.Append(nil), m.Append(nil)) || wire.ByteSize(len(p.Data)) >= p.Size {
				t.Fatalf("the same payload in parts: %+v, %v", p, err)
			}
		}
		if link.Type(typ) == link.TypeTransfer {
			if _, _, body, err := link.ParseTransfer(payload); err != nil || !bytes.Equal(body, payload[16:]) {
				t.Fatalf("the same payload in parts: %q, %v", body, err)
			}
		}
	})
}

// FuzzReader: whatever a stream holds, frames that are read are those bytes, and
// the buffer stays in proportion to what has arrived.
func FuzzReader(f *testing.F) {
	var all []byte
	for _, g := range goldens {
		f.Add(golden(f, g.name))
		all = append(all, golden(f, g.name)...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := link.NewReader(bytes.NewReader(stream))
		rest := stream
		for {
			typ, payload, err := r.Next()
			if r.Buffered() > 2*len(stream)+4096 {
				t.Fatalf("%d bytes held after %d arrived", r.Buffered(), len(stream))
			}
			if err != nil {
				if err == io.EOF && len(rest) > 0 || err == io.ErrUnexpectedEOF && len(rest) == 0 ||
					err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, link.ErrFrame) {
					t.Fatalf("%v with %d bytes left", err, len(rest))
				}
				return
			}
			frame := rest[:link.HeaderSize+len(payload)]
			if !bytes.Equal(rawFrame(byte(typ), 0, 0, payload), frame) {
				t.Fatalf("% x was read as %v of % x", frame, typ, payload)
			}
			rest = rest[len(frame):]
		}
	})
}

// FuzzGreeting: a greeting that is read is exactly what it is written as, and
// parsing and reading agree.
func FuzzGreeting(f *testing.F) {
	f.Add(golden(f, "greeting"))
	f.Add(golden(f, "greeting-future"))
	f.Fuzz(func(t *testing.T, b []byte) {
		read, readErr := link.ReadGreeting(bytes.NewReader(b))
		g, err := link.ParseGreeting(b[:min(len(b), link.GreetingSize)])
		if read != g || (readErr == nil) != (err == nil) {
			t.Fatalf("read %+v, %v; parsed %+v, %v", read, readErr, g, err)
		}
		switch {
		case err == nil:
			if !bytes.Equal(g.Append(nil), b[:link.GreetingSize]) {
				t.Fatalf("% x was read as %+v", b, g)
			}
		case err != io.EOF && err != io.ErrUnexpectedEOF && !errors.Is(err, link.ErrGreeting):
			t.Fatal(err)
		}
		_ = link.Looks(b)
	})
}

// TestFuzz_CorporaAreThere: a fuzz target whose seeds have moved runs with
// nothing and passes.
func TestFuzz_CorporaAreThere(t *testing.T) {
	for name, least := range map[string]int{"FuzzDecode": 20, "FuzzReader": 10, "FuzzGreeting": 5} {
		files, err := os.ReadDir(filepath.Join("testdata", "fuzz", name))
		if err != nil || len(files) < least {
			t.Errorf("%s: %d seeds, %v; want %d", name, len(files), err, least)
		}
	}
}
