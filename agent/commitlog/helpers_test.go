package commitlog_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	host4 = netip.MustParseAddrPort("10.1.2.3:10911")
	host6 = netip.MustParseAddrPort("[2001:db8::17]:10911")
)

// testEnd is the end of the segment that the records of single tests lie in.
const testEnd wire.PhyOffset = 1 << 30

type namedMessage struct {
	name string
	forge.Message
}

// everyKind is the table of records that every way of reading is tested with:
// both versions, all four pairs of hosts, topics around the limits of their
// length fields, and what is odd about bodies and properties.
func everyKind() []namedMessage {
	var all []namedMessage
	add := func(name string, m forge.Message) { all = append(all, namedMessage{name, m}) }
	for _, hosts := range []struct {
		name        string
		born, store netip.AddrPort
	}{{"4,4", host4, host4}, {"4,6", host4, host6}, {"6,4", host6, host4}, {"6,6", host6, host6}} {
		for _, magic := range []uint32{commitlog.MagicV1, commitlog.MagicV2} {
			for _, topic := range []int{1, 127, 128, 200} {
				if magic == commitlog.MagicV1 && topic > 127 {
					continue
				}
				add(fmt.Sprintf("hosts %s topic %d magic %x", hosts.name, topic, magic), forge.Message{
					Magic: magic, BornHost: hosts.born, StoreHost: hosts.store,
					Topic: strings.Repeat("t", topic), Body: []byte("body"), QueueID: 3, Flag: 9, QueueOffset: 1 << 40,
					SysFlag: 1, BornTimestamp: 1_700_000_000_001, StoreTimestamp: 1_700_000_000_002,
					ReconsumeTimes: 2, PreparedTransactionOffset: 77,
					Properties: forge.AppendProperty("", "KEYS", "k1 k2"),
				})
			}
		}
	}
	add("nothing in it", forge.Message{})
	add("empty body", forge.Message{Topic: "t", Properties: forge.AppendProperty("", "a", "b")})
	add("no properties", forge.Message{Topic: "t", Body: []byte("b")})
	add("CRC with its top bit set", forge.Message{Topic: "t", Body: topBitBody()})
	add("CRC 0 once the top bit is cleared", forge.Message{Topic: "t", Body: zeroCRCBodies[0]})
	add("CRC 0", forge.Message{Topic: "t", Body: zeroCRCBodies[1]})
	add("zero bytes in properties", forge.Message{Topic: "t", Body: []byte("b"), Properties: "a\x01b\x02\x00\x00\x00"})
	add("properties without separators", forge.Message{Topic: "t", Body: []byte("b"), Properties: "rubbish"})
	add("batch with 40000 bytes of properties", forge.Message{Topic: "t", Body: []byte("b"), Properties: strings.Repeat("p", 40000)})
	add("checksum property", forge.Message{Topic: "t", Body: []byte("b"), Properties: "a\x01b", PropertyCRC: true})
	add("large", forge.Message{Topic: "t", Body: make([]byte, 300_000)})
	return all
}

// topBitBody is a body whose CRC-32 has the bit set that brokers clear.
func topBitBody() []byte {
	for i := byte(0); ; i++ {
		if body := []byte{i}; crc32.ChecksumIEEE(body)>>31 == 1 {
			return body
		}
	}
}

// Two bodies whose CRC is stored as 0: one has the CRC-32 0x80000000, one 0.
var zeroCRCBodies = [][]byte{{0x4e, 0x85, 0xec, 0x36}, {0x9d, 0x0a, 0xd9, 0x6d}}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 17)) }

// newWriter returns a forge over a new directory, closed with the test.
func newWriter(t testing.TB, o forge.Options) *forge.Writer {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	w, err := forge.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Abandon(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func mustAppend(t testing.TB, w *forge.Writer, m forge.Message) wire.PhyOffset {
	t.Helper()
	end, err := w.Append(m)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// scanned is what a walk over a directory found.
type scanned struct {
	records int64
	end     wire.PhyOffset
	err     error
	torn    *commitlog.CorruptError
	topics  []string
}

func scan(t testing.TB, dir string, size wire.ByteSize, from wire.PhyOffset) scanned {
	t.Helper()
	s, err := commitlog.NewScanner(dir, size, from)
	if err != nil {
		t.Fatal(err)
	}
	var got scanned
	for s.Next() {
		got.topics = append(got.topics, string(s.Record().Topic))
	}
	got.records, got.end, got.err, got.torn = s.Records(), s.Offset(), s.Err(), s.Torn()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

func (s scanned) mustEndAt(t testing.TB, end wire.PhyOffset, records int64) {
	t.Helper()
	if !errors.Is(s.err, commitlog.ErrNotYet) {
		t.Fatalf("scan ended with %v at %d, want the end of the log at %d", s.err, s.end, end)
	}
	if s.end != end || s.records != records {
		t.Fatalf("scan found %d records up to %d, want %d up to %d", s.records, s.end, records, end)
	}
}

func segmentPath(dir string, base wire.PhyOffset) string {
	return filepath.Join(dir, commitlog.Name(base))
}

// patch overwrites bytes of a segment file.
func patch(t testing.TB, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
