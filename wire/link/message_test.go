package link_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/link"
)

// with returns a copy of the golden message of that name, changed.
func with[M any](tb testing.TB, name string, change func(*M)) link.Message {
	tb.Helper()
	for _, g := range goldens {
		if g.name == name {
			m, err := link.Decode(g.want.Type(), g.want.Append(nil)[link.HeaderSize:])
			if err != nil {
				tb.Fatal(err)
			}
			change(any(m).(*M))
			return m
		}
	}
	tb.Fatalf("no golden %s", name)
	return nil
}

// TestCheck_RefusesValues changes one field of a good message at a time. What
// Check finds, Append never sends, and Decode refuses where a field can carry it.
func TestCheck_RefusesValues(t *testing.T) {
	long := strings.Repeat("x", 256)
	digests := func(n int) []link.Digest {
		list := make([]link.Digest, n)
		for i := range list {
			list[i] = link.Digest{Size: 1}
		}
		return list
	}
	files := func(names ...string) (list []link.FileEntry) {
		for _, n := range names {
			list = append(list, link.FileEntry{Name: n})
		}
		return list
	}
	for _, c := range []struct {
		say  string // part of the reason
		m    link.Message
		wire bool // whether a frame can carry it
	}{
		{"channel 0", with(t, "hello", func(m *link.Hello) { m.Channel = 0 }), true},
		{"channel 3", with(t, "hello", func(m *link.Hello) { m.Channel = 3 }), true},
		{"ack 0", with(t, "hello", func(m *link.Hello) { m.Ack = 0 }), true},
		{"ack 3", with(t, "hello", func(m *link.Hello) { m.Ack = 3 }), true},
		{"segment size is -1", with(t, "hello", func(m *link.Hello) { m.SegmentSize = -1 }), true},
		{"min is -2", with(t, "hello", func(m *link.Hello) { m.Min = -2 }), true},
		{"verified is -2", with(t, "hello", func(m *link.Hello) { m.Verified = -2 }), true},
		{"flushed is -9223372036854775808", with(t, "hello", func(m *link.Hello) { m.Flushed = math.MinInt64 }), true},
		{"epoch is -1", with(t, "hello", func(m *link.Hello) { m.Epoch = -1 }), true},
		{"node has no name", with(t, "hello", func(m *link.Hello) { m.Node = "" }), true},
		{"cluster of 256 bytes", with(t, "hello", func(m *link.Hello) { m.Cluster = long }), false},
		{"broker name \"a\\n\" has control", with(t, "hello", func(m *link.Hello) { m.BrokerName = "a\n" }), true},
		{"node \"\\u0085\" has control", with(t, "hello", func(m *link.Hello) { m.Node = "\u0085" }), true},
		{"version \"\\xff\" is not UTF-8", with(t, "hello", func(m *link.Hello) { m.Version = "\xff" }), true},
		{"65 digests", with(t, "hello", func(m *link.Hello) { m.Digests = digests(65) }), true},
		{"offset is -1", with(t, "hello", func(m *link.Hello) { m.Digests[1].At = -1 }), true},
		{"range of 0 bytes", with(t, "hello", func(m *link.Hello) { m.Digests[1].Size = 0 }), true},
		{"range of 1048577 bytes", with(t, "hello", func(m *link.Hello) { m.Digests[1].Size = wire.MiB + 1 }), true},
		{"beyond the largest offset", with(t, "hello", func(m *link.Hello) { m.Digests[1].At = math.MaxInt64 }), true},

		{"segment size is -1", with(t, "welcome", func(m *link.Welcome) { m.SegmentSize = -1 }), true},
		{"min is -2", with(t, "welcome", func(m *link.Welcome) { m.Min = -2 }), true},
		{"confirmed is -2", with(t, "welcome", func(m *link.Welcome) { m.Confirmed = -2 }), true},
		{"visible is -2", with(t, "welcome", func(m *link.Welcome) { m.Visible = -2 }), true},
		{"out of order", with(t, "welcome", func(m *link.Welcome) { m.Min = m.Confirmed + 1 }), true},
		{"out of order", with(t, "welcome", func(m *link.Welcome) { m.Min = math.MaxInt64 }), true},
		{"out of order", with(t, "welcome", func(m *link.Welcome) { m.Confirmed = m.Visible + 1 }), true},
		{"out of order", with(t, "welcome", func(m *link.Welcome) { m.Confirmed = wire.NoOffset }), true},
		{"out of order", with(t, "welcome", func(m *link.Welcome) { m.Visible = wire.NoOffset }), true},
		{"begins nowhere", with(t, "welcome", func(m *link.Welcome) { m.Min = wire.NoOffset }), true},
		{"begins nowhere", with(t, "welcome", func(m *link.Welcome) { m.Min, m.Confirmed = wire.NoOffset, wire.NoOffset }), true},
		{"epoch is -1", with(t, "welcome", func(m *link.Welcome) { m.Epoch = -1 }), true},
		{"node has no name", with(t, "welcome", func(m *link.Welcome) { m.Node = "" }), true},
		{"range of 0 bytes", with(t, "welcome", func(m *link.Welcome) { m.Head.Size = 0 }), true},
		{"range of 0 bytes", with(t, "welcome-empty", func(m *link.Welcome) { m.Head.At = 1 }), true},
		{"range of 0 bytes", with(t, "welcome-empty", func(m *link.Welcome) { m.Head.Sum[31] = 1 }), true},
		{"verdict 3", with(t, "welcome", func(m *link.Welcome) { m.Verdicts[0] = 3 }), true},
		{"65 verdicts", with(t, "welcome", func(m *link.Welcome) { m.Verdicts = make([]link.Verdict, 65) }), true},

		{"code 0", with(t, "refuse", func(m *link.Refuse) { m.Code = 0 }), true},
		{"text of 513 bytes", with(t, "refuse", func(m *link.Refuse) { m.Text = strings.Repeat("x", 513) }), true},
		{"control characters", with(t, "refuse", func(m *link.Refuse) { m.Text = "\x1b[2J" }), true},
		{"code 0", with(t, "goodbye", func(m *link.Goodbye) { m.Code = 0 }), true},
		{"not UTF-8", with(t, "goodbye", func(m *link.Goodbye) { m.Text = "\xc0\x80" }), true},

		{"offset is -1", with(t, "ask", func(m *link.Ask) { m.At = -1 }), true},
		{"range of 0 bytes", with(t, "ask", func(m *link.Ask) { m.Size = 0 }), true},
		{"range of 1048577 bytes", with(t, "ask", func(m *link.Ask) { m.Size = wire.MiB + 1 }), true},
		{"offset is -1", with(t, "answer", func(m *link.Answer) { m.At = -1 }), true},
		{"offset is -1", with(t, "answer-unknown", func(m *link.Answer) { m.At = -1 }), true},
		{"a digest of nothing", with(t, "answer", func(m *link.Answer) { m.Size = 0 }), true},
		{"range of 1048577 bytes", with(t, "answer", func(m *link.Answer) { m.Size = wire.MiB + 1 }), true},
		{"offset is -1", with(t, "start", func(m *link.Start) { m.From = -1 }), true},

		{"offset is -1", with(t, "transfer", func(m *link.Transfer) { m.At = -1 }), true},
		{"confirmed is -2", with(t, "transfer", func(m *link.Transfer) { m.Confirmed = -2 }), true},
		{"range of 0 bytes", with(t, "transfer", func(m *link.Transfer) { m.Body = nil }), true},
		{"range of 1048577 bytes", with(t, "transfer", func(m *link.Transfer) { m.Body = make([]byte, link.MaxTransfer+1) }), true},
		{"beyond the largest offset", with(t, "transfer", func(m *link.Transfer) { m.At = math.MaxInt64 }), true},

		{"received is -2", with(t, "report", func(m *link.Report) { m.Received = -2 }), true},
		{"verified is -2", with(t, "report", func(m *link.Report) { m.Verified = -2 }), true},
		{"flushed is -2", with(t, "report", func(m *link.Report) { m.Flushed = -2 }), true},
		{"min is -2", with(t, "heartbeat", func(m *link.Heartbeat) { m.Min = -2 }), true},
		{"confirmed is -2", with(t, "heartbeat", func(m *link.Heartbeat) { m.Confirmed = -2 }), true},
		{"visible is -2", with(t, "heartbeat", func(m *link.Heartbeat) { m.Visible = -2 }), true},
		{"out of order", with(t, "heartbeat", func(m *link.Heartbeat) { m.Min = m.Confirmed + 1 }), true},
		{"out of order", with(t, "heartbeat", func(m *link.Heartbeat) { m.Min = math.MaxInt64 }), true},
		{"out of order", with(t, "heartbeat", func(m *link.Heartbeat) { m.Confirmed = m.Visible + 1 }), true},
		{"out of order", with(t, "heartbeat", func(m *link.Heartbeat) { m.Confirmed = wire.NoOffset }), true},
		{"out of order", with(t, "heartbeat", func(m *link.Heartbeat) { m.Visible = wire.NoOffset }), true},
		{"begins nowhere", with(t, "heartbeat", func(m *link.Heartbeat) { m.Min = wire.NoOffset }), true},
		{"begins nowhere", with(t, "heartbeat", func(m *link.Heartbeat) { m.Min, m.Confirmed = wire.NoOffset, wire.NoOffset }), true},

		{"taken at -1", with(t, "snapshot", func(m *link.Snapshot) { m.TakenAt = -1 }), true},
		{"source end is -2", with(t, "snapshot", func(m *link.Snapshot) { m.SourceEnd = -2 }), true},
		{"65 files", with(t, "snapshot", func(m *link.Snapshot) { m.Files = make([]link.FileEntry, 65) }), true},
		{"\"topics.json\" twice", with(t, "snapshot", func(m *link.Snapshot) { m.Files[1].Name = "topics.json" }), true},
		{"of 67108865 bytes", with(t, "snapshot", func(m *link.Snapshot) { m.Files[1].Size = link.MaxFileSize + 1 }), true},
		{"of -1 bytes", with(t, "snapshot", func(m *link.Snapshot) { m.Files[1].Size = -1 }), true},
		{"file of 256 bytes", with(t, "snapshot", func(m *link.Snapshot) { m.Files[1].Name = long }), false},
		{"index 64", with(t, "file", func(m *link.File) { m.Index = 64 }), true},
		{"piece of 0 bytes", with(t, "file", func(m *link.File) { m.Data = nil }), true},
		{"piece of 65537 bytes", with(t, "file", func(m *link.File) { m.Data = make([]byte, link.MaxPiece+1) }), true},
		{"beyond the largest file", with(t, "file", func(m *link.File) { m.Offset = link.MaxFileSize - 1 }), true},
		{"beyond the largest file", with(t, "file", func(m *link.File) { m.Offset = -1 }), true},

		// Fault 88: names become part of a path.
		{"no name of a file", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files("../x") }), true},
		{"no name of a file", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files("/etc/passwd") }), true},
		{"no name of a file", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files("commitlog/evil") }), true},
		{"no name of a file", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files(`a\b`) }), true},
		{"no name of a file", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files("") }), true},
		{"no name of a file", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files(".") }), true},
		{"no name of a file", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files("..") }), true},
		{"control characters", with(t, "snapshot", func(m *link.Snapshot) { m.Files = files("a\x00b") }), true},
	} {
		err := c.m.Check()
		wantKind(t, err, link.ErrFrame)
		if err == nil || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), c.m.Type().String()) {
			t.Errorf("%v, want something about %q", err, c.say)
		}
		if !panics(func() { c.m.Append(nil) }) {
			t.Errorf("sent, though %v", err)
		}
		if c.wire {
			m, err := link.Decode(c.m.Type(), link.AppendUnchecked(nil, c.m)[link.HeaderSize:])
			wantKind(t, err, link.ErrFrame)
			if m != nil {
				t.Errorf("%q: a message with an error", c.say)
			}
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestDecode_RefusesReserved(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int // in the payload
		to   byte
		say  string
	}{
		{"hello", 2, 1, "encodings 0x0100"},
		{"hello", 3, 2, "encodings 0x0002"},
		{"snapshot", 26 + 1 + 11 + 4 + 32, 2, `"topics.json" follows: 2`},
	} {
		b := golden(t, c.name)
		typ, payload := link.Type(b[4]), b[link.HeaderSize:]
		payload[c.at] = c.to
		_, err := link.Decode(typ, payload)
		wantKind(t, err, link.ErrFrame)
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestDecode_UnknownTypeIsNamed(t *testing.T) {
	for _, typ := range []link.Type{0, link.LastType + 1, 255} {
		m, err := link.Decode(typ, nil)
		wantKind(t, err, link.ErrType)
		if m != nil || !strings.Contains(err.Error(), typ.String()) {
			t.Errorf("%v, %v", m, err)
		}
	}
}

// TestDecode_CountsThatAreNotThere announces lists that would be large.
func TestDecode_CountsThatAreNotThere(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int // of the count, in the payload
	}{{"hello-empty", 49}, {"welcome-empty", 89}, {"snapshot-empty", 24}} {
		for _, n := range []byte{1, 64, 255} {
			b := golden(t, c.name)
			b[link.HeaderSize+c.at] = n - 1
			b[link.HeaderSize+c.at+1] = n
			_, err := link.Decode(link.Type(b[4]), b[link.HeaderSize:])
			wantKind(t, err, link.ErrFrame)
			if got := testing.AllocsPerRun(5, func() { _, _ = link.Decode(link.Type(b[4]), b[link.HeaderSize:]) }); got > 20 {
				t.Errorf("%s announcing %d: %v allocations", c.name, n, got)
			}
		}
	}
}

func TestAppendTransfer_IsTheHeadOfATransfer(t *testing.T) {
	frame := golden(t, "transfer")
	head := link.AppendTransfer([]byte("x"), 4096, 4100, []byte("log bytes"))
	if len(head) != 1+link.TransferHeadSize || !bytes.Equal(append(head[1:], "log bytes"...), frame) {
		t.Errorf("% x", head)
	}
	for name, send := range map[string]func(){
		"no body":     func() { link.AppendTransfer(nil, 0, 0, nil) },
		"a long body": func() { link.AppendTransfer(nil, 0, 0, make([]byte, link.MaxTransfer+1)) },
		"no offset":   func() { link.AppendTransfer(nil, -1, 0, []byte("x")) },
		"confirmed":   func() { link.AppendTransfer(nil, 0, -2, []byte("x")) },
		"no room":     func() { link.AppendTransfer(nil, math.MaxInt64, 0, []byte("x")) },
	} {
		if !panics(send) {
			t.Errorf("%s is sent", name)
		}
	}
}

func TestParseTransfer_RefusesWhatDecodeRefuses(t *testing.T) {
	payload := golden(t, "transfer")[link.HeaderSize:]
	for cut := range payload {
		_, decodeErr := link.Decode(link.TypeTransfer, payload[:cut])
		_, _, _, err := link.ParseTransfer(payload[:cut])
		if (err == nil) != (decodeErr == nil) {
			t.Errorf("cut at %d: %v, but %v", cut, err, decodeErr)
		}
		if err != nil {
			wantKind(t, err, link.ErrFrame)
		}
	}
	if _, _, _, err := link.ParseTransfer(link.AppendUnchecked(nil, &link.Transfer{At: -1, Body: []byte("x")})[link.HeaderSize:]); err == nil {
		t.Error("an offset of -1 passes")
	}
}

func TestParseReport_RefusesWhatDecodeRefuses(t *testing.T) {
	payload := golden(t, "report")[link.HeaderSize:]
	want := link.Report{Received: 4105, Verified: 4100, Flushed: 4096}
	if r, err := link.ParseReport(payload); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = link.ParseReport(payload) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for name, b := range map[string][]byte{
		"none":     nil,
		"cut":      payload[:len(payload)-1],
		"too long": append(bytes.Clone(payload), 0),
		"received": link.AppendUnchecked(nil, &link.Report{Received: -2})[link.HeaderSize:],
		"verified": link.AppendUnchecked(nil, &link.Report{Verified: -2})[link.HeaderSize:],
		"flushed":  link.AppendUnchecked(nil, &link.Report{Flushed: math.MinInt64})[link.HeaderSize:],
	} {
		r, err := link.ParseReport(b)
		if r != (link.Report{}) {
			t.Errorf("%s: %+v", name, r)
		}
		wantKind(t, err, link.ErrFrame)
	}
}

func TestText_FitsARefuse(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"a\tb\x00\x7f\u0085":           "a?b???",
		"\xff\xfe":                     "?",
		strings.Repeat("x", 600):       strings.Repeat("x", 512),
		strings.Repeat("x", 511) + "ö": strings.Repeat("x", 511),
		strings.Repeat("x", 510) + "ö": strings.Repeat("x", 510) + "ö",
	} {
		got := link.Text(in)
		if got != want {
			t.Errorf("%q became %q", in, got)
		}
		if err := (&link.Refuse{Code: 1, Text: got}).Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestCode_UnknownOnesAreCarried: newer peers may have more reasons.
func TestCode_UnknownOnesAreCarried(t *testing.T) {
	m, err := link.Decode(link.TypeRefuse, (&link.Refuse{Code: 999}).Append(nil)[link.HeaderSize:])
	if r, ok := m.(*link.Refuse); err != nil || !ok || r.Code != 999 || r.Code.String() != "code 999" {
		t.Errorf("%v, %v", m, err)
	}
}

func TestWords_AllHaveNames(t *testing.T) {
	for _, c := range []struct {
		got  func(n uint8) string
		want string // in the order of the numbers, from 0
	}{
		{func(n uint8) string { return link.Type(n).String() }, "type 0,hello,welcome,refuse,ask,answer,start,transfer,report,heartbeat,snapshot,file,goodbye,proof,packed,type 15"},
		{func(n uint8) string { return link.Mode(n).String() }, "none,tls,clear,mode 3"},
		{func(n uint8) string { return link.Channel(n).String() }, "channel 0,log,metadata,channel 3"},
		{func(n uint8) string { return link.Ack(n).String() }, "ack 0,memory,disk,ack 3"},
		{func(n uint8) string { return link.Verdict(n).String() }, "unknown,equal,differs,verdict 3"},
		{func(n uint8) string { return link.Code(n).String() }, "code 0,version,security,unauthorized,wrong_cluster,wrong_broker,segment_size,not_master,protocol,too_many,stopping,superseded,gap,internal,stale_epoch,source_changed,code 16"},
	} {
		for n, want := range strings.Split(c.want, ",") {
			if got := c.got(uint8(n)); got != want {
				t.Errorf("%d is %q, want %q", n, got, want)
			}
		}
	}
}
