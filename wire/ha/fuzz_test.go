package ha_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// FuzzStream cuts any bytes into pieces of any size: the pieces must not change
// what is found, nothing beyond the input may come out, and what was accepted
// encodes to the very bytes it came from.
func FuzzStream(f *testing.F) {
	for _, v := range versions {
		f.Add(golden(f, v+".stream"), uint8(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		var whole, cut ha.Decoder
		a, errA := decodeFrames(t, &whole, inPieces(stream, len(stream)+1))
		b, errB := decodeFrames(t, &cut, inPieces(stream, int(size)+1))
		if (errA == nil) != (errB == nil) || errA != nil && errA.Error() != errB.Error() {
			t.Fatalf("whole: %v; in pieces: %v", errA, errB)
		}
		if !sameFrames(a, b) {
			t.Fatal("pieces change the frames")
		}
		if errA != nil && !errors.Is(errA, ha.ErrFrame) {
			t.Fatalf("error of another kind: %v", errA)
		}
		if len(a) > 0 && !whole.Boundary() {
			if _, open := whole.Pending(); open { // its length is known from the header only
				a = a[:len(a)-1]
			}
		}
		if again := encodeFrames(a); !bytes.HasPrefix(stream, again) {
			t.Fatal("accepted frames do not encode to their bytes")
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add(reports(1, 2), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		var parts [][]byte
		for next := inPieces(b, int(size)+1); ; {
			p := next()
			if p == nil {
				break
			}
			parts = append(parts, p)
		}
		r := ha.NewReportReader(&pieces{parts: parts})
		last := wire.NoOffset
		for {
			off, err := r.Next()
			if err != nil {
				break
			}
			if off < 0 {
				t.Fatalf("negative report %d", off)
			}
			last = off
		}
		if last != wire.NoOffset && !bytes.Contains(b, ha.AppendReport(nil, last)) {
			t.Fatalf("%d was never sent", last)
		}
	})
}

func TestFuzzCorporaAreNotEmpty(t *testing.T) {
	for _, name := range []string{"FuzzStream", "FuzzReport"} {
		files, err := os.ReadDir(filepath.Join("testdata", "fuzz", name))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files, %v", name, len(files), err)
		}
	}
}
