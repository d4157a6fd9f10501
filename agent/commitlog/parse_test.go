package commitlog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// mustParse parses the record at the start of window.
func mustParse(t testing.TB, window []byte, at wire.PhyOffset) commitlog.Record {
	t.Helper()
	var rec commitlog.Record
	if err := commitlog.Parse(window, at, testEnd, &rec); err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestParse_EveryField(t *testing.T) {
	for _, m := range everyKind() {
		t.Run(m.name, func(t *testing.T) {
			const at = 12345
			b := forge.AppendMessage(nil, m.Message, at)
			rec := mustParse(t, append(b, "what follows does not matter"...), at)
			if rec.PhyOffset != at || rec.Size != m.Size() || rec.End() != at+wire.PhyOffset(len(b)) || rec.Blank() {
				t.Errorf("place %d, size %d, end %d, blank %t", rec.PhyOffset, rec.Size, rec.End(), rec.Blank())
			}
			if !bytes.Equal(rec.Bytes(), b) {
				t.Error("Bytes is not the record")
			}
			if rec.QueueID != m.QueueID || rec.Flag != m.Flag || rec.QueueOffset != m.QueueOffset ||
				rec.ReconsumeTimes != m.ReconsumeTimes || rec.PreparedTransactionOffset != m.PreparedTransactionOffset ||
				rec.BornTimestamp != m.BornTimestamp || rec.StoreTimestamp != m.StoreTimestamp {
				t.Errorf("%+v\nwas written as %+v", rec, m.Message)
			}
			if !bytes.Equal(rec.Body, m.Body) || string(rec.Topic) != m.Topic || !strings.HasPrefix(string(rec.Properties), m.Properties) {
				t.Errorf("body %q, topic %q, properties %q", rec.Body, rec.Topic, rec.Properties)
			}
			if m.BornHost.IsValid() && (rec.BornAddr() != m.BornHost || rec.StoreAddr() != m.StoreHost) {
				t.Errorf("hosts %v and %v, want %v and %v", rec.BornAddr(), rec.StoreAddr(), m.BornHost, m.StoreHost)
			}
			if want := int32(1); m.SysFlag == want && rec.SysFlag&^(commitlog.FlagBornHostV6|commitlog.FlagStoreHostV6) != want {
				t.Errorf("SYSFLAG 0x%x", rec.SysFlag)
			}
		})
	}
}

// Every prefix of every record is not yet one, whatever follows the segment's end.
func TestFault8_EveryTruncationIsNotYet(t *testing.T) {
	for _, m := range everyKind() {
		t.Run(m.name, func(t *testing.T) {
			b := forge.AppendMessage(nil, m.Message, 4096)
			step := 1 + len(b)/5000
			var rec commitlog.Record
			for n := 0; n < len(b); n += step {
				if err := commitlog.Parse(b[:n], 4096, testEnd, &rec); !errors.Is(err, commitlog.ErrNotYet) {
					t.Fatalf("%d of %d bytes: %v", n, len(b), err)
				}
			}
			if err := commitlog.Parse(b[:len(b)-1], 4096, testEnd, &rec); !errors.Is(err, commitlog.ErrNotYet) {
				t.Fatalf("all but one byte: %v", err)
			}
		})
	}
}

func TestParse_NothingWritten(t *testing.T) {
	var rec commitlog.Record
	for _, n := range []int{0, 1, 3, 4, 7, 8, 91, 4096} {
		if err := commitlog.Parse(make([]byte, n), 0, testEnd, &rec); !errors.Is(err, commitlog.ErrNotYet) {
			t.Errorf("%d zero bytes: %v", n, err)
		}
	}
	// The size is what a broker may store last.
	b := forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("b")}, 0)
	clear(b[:4])
	if err := commitlog.Parse(b, 0, testEnd, &rec); !errors.Is(err, commitlog.ErrNotYet) {
		t.Errorf("TOTALSIZE 0: %v", err)
	}
}

func TestFault6_MixedFormats(t *testing.T) {
	var b []byte
	all := everyKind()
	for _, m := range all {
		b = forge.AppendMessage(b, m.Message, wire.PhyOffset(len(b)))
	}
	at := wire.PhyOffset(0)
	for _, m := range all {
		rec := mustParse(t, b[at:], at)
		if string(rec.Topic) != m.Topic {
			t.Fatalf("%s: topic %q", m.name, rec.Topic)
		}
		at = rec.End()
	}
	if at != wire.PhyOffset(len(b)) {
		t.Fatalf("the records end at %d, not at %d", at, len(b))
	}
}

func TestFault7_Checksums(t *testing.T) {
	t.Run("top bit", func(t *testing.T) {
		rec := mustParse(t, forge.AppendMessage(nil, forge.Message{Topic: "t", Body: topBitBody()}, 0), 0)
		if rec.BodyCRC>>31 != 0 {
			t.Error("the forge stored the top bit")
		}
	})
	t.Run("zero is a checksum", func(t *testing.T) {
		for _, body := range zeroCRCBodies {
			b := forge.AppendMessage(nil, forge.Message{Topic: "t", Body: body}, 0)
			if rec := mustParse(t, b, 0); rec.BodyCRC != 0 {
				t.Errorf("BODYCRC 0x%x", rec.BodyCRC)
			}
			b[88]++
			wantCorrupt(t, b, 0, commitlog.ErrBadCRC)
		}
		b := forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("body")}, 0)
		clear(b[8:12])
		wantCorrupt(t, b, 0, commitlog.ErrBadCRC)
	})
	t.Run("empty bodies have none", func(t *testing.T) {
		b := forge.AppendMessage(nil, forge.Message{Topic: "t"}, 0)
		copy(b[8:12], "\x12\x34\x56\x78")
		mustParse(t, b, 0)
	})
	t.Run("properties are not covered", func(t *testing.T) {
		for _, properties := range []string{"\x00", "a\x01b\x02\x00\x00", "\x01\x01\x02\x02", "\xff\xfe", strings.Repeat("\x00", 32767)} {
			mustParse(t, forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("b"), Properties: properties}, 0), 0)
		}
	})
}

func TestFault22_StaleOffset(t *testing.T) {
	b := forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("of another place")}, 1<<20)
	wantCorrupt(t, b, 0, commitlog.ErrOffsetMismatch)
	wantCorrupt(t, b, 1<<20+1, commitlog.ErrOffsetMismatch)
	wantCorrupt(t, b[:36], 0, commitlog.ErrOffsetMismatch)
	mustParse(t, b, 1<<20)
}

// wantCorrupt checks that the record at the start of b is corrupt for that reason
// alone, and that the error tells where.
func wantCorrupt(t testing.TB, b []byte, at wire.PhyOffset, reason error) {
	t.Helper()
	var rec commitlog.Record
	wantReason(t, commitlog.Parse(b, at, testEnd, &rec), at, reason)
}

func wantReason(t testing.TB, err error, at wire.PhyOffset, reason error) {
	t.Helper()
	var corrupt *commitlog.CorruptError
	if !errors.As(err, &corrupt) || corrupt.PhyOffset != at {
		t.Fatalf("got %v, want a CorruptError at %d", err, at)
	}
	for _, r := range []error{
		commitlog.ErrBadLength, commitlog.ErrBadMagic, commitlog.ErrOffsetMismatch, commitlog.ErrBadCRC, commitlog.ErrBlankMismatch,
	} {
		if errors.Is(err, r) != (r == reason) {
			t.Errorf("%v: is %v: %t", err, r, errors.Is(err, r))
		}
	}
	if errors.Is(err, commitlog.ErrNotYet) || errors.Is(err, commitlog.ErrSegmentEnd) {
		t.Errorf("%v is also an end", err)
	}
}

// Each named corruption is found as soon as the bytes that show it are there.
func TestParse_NamedCorruptions(t *testing.T) {
	m := forge.Message{Topic: "topic", Body: []byte("body body"), Properties: "a\x01b\x02"}
	put32 := func(at int, v int32) func([]byte) {
		return func(b []byte) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
	}
	const bodyLenAt = 84
	size := int32(m.Size())
	for _, test := range []struct {
		name   string
		damage func([]byte)
		reason error
		needs  int // bytes of the record
	}{
		{"negative size", put32(0, -1), commitlog.ErrBadLength, 4},
		{"smallest int32", put32(0, math.MinInt32), commitlog.ErrBadLength, 4},
		{"size below a header", put32(0, 7), commitlog.ErrBadLength, 4},
		{"size below any record", put32(0, 90), commitlog.ErrBadLength, 8},
		{"size above any record", put32(0, int32(commitlog.MaxRecord)+1), commitlog.ErrBadLength, 8},
		{"size beyond the segment", put32(0, math.MaxInt32), commitlog.ErrBadLength, 8},
		{"size one less", put32(0, size-1), commitlog.ErrBadLength, 105},
		{"size one more", put32(0, size+1), commitlog.ErrBadLength, 105},
		{"no magic", put32(4, 0), commitlog.ErrBadMagic, 8},
		{"another magic", put32(4, 0x12345678), commitlog.ErrBadMagic, 8},
		{"magic of a future version", func(b []byte) { binary.BigEndian.PutUint32(b[4:], 0xdaa320af) }, commitlog.ErrBadMagic, 8},
		{"magic of the other version", func(b []byte) { binary.BigEndian.PutUint32(b[4:], commitlog.MagicV2) }, commitlog.ErrBadLength, 99},
		{"no offset", func(b []byte) { clear(b[28:36]) }, commitlog.ErrOffsetMismatch, 36},
		{"negative offset", put32(28, -1), commitlog.ErrOffsetMismatch, 36},
		{"IPv6 flag on an IPv4 host", put32(36, commitlog.FlagBornHostV6), commitlog.ErrBadLength, 100},
		{"negative body", put32(bodyLenAt, -1), commitlog.ErrBadLength, 88},
		{"body beyond the record", put32(bodyLenAt, size), commitlog.ErrBadLength, 88},
		{"body up to the end of the record", put32(bodyLenAt, size-88), commitlog.ErrBadLength, 88},
		{"topic beyond the record", func(b []byte) { b[97] = 100 }, commitlog.ErrBadLength, 98},
		{"topic of a negative int8", func(b []byte) { b[97] = 0x80 }, commitlog.ErrBadLength, 98},
		{"no topic", func(b []byte) { b[97] = 0 }, commitlog.ErrBadLength, 100},
		{"properties one less", func(b []byte) { b[104]-- }, commitlog.ErrBadLength, 105},
		{"properties beyond the record", func(b []byte) { b[103] = 0xff }, commitlog.ErrBadLength, 105},
		{"no body", func(b []byte) { clear(b[88:97]) }, commitlog.ErrBadCRC, int(size)},
		{"one bit of the body", func(b []byte) { b[90] ^= 4 }, commitlog.ErrBadCRC, int(size)},
		{"one bit of the checksum", func(b []byte) { b[11] ^= 4 }, commitlog.ErrBadCRC, int(size)},
		{"top bit of the checksum", func(b []byte) { b[8] ^= 0x80 }, commitlog.ErrBadCRC, int(size)},
	} {
		t.Run(test.name, func(t *testing.T) {
			const at = 4096
			b := forge.AppendMessage(nil, m, at)
			test.damage(b)
			b = append(b, make([]byte, 100)...)
			wantCorrupt(t, b, at, test.reason)
			var first int
			for n := range len(b) + 1 {
				var rec commitlog.Record
				err := commitlog.Parse(b[:n], at, testEnd, &rec)
				if errors.Is(err, commitlog.ErrNotYet) {
					continue
				}
				wantReason(t, err, at, test.reason)
				first = n
				break
			}
			if first > test.needs {
				t.Errorf("found with %d bytes, %d would do", first, test.needs)
			}
		})
	}
}

func TestParse_RoomForTheBlank(t *testing.T) {
	m := forge.Message{Topic: "t", Body: []byte("the last one")}
	size := wire.PhyOffset(m.Size())
	var rec commitlog.Record
	for left, want := range map[wire.PhyOffset]error{
		100: nil, 9: nil, 8: nil, // as brokers leave it
		7: commitlog.ErrBadLength, 1: commitlog.ErrBadLength, 0: commitlog.ErrBadLength, -1: commitlog.ErrBadLength,
	} {
		err := commitlog.Parse(forge.AppendMessage(nil, m, 0), 0, size+left, &rec)
		if !errors.Is(err, want) {
			t.Errorf("%d bytes left behind the record: %v, want %v", left, err, want)
		}
	}
	for room := range wire.PhyOffset(8) {
		wantReason(t, commitlog.Parse(make([]byte, 100), 1000-room, 1000, &rec), 1000-room, commitlog.ErrBadLength)
	}
}

func TestParse_Blank(t *testing.T) {
	for _, size := range []wire.ByteSize{8, 9, 90, 91, 1000, 1 << 20, 1 << 30} {
		at := testEnd.Add(-size)
		b := forge.AppendBlank(nil, size)
		var rec commitlog.Record
		for n := range b {
			if err := commitlog.Parse(b[:n], at, testEnd, &rec); !errors.Is(err, commitlog.ErrNotYet) {
				t.Errorf("BLANK of %d, %d bytes of it: %v", size, n, err)
			}
		}
		for _, behind := range []string{"", "\x00\x00\x00\x00", "anything may lie behind it"} {
			err := commitlog.Parse(append(b, behind...), at, testEnd, &rec)
			if !errors.Is(err, commitlog.ErrSegmentEnd) || !rec.Blank() || rec.Size != size || rec.End() != testEnd || len(rec.Bytes()) != 8 {
				t.Errorf("BLANK of %d: %v, %+v", size, err, rec)
			}
		}
		for _, wrong := range []wire.PhyOffset{-1, 1, 4096} {
			if at+wrong < 0 || testEnd.Sub(at+wrong) < 8 {
				continue
			}
			wantReason(t, commitlog.Parse(b, at+wrong, testEnd, &rec), at+wrong, commitlog.ErrBlankMismatch)
		}
	}
}

// What lies behind the end of the segment is not looked at.
func TestParse_WindowBeyondTheSegment(t *testing.T) {
	m := forge.Message{Topic: "t", Body: make([]byte, 100)}
	b := forge.AppendMessage(nil, m, 0)
	var rec commitlog.Record
	wantReason(t, commitlog.Parse(b, 0, wire.PhyOffset(len(b)-1), &rec), 0, commitlog.ErrBadLength)
	blank := forge.AppendBlank(nil, 8)
	if err := commitlog.Parse(append(blank, b...), 0, 8, &rec); !errors.Is(err, commitlog.ErrSegmentEnd) {
		t.Error(err)
	}
}

func TestLoadSize(t *testing.T) {
	b := []byte{0x9a, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for at := range b {
		want := int32(0)
		if at+4 <= len(b) {
			want = int32(binary.BigEndian.Uint32(b[at:]))
		}
		if got := commitlog.LoadSize(b[at:]); got != want {
			t.Errorf("at %d: 0x%x, want 0x%x", at, got, want)
		}
	}
}

func TestParse_AllocatesNothing(t *testing.T) {
	b := forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("b"), Properties: "KEYS\x01k\x02", PropertyCRC: true}, 0)
	blank := forge.AppendBlank(nil, 100)
	var rec commitlog.Record
	allocs := testing.AllocsPerRun(100, func() {
		if commitlog.Parse(b, 0, testEnd, &rec) != nil ||
			commitlog.Parse(b[:50], 0, testEnd, &rec) != commitlog.ErrNotYet ||
			commitlog.Parse(blank, 0, 100, &rec) != commitlog.ErrSegmentEnd {
			t.Error("cannot be parsed")
		}
		if rec.Property("KEYS"); rec.PropertyCRC() == commitlog.CRCDiffers || commitlog.LoadSize(b) == 0 {
			t.Error("cannot be read")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
