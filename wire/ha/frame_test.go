package ha_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

func rawHeader(off int64, size int32) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(off))
	return binary.BigEndian.AppendUint32(b, uint32(size))
}

func TestFault4_LengthIsCheckedBeforeItIsUsed(t *testing.T) {
	tests := []struct {
		name   string
		off    int64
		size   int32
		limit  wire.ByteSize
		reason ha.Reason // 0: accepted
	}{
		{"heartbeat at zero", 0, 0, ha.MaxBody, 0},
		{"heartbeat at the last offset", math.MaxInt64, 0, ha.MaxBody, 0},
		{"one byte", 7, 1, ha.MaxBody, 0},
		{"stock batch", 7, 32 << 10, ha.StockBatch, 0},
		{"at the limit", 7, 16 << 20, ha.MaxBody, 0},
		{"one above the limit", 7, 16<<20 + 1, ha.MaxBody, ha.ReasonTooLarge},
		{"above a small limit", 7, 32<<10 + 1, ha.StockBatch, ha.ReasonTooLarge},
		{"largest length", 7, math.MaxInt32, ha.MaxBody, ha.ReasonTooLarge},
		{"length -1", 7, -1, ha.MaxBody, ha.ReasonNegativeLength},
		{"smallest length", 7, math.MinInt32, ha.MaxBody, ha.ReasonNegativeLength},
		{"offset -1", -1, 0, ha.MaxBody, ha.ReasonNegativeOffset},
		{"smallest offset", math.MinInt64, 0, ha.MaxBody, ha.ReasonNegativeOffset},
		{"ends at the last offset", math.MaxInt64 - 5, 5, ha.MaxBody, 0},
		{"ends one behind the last offset", math.MaxInt64 - 4, 5, ha.MaxBody, ha.ReasonOverflow},
		{"text of another protocol", 0x485454502f312e31, 0x20343030, ha.MaxBody, ha.ReasonTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := ha.ParseHeader(rawHeader(tt.off, tt.size), tt.limit)
			if tt.reason == 0 {
				if err != nil {
					t.Fatal(err)
				}
				want := ha.Header{PhyOffset: wire.PhyOffset(tt.off), BodySize: wire.ByteSize(tt.size)}
				if h != want || h.Heartbeat() != (tt.size == 0) || h.End() != wire.PhyOffset(tt.off+int64(tt.size)) {
					t.Fatalf("got %+v, want %+v", h, want)
				}
				return
			}
			var fe *ha.FrameError
			if !errors.Is(err, ha.ErrFrame) || !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FrameError", err)
			}
			if fe.Reason != tt.reason || int64(fe.PhyOffset) != tt.off || int64(fe.BodySize) != int64(tt.size) {
				t.Fatalf("got %+v, want reason %v of %d and %d", fe, tt.reason, tt.off, tt.size)
			}
			if !strings.Contains(err.Error(), tt.reason.String()) {
				t.Errorf("%q does not tell %q", err, tt.reason)
			}
		})
	}
}

func TestReasonsReadDifferently(t *testing.T) {
	seen := map[string]bool{}
	for r := ha.Reason(0); r <= ha.ReasonOverflow+1; r++ {
		seen[r.String()] = true
	}
	if len(seen) != int(ha.ReasonOverflow)+2 {
		t.Errorf("reasons: %v", seen)
	}
}

func TestHeaderAndReportTruncatedAtEveryByte(t *testing.T) {
	header, report := rawHeader(4711, 99), ha.AppendReport(nil, 4711)
	for n := range ha.HeaderSize {
		if _, err := ha.ParseHeader(header[:n], ha.MaxBody); !cutAt(n, err) {
			t.Errorf("header of %d bytes: %v", n, err)
		}
	}
	for n := range ha.ReportSize {
		if _, err := ha.ParseReport(report[:n]); !cutAt(n, err) {
			t.Errorf("report of %d bytes: %v", n, err)
		}
	}
}

func cutAt(n int, err error) bool {
	if n == 0 {
		return err == io.EOF
	}
	return err == io.ErrUnexpectedEOF
}

func TestFault17_NegativeReportsAreRefused(t *testing.T) {
	for _, off := range []int64{-1, math.MinInt64} {
		_, err := ha.ParseReport(binary.BigEndian.AppendUint64(nil, uint64(off)))
		var fe *ha.FrameError
		if !errors.Is(err, ha.ErrFrame) || !errors.As(err, &fe) || fe.Reason != ha.ReasonNegativeOffset {
			t.Errorf("%d: %v", off, err)
		}
	}
	for _, off := range []wire.PhyOffset{0, 1, math.MaxInt64} {
		if got, err := ha.ParseReport(ha.AppendReport(nil, off)); got != off || err != nil {
			t.Errorf("%d: got %d, %v", off, got, err)
		}
	}
}

func TestEncodersRefuseWhatTheProtocolForbids(t *testing.T) {
	for name, encode := range map[string]func(){
		"negative report":  func() { ha.AppendReport(nil, -1) },
		"negative offset":  func() { ha.AppendHeader(nil, ha.Header{PhyOffset: -1}) },
		"negative length":  func() { ha.AppendHeader(nil, ha.Header{BodySize: -1}) },
		"length of 32 bit": func() { ha.AppendHeader(nil, ha.Header{BodySize: 1 << 31}) },
		"overflow":         func() { ha.AppendHeader(nil, ha.Header{PhyOffset: math.MaxInt64, BodySize: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, ha.ErrFrame) {
					t.Errorf("recovered %v", err)
				}
			}()
			encode()
		})
	}
}

// versions are the brokers whose streams are in testdata.
var versions = []string{"4.9.7", "5.3.3"}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) == 0 {
		t.Fatalf("testdata/%s is empty", name)
	}
	return b
}

func TestRealBrokersReadBackByteForByte(t *testing.T) {
	ends := map[string]wire.PhyOffset{"4.9.7": 4515, "5.3.3": 4765}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			request := golden(t, v+".request")
			off, err := ha.ParseReport(request)
			if off != 1 || err != nil {
				t.Fatalf("request: %d, %v", off, err)
			}
			if again := ha.AppendReport(nil, off); !bytes.Equal(again, request) {
				t.Fatalf("request encodes as % x", again)
			}
			stream := golden(t, v+".stream")
			var again []byte
			var frames []ha.Header
			for rest := stream; len(rest) > 0; {
				h, err := ha.ParseHeader(rest, ha.MaxBody)
				if err != nil {
					t.Fatal(err)
				}
				frames = append(frames, h)
				body := rest[ha.HeaderSize:][:h.BodySize]
				again = append(ha.AppendHeader(again, h), body...)
				rest = rest[ha.HeaderSize+len(body):]
			}
			if !bytes.Equal(again, stream) {
				t.Error("stream does not encode as it was")
			}
			if len(frames) != 2 || frames[0].PhyOffset != 1 || frames[0].End() != ends[v] ||
				!frames[1].Heartbeat() || frames[1].PhyOffset != ends[v] {
				t.Errorf("frames %+v", frames)
			}
		})
	}
}
