package replica

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// FuzzStream replicates whatever bytes a source may send, and kills and opens
// again behind them: the verified end is always a place to which the records of
// the log alone lead, and nothing but zeros is behind it in the end.
func FuzzStream(f *testing.F) {
	const size = 2048
	whole := makeLog(71, size, 0, 6, forge.Variety{MaxSize: 1024, V2: true, IPv6: true})
	f.Add(whole.bytes, uint16(1000), uint16(300))
	f.Fuzz(func(t *testing.T, stream []byte, piece, limit uint16) {
		if len(stream) > 8*size {
			return
		}
		opt := Options{Dir: t.TempDir(), SegmentSize: size}
		s := openStore(t, opt)
		if err := s.Begin(0); err != nil {
			t.Fatal(err)
		}
		var corrupt *commitlog.CorruptError
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), int(piece)+1)
			if err := s.Append(s.Ends().Written, [][]byte{rest[:n]}); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
			err := s.Verify(max(0, s.Ends().Written.Add(-wire.ByteSize(limit%64))))
			if err != nil && !errors.As(err, &corrupt) {
				t.Fatal(err)
			}
			if corrupt != nil && corrupt.PhyOffset != s.Ends().Verified {
				t.Fatalf("corrupt at %d, verified %d", corrupt.PhyOffset, s.Ends().Verified)
			}
		}
		live := s.Ends().Verified
		if want := naiveEnd(stream, size); live > want {
			t.Fatalf("verified %d, the records lead to %d", live, want)
		}
		kill(t, s)
		s = openStore(t, opt)
		found := s.Ends().Verified
		closeStore(t, s)
		if len(stream) == 0 {
			return
		}
		if found < live {
			t.Fatalf("found %d after a kill, %d was acked", found, live)
		}
		_, b := content(t, opt.Dir, size)
		padded := append(bytes.Clone(stream), make([]byte, len(b))...)
		if !bytes.Equal(b[:found], padded[:found]) || len(bytes.Trim(b[found:], "\x00")) > 0 {
			t.Fatalf("not the source up to %d and zeros behind it", found)
		}
	})
}

// naiveEnd walks from record to record.
func naiveEnd(stream []byte, size wire.ByteSize) wire.PhyOffset {
	at := wire.PhyOffset(0)
	for int(at) < len(stream) {
		var rec commitlog.Record
		end := at.SegmentBase(size).Add(size)
		err := commitlog.Parse(stream[at:min(int(end), len(stream))], at, end, &rec)
		switch {
		case err == nil:
			at = rec.End()
		case errors.Is(err, commitlog.ErrSegmentEnd) && int(end) <= len(stream):
			at = end
		default:
			return at
		}
	}
	return at
}

// TestCorpus: what a fuzz target starts from is there.
func TestCorpus(t *testing.T) {
	for _, target := range []string{"FuzzReadState", "FuzzStream"} {
		entries, err := os.ReadDir(filepath.Join("testdata", "fuzz", target))
		if err != nil || len(entries) < 5 {
			t.Errorf("%s: %d entries, %v", target, len(entries), err)
		}
	}
}
