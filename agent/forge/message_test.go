package forge_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 23)) }

func TestMessage_Check(t *testing.T) {
	for _, test := range []struct {
		name string
		m    forge.Message
		ok   bool
	}{
		{"nothing", forge.Message{}, true},
		{"V1 topic of 127", forge.Message{Magic: commitlog.MagicV1, Topic: strings.Repeat("t", 127)}, true},
		{"V1 topic of 128", forge.Message{Magic: commitlog.MagicV1, Topic: strings.Repeat("t", 128)}, false},
		{"topic of 128", forge.Message{Topic: strings.Repeat("t", 128)}, true},
		{"topic of 32767", forge.Message{Topic: strings.Repeat("t", 32767)}, true},
		{"topic of 32768", forge.Message{Topic: strings.Repeat("t", 32768)}, false},
		{"properties of 65535", forge.Message{Properties: strings.Repeat("p", 65535)}, true},
		{"properties of 65536", forge.Message{Properties: strings.Repeat("p", 65536)}, false},
		{"checksum beyond 65535", forge.Message{Properties: strings.Repeat("p", 65530), PropertyCRC: true}, false},
		{"magic of a BLANK", forge.Message{Magic: commitlog.MagicBlank}, false},
		{"body above the cap", forge.Message{Body: make([]byte, commitlog.MaxRecord)}, false},
	} {
		if err := test.m.Check(); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
		if !test.ok && !panics(func() { forge.AppendMessage(nil, test.m, 0) }) {
			t.Errorf("%s: was written", test.name)
		}
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// The layout, spelled out once with nothing but the bytes.
func TestAppendMessage_Golden(t *testing.T) {
	m := forge.Message{
		QueueID: 1, Flag: 2, QueueOffset: 3, SysFlag: 0x1 | 0x30 /* hosts decide */, BornTimestamp: 5, StoreTimestamp: 6,
		BornHost: netip.MustParseAddrPort("1.2.3.4:258"), StoreHost: netip.MustParseAddrPort("[::1]:65535"),
		ReconsumeTimes: 7, PreparedTransactionOffset: 8, Body: []byte("B"), Topic: "TT", Properties: "a\x01b",
	}
	want := "\x00\x00\x00\x6d" + "\xda\xa3\x20\xa7" + "\x4a\xd0\xcf\x31" + "\x00\x00\x00\x01" + "\x00\x00\x00\x02" +
		"\x00\x00\x00\x00\x00\x00\x00\x03" + "\x00\x00\x00\x00\x00\x00\x00\x04" + "\x00\x00\x00\x21" +
		"\x00\x00\x00\x00\x00\x00\x00\x05" + "\x01\x02\x03\x04" + "\x00\x00\x01\x02" +
		"\x00\x00\x00\x00\x00\x00\x00\x06" + strings.Repeat("\x00", 15) + "\x01" + "\x00\x00\xff\xff" +
		"\x00\x00\x00\x07" + "\x00\x00\x00\x00\x00\x00\x00\x08" +
		"\x00\x00\x00\x01" + "B" + "\x02" + "TT" + "\x00\x03" + "a\x01b"
	got := string(forge.AppendMessage(nil, m, 4))
	if got != want {
		t.Errorf("\n got %x\nwant %x", got, want)
	}
	m.Magic = commitlog.MagicV2
	if v2 := string(forge.AppendMessage([]byte("before"), m, 4)); v2 != "before\x00\x00\x00\x6e\xda\xa3\x20\xab"+got[8:len(got)-8]+"\x00\x02TT\x00\x03a\x01b" {
		t.Errorf("V2: %x", v2)
	}
	if got := string(forge.AppendBlank([]byte("x"), 0x1234)); got != "x\x00\x00\x12\x34\xcb\xd4\x31\x94" {
		t.Errorf("BLANK: %x", got)
	}
}

func TestRandomMessage_IsDeterministic(t *testing.T) {
	v := forge.Variety{V2: true, IPv6: true, PropertyCRC: true, Transactions: true}
	a, b := newRand(1), newRand(1)
	for range 100 {
		if x, y := forge.RandomMessage(a, v), forge.RandomMessage(b, v); !reflect.DeepEqual(x, y) {
			t.Fatalf("%+v\n%+v", x, y)
		}
	}
}

func TestRandomMessage_StaysWithinItsVariety(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := forge.Variety{
			MaxSize: wire.ByteSize(rapid.IntRange(0, 1<<16).Draw(t, "max")), V2: rapid.Bool().Draw(t, "v2"), IPv6: rapid.Bool().Draw(t, "ipv6"),
			PropertyCRC: rapid.Bool().Draw(t, "crc"), Transactions: rapid.Bool().Draw(t, "tx"),
			Topics: rapid.IntRange(0, 9).Draw(t, "topics"), Queues: rapid.IntRange(0, 9).Draw(t, "queues"),
		}
		m := forge.RandomMessage(newRand(rapid.Uint64().Draw(t, "seed")), v)
		limit := v.MaxSize
		if limit == 0 {
			limit = 4 * wire.KiB
		}
		b := forge.AppendMessage(nil, m, 4096)
		if size := wire.ByteSize(len(b)); size != m.Size() || size > max(limit, wire.KiB) || wire.ByteSize(binary.BigEndian.Uint32(b)) != size {
			t.Fatalf("%d bytes, Size %d, limit %d", len(b), m.Size(), limit)
		}
		var rec commitlog.Record
		if err := commitlog.Parse(b, 4096, 1<<30, &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Magic == commitlog.MagicV2 && !v.V2 || rec.SysFlag&0x30 != 0 && !v.IPv6 || rec.SysFlag&0xc != 0 && !v.Transactions ||
			rec.PropertyCRC() == commitlog.CRCDiffers || rec.PropertyCRC() == commitlog.CRCMatch && !v.PropertyCRC ||
			v.Queues > 0 && int(rec.QueueID) >= v.Queues {
			t.Fatalf("%+v is more than %+v", rec, v)
		}
	})
}

func TestAppendProperty(t *testing.T) {
	p := forge.AppendProperty(forge.AppendProperty("", "KEYS", "a b"), "TAGS", "")
	if p != "KEYS\x01a b\x02TAGS\x01\x02" {
		t.Errorf("%q", p)
	}
}
