package commitlog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// FuzzParse checks that whatever is parsed is one record with one encoding, that
// errors are those documented, and that a longer window never contradicts a
// shorter one.
func FuzzParse(f *testing.F) {
	for _, store := range goldenStores {
		for _, g := range goldenRecords(f, store) {
			if len(g.bytes) < 2000 {
				f.Add(g.bytes, int64(g.PhyOffset), int64(testEnd))
			}
		}
	}
	for _, m := range everyKind() {
		if b := forge.AppendMessage(nil, m.Message, 4096); len(b) < 2000 {
			f.Add(b, int64(4096), int64(testEnd))
		}
	}
	f.Add(forge.AppendBlank(nil, 100), int64(testEnd)-100, int64(testEnd))
	f.Fuzz(func(t *testing.T, window []byte, at, segmentEnd int64) {
		if at < 0 || segmentEnd < at {
			return
		}
		var rec commitlog.Record
		err := commitlog.Parse(window, wire.PhyOffset(at), wire.PhyOffset(segmentEnd), &rec)
		checkPrefixes(t, window, wire.PhyOffset(at), wire.PhyOffset(segmentEnd))
		var corrupt *commitlog.CorruptError
		switch {
		case err == nil:
			checkOneEncoding(t, window, &rec)
		case errors.Is(err, commitlog.ErrSegmentEnd):
			if !rec.Blank() || rec.End() != wire.PhyOffset(segmentEnd) {
				t.Fatalf("a BLANK up to %d, the segment ends at %d", rec.End(), segmentEnd)
			}
		case errors.Is(err, commitlog.ErrNotYet):
		case errors.As(err, &corrupt):
			if corrupt.PhyOffset != wire.PhyOffset(at) || corrupt.Reason == "" || corrupt.Err == nil {
				t.Fatalf("%#v", corrupt)
			}
		default:
			t.Fatalf("undocumented error %v", err)
		}
	})
}

func checkOneEncoding(t *testing.T, window []byte, rec *commitlog.Record) {
	t.Helper()
	got := forge.AppendMessage(nil, messageOf(rec), rec.PhyOffset)
	want := bytes.Clone(window[:rec.Size])
	if at := rec.BodyOffset().Sub(rec.PhyOffset); !bytes.Equal(want[at:][:len(rec.Body)], rec.Body) {
		t.Fatalf("the body is not at %d", at)
	}
	// Two things that a broker does not write, and does not look at either.
	if len(rec.Body) == 0 {
		copy(got[8:12], want[8:12]) // the checksum of nothing
	}
	for _, host := range []struct {
		at   int
		host []byte
	}{{48, rec.BornHost}, {48 + len(rec.BornHost) + 8, rec.StoreHost}} {
		port := host.at + len(host.host) - 4
		if binary.BigEndian.Uint32(host.host[len(host.host)-4:]) > 0xffff {
			copy(got[port:], want[port:port+4])
		}
	}
	if rec.PropertyCRC() == commitlog.CRCMatch {
		copy(got[len(got)-11:], want[len(want)-11:]) // was computed over the two
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("parsed from\n%x, written as\n%x", want, got)
	}
}

// The corpus that is checked in is what continuous integration starts from.
func TestFuzzParse_CorpusIsThere(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "fuzz", "FuzzParse", "*"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files in the corpus of FuzzParse, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(b, []byte("go test fuzz v1\n")) {
			t.Errorf("%s is no corpus file: %v", file, err)
		}
	}
}
