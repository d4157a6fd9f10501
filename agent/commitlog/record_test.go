package commitlog_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
)

func TestRecord_Hosts(t *testing.T) {
	m := forge.Message{Topic: "t", BornHost: host6, StoreHost: host4}
	rec := mustParse(t, forge.AppendMessage(nil, m, 0), 0)
	if len(rec.BornHost) != 20 || len(rec.StoreHost) != 8 {
		t.Errorf("hosts of %d and %d bytes", len(rec.BornHost), len(rec.StoreHost))
	}
	if got := (&commitlog.Record{}).BornAddr(); got != (netip.AddrPort{}) {
		t.Errorf("no host is %v", got)
	}
}

func TestRecord_Property(t *testing.T) {
	for _, test := range []struct {
		properties, key, want string
		found                 bool
	}{
		{"KEYS\x01a b\x02TAGS\x01x\x02", "KEYS", "a b", true},
		{"KEYS\x01a b\x02TAGS\x01x\x02", "TAGS", "x", true},
		{"KEYS\x01a b\x02TAGS\x01x", "TAGS", "x", true},
		{"KEYS\x01a b\x02", "KEY", "", false},
		{"KEY\x01a\x02KEYS\x01b\x02", "KEYS", "b", true},
		{"A\x01\x02B\x01b", "A", "", true},
		{"A\x02A\x01b", "A", "b", true},
		{"\x02\x02\x01\x02A\x01b\x01c\x02", "A", "b\x01c", true},
		{"A\x01first\x02A\x01second\x02", "A", "first", true},
		{"", "A", "", false},
		{"A", "A", "", false},
	} {
		m := forge.Message{Topic: "t", Properties: test.properties}
		rec := mustParse(t, forge.AppendMessage(nil, m, 0), 0)
		got, found := rec.Property(test.key)
		if string(got) != test.want || found != test.found {
			t.Errorf("%q of %q = %q, %t", test.key, test.properties, got, found)
		}
	}
}

func TestRecord_WellFormed(t *testing.T) {
	whole := forge.AppendMessage(nil, forge.Message{Topic: "topic", Body: []byte("b"), Properties: "KEYS\x01a\x02"}, 0)
	if rec := mustParse(t, whole, 0); !rec.WellFormed() {
		t.Error("a whole record is not well formed")
	}
	topicAt := bytes.Index(whole, []byte("topic"))
	propertiesAt := bytes.Index(whole, []byte("KEYS"))
	for at := topicAt; at < len(whole); at++ {
		if at == topicAt+5 || at == topicAt+6 {
			continue // the length of the properties: Parse sees that
		}
		torn := bytes.Clone(whole)
		torn[at] = 0
		if rec := mustParse(t, torn, 0); rec.WellFormed() {
			t.Errorf("well formed with a zero at %d", at)
		}
	}
	if rec := mustParse(t, append(whole[:propertiesAt:propertiesAt], "rubbish"...), 0); rec.WellFormed() {
		t.Error("properties without a separator are well formed")
	}
	if rec := mustParse(t, forge.AppendMessage(nil, forge.Message{Topic: "t"}, 0), 0); !rec.WellFormed() {
		t.Error("no properties are not well formed")
	}
}

func TestRecord_PropertyCRC(t *testing.T) {
	state := func(b []byte) commitlog.CRCState {
		rec := mustParse(t, b, 0)
		return rec.PropertyCRC()
	}
	for _, properties := range []string{"", "a\x01b", "a\x01b\x02", "rubbish"} {
		b := forge.AppendMessage(nil, forge.Message{Topic: "topic", Body: []byte("body"), Properties: properties, PropertyCRC: true}, 0)
		if got := state(b); got != commitlog.CRCMatch {
			t.Errorf("behind %q: %v", properties, got)
		}
		for _, at := range []int{15, 20, 40, 50, 94} { // queue, queue offset, time, host, topic
			torn := bytes.Clone(b)
			torn[at] ^= 1
			if got := state(torn); got != commitlog.CRCDiffers {
				t.Errorf("behind %q, damaged at %d: %v", properties, at, got)
			}
		}
	}
	// A copied one lies inside, or at the end but of another message.
	for properties, want := range map[string]commitlog.CRCState{
		"":                                 commitlog.CRCAbsent,
		"__CRC32#":                         commitlog.CRCAbsent,
		"__CRC32#\x011234567890\x02a\x01b": commitlog.CRCAbsent,
		"__CRC32#\x01123456789\x02":        commitlog.CRCAbsent,
		"__CRC32#\x01x234567890\x02":       commitlog.CRCAbsent,
		"__CRC32#\x011234567890\x02":       commitlog.CRCDiffers,
		"__CRC32#\x019999999999\x02":       commitlog.CRCDiffers,
	} {
		if got := state(forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("b"), Properties: properties}, 0)); got != want {
			t.Errorf("%q: %v, want %v", properties, got, want)
		}
	}
}

func TestMillis(t *testing.T) {
	if got, want := commitlog.Millis(1_700_000_000_123).Time(), time.UnixMilli(1_700_000_000_123); !got.Equal(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
