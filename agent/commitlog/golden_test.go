package commitlog_test

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// goldenSize is the segment size of the captured stores.
const goldenSize wire.ByteSize = 16 << 10

var goldenStores = []string{"4.9.7", "4.9.7-ipv6", "5.3.3", "5.3.3-crc", "5.3.3-ipv6"}

// goldenRecord is a record of a captured store.
type goldenRecord struct {
	store string
	bytes []byte
	commitlog.Record
}

// goldenRecords returns every record of a captured store, outside of the map.
func goldenRecords(t testing.TB, store string) []goldenRecord {
	t.Helper()
	s, err := commitlog.NewScanner(filepath.Join("testdata", "stores", store, "commitlog"), goldenSize, wire.NoOffset)
	if err != nil {
		t.Fatal(err)
	}
	var all []goldenRecord
	for s.Next() {
		g := goldenRecord{store: store, bytes: bytes.Clone(s.Record().Bytes())}
		if err := commitlog.Parse(g.bytes, s.Record().PhyOffset, testEnd, &g.Record); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Every message that the producer was told about is found at its offset, with its
// content, and the log ends where the last one does.
func TestGolden_EveryMessageIsFound(t *testing.T) {
	for _, store := range goldenStores {
		t.Run(store, func(t *testing.T) {
			at := make(map[wire.PhyOffset]goldenRecord)
			var end wire.PhyOffset
			for _, g := range goldenRecords(t, store) {
				at[g.PhyOffset] = g
				end = g.End()
			}
			sent, err := os.ReadFile(filepath.Join("testdata", "stores", store, "sent.txt"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(sent)), "\n")
			if len(lines) != 14 {
				t.Fatalf("%d messages were captured", len(lines))
			}
			for _, line := range lines {
				var kind string
				var off wire.PhyOffset
				if _, err := fmt.Sscan(line, &kind, &off); err != nil {
					t.Fatal(err)
				}
				g, ok := at[off]
				if !ok {
					t.Errorf("%s: nothing at %d", kind, off)
					continue
				}
				checkKind(t, kind, &g)
			}
			got := scan(t, filepath.Join("testdata", "stores", store, "commitlog"), goldenSize, 0)
			got.mustEndAt(t, end, int64(len(at)))
			if len(at) < len(lines)+4 {
				t.Errorf("%d records for %d messages: where are the delayed copy and the transactions?", len(at), len(lines))
			}
		})
	}
}

func checkKind(t *testing.T, kind string, g *goldenRecord) {
	t.Helper()
	wantProperty := func(key, want string) {
		t.Helper()
		if got, ok := g.Property(key); !ok || string(got) != want {
			t.Errorf("%s: property %s is %q, want %q", kind, key, got, want)
		}
	}
	body := string(g.Body)
	switch kind {
	case "plain":
		if body != "plain body" || string(g.Topic) != "Golden" {
			t.Errorf("plain: %q to %q", body, g.Topic)
		}
	case "keyed":
		wantProperty("KEYS", "key1 key2")
		wantProperty("TAGS", "TagA")
	case "delayed":
		wantProperty("DELAY", "1")
		wantProperty("REAL_TOPIC", "Golden")
		if string(g.Topic) != "SCHEDULE_TOPIC_XXXX" {
			t.Errorf("delayed: in topic %q", g.Topic)
		}
	case "user":
		wantProperty("farbe", "grün")
		if body != "mit äöü und 消息" || g.Flag != 7 {
			t.Errorf("user: %q, flag %d", body, g.Flag)
		}
	case "batch":
		if !strings.HasPrefix(body, "batch body ") {
			t.Errorf("batch: %q", body)
		}
	case "compressed":
		r, err := zlib.NewReader(bytes.NewReader(g.Body))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(r)
		if err != nil || string(plain) != strings.Repeat("compress me ", 2000) || g.SysFlag&1 == 0 {
			t.Errorf("compressed: %d bytes, %v, SYSFLAG 0x%x", len(plain), err, g.SysFlag)
		}
	case "longtopic":
		if len(g.Topic) != 127 || g.Magic != commitlog.MagicV1 {
			t.Errorf("longtopic: %d bytes, magic 0x%x", len(g.Topic), g.Magic)
		}
	case "filler":
		if body != strings.Repeat("\x00", 3500) {
			t.Errorf("filler: %d bytes", len(body))
		}
	default:
		t.Errorf("unknown kind %s", kind)
	}
}

// Halves lie in a topic of the broker's own, without a flag; a committed message
// is stored again, with the flag and the offset of its half.
func TestGolden_Transactions(t *testing.T) {
	for _, store := range goldenStores {
		halves := make(map[string]wire.PhyOffset)
		var committed, marks int
		for _, g := range goldenRecords(t, store) {
			switch body := string(g.Body); {
			case string(g.Topic) == "RMQ_SYS_TRANS_HALF_TOPIC":
				halves[body] = g.PhyOffset
			case string(g.Topic) == "RMQ_SYS_TRANS_OP_HALF_TOPIC":
				marks++
			case g.SysFlag&commitlog.FlagTransactionMask == commitlog.FlagTransactionCommit:
				committed++
				if half, ok := halves[body]; !ok || body != "transaction body" || g.PreparedTransactionOffset != int64(half) {
					t.Errorf("%s at %d: commits %q of %d, halves at %v", store, g.PhyOffset, body, g.PreparedTransactionOffset, halves)
				}
			}
		}
		if len(halves) != 2 || committed != 1 || marks == 0 {
			t.Errorf("%s: halves at %v, %d committed, %d marks", store, halves, committed, marks)
		}
	}
}

func TestGolden_Hosts(t *testing.T) {
	for _, store := range goldenStores {
		for _, g := range goldenRecords(t, store) {
			wantV6 := strings.HasSuffix(store, "-ipv6")
			if g.StoreAddr().Addr().Is6() != wantV6 || !g.StoreAddr().Addr().IsLoopback() || g.StoreAddr().Port() != 21911 {
				t.Errorf("%s at %d: stored by %v", store, g.PhyOffset, g.StoreAddr())
			}
			if !g.BornAddr().Addr().IsLoopback() {
				t.Errorf("%s at %d: born at %v", store, g.PhyOffset, g.BornAddr())
			}
			if g.StoreTimestamp < g.BornTimestamp-1000 || g.StoreTimestamp > g.BornTimestamp+60_000 {
				t.Errorf("%s at %d: born %v, stored %v", store, g.PhyOffset, g.BornTimestamp.Time(), g.StoreTimestamp.Time())
			}
		}
	}
}

func TestGolden_PropertyCRC(t *testing.T) {
	for _, store := range goldenStores {
		want := commitlog.CRCAbsent
		if strings.HasSuffix(store, "-crc") {
			want = commitlog.CRCMatch
		}
		for _, g := range goldenRecords(t, store) {
			if got := g.PropertyCRC(); got != want {
				t.Errorf("%s at %d: %v, want %v", store, g.PhyOffset, got, want)
			}
		}
	}
}

func TestGolden_EveryTruncationIsNotYet(t *testing.T) {
	for _, store := range goldenStores {
		for _, g := range goldenRecords(t, store) {
			for n := range g.bytes {
				var rec commitlog.Record
				if err := commitlog.Parse(g.bytes[:n], g.PhyOffset, testEnd, &rec); err != commitlog.ErrNotYet {
					t.Fatalf("%s at %d, %d of %d bytes: %v", store, g.PhyOffset, n, len(g.bytes), err)
				}
			}
		}
	}
}

// The first segment of every captured store ends in a BLANK written by a broker.
func TestGolden_Blank(t *testing.T) {
	for _, store := range goldenStores {
		segment, err := os.ReadFile(segmentPath(filepath.Join("testdata", "stores", store, "commitlog"), 0))
		if err != nil {
			t.Fatal(err)
		}
		var last wire.PhyOffset
		for _, g := range goldenRecords(t, store) {
			if g.End() <= wire.PhyOffset(goldenSize) {
				last = g.End()
			}
		}
		var rec commitlog.Record
		if err := commitlog.Parse(segment[last:], last, wire.PhyOffset(goldenSize), &rec); err != commitlog.ErrSegmentEnd || !rec.Blank() {
			t.Errorf("%s: %v at %d", store, err, last)
		}
		wantReason(t, commitlog.Parse(segment[last:], last, wire.PhyOffset(2*goldenSize), &rec), last, commitlog.ErrBlankMismatch)
	}
}

// The forge writes, byte for byte, what brokers wrote.
func TestGolden_ForgeWritesTheSame(t *testing.T) {
	for _, store := range goldenStores {
		for _, g := range goldenRecords(t, store) {
			if got := forge.AppendMessage(nil, messageOf(&g.Record), g.PhyOffset); !bytes.Equal(got, g.bytes) {
				t.Errorf("%s at %d: forged\n%x\nbroker wrote\n%x", store, g.PhyOffset, got, g.bytes)
			}
		}
	}
}

// messageOf returns the message that was stored as rec.
func messageOf(rec *commitlog.Record) forge.Message {
	m := forge.Message{
		Magic: rec.Magic, QueueID: rec.QueueID, Flag: rec.Flag, QueueOffset: rec.QueueOffset, SysFlag: rec.SysFlag,
		BornTimestamp: rec.BornTimestamp, StoreTimestamp: rec.StoreTimestamp, BornHost: rec.BornAddr(), StoreHost: rec.StoreAddr(),
		ReconsumeTimes: rec.ReconsumeTimes, PreparedTransactionOffset: rec.PreparedTransactionOffset,
		Body: rec.Body, Topic: string(rec.Topic), Properties: string(rec.Properties),
	}
	if rec.PropertyCRC() == commitlog.CRCMatch {
		m.Properties = m.Properties[:len(m.Properties)-len("__CRC32#\x011234567890\x02")]
		m.PropertyCRC = true
	}
	return m
}
