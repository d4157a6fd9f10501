package commitlog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// naiveParse reads a record as one would without a care for speed or for being
// early: from a stream, field by field, judging at the end.
func naiveParse(window []byte, at, segmentEnd wire.PhyOffset) (size int64, topic, body, properties string, err error) {
	r := bytes.NewReader(window)
	read := func(v any) {
		if err == nil {
			err = binary.Read(r, binary.BigEndian, v)
		}
	}
	take := func(n int64) string {
		if err != nil || n < 0 {
			err = errors.Join(err, io.ErrUnexpectedEOF)
			return ""
		}
		b, readErr := io.ReadAll(io.LimitReader(r, n))
		if readErr != nil || int64(len(b)) < n {
			err = io.ErrUnexpectedEOF
		}
		return string(b)
	}
	var total, bodyLen int32
	var magic, bodyCRC, sysFlag uint32
	var phyOffset int64
	read(&total)
	read(&magic)
	read(&bodyCRC)
	take(4 + 4 + 8)
	read(&phyOffset)
	read(&sysFlag)
	for _, v6 := range []uint32{0x10, 0x20} {
		take(8)
		if sysFlag&v6 != 0 {
			take(20)
		} else {
			take(8)
		}
	}
	take(4 + 8)
	read(&bodyLen)
	body = take(int64(bodyLen))
	topicLen := int16(0)
	if magic == 0xdaa320ab {
		read(&topicLen)
	} else {
		var short int8
		read(&short)
		topicLen = int16(short)
	}
	topic = take(int64(topicLen))
	var propertiesLen uint16
	read(&propertiesLen)
	properties = take(int64(propertiesLen))
	if err != nil {
		return 0, "", "", "", err
	}
	size = int64(len(window)) - int64(r.Len())
	switch {
	case magic != 0xdaa320a7 && magic != 0xdaa320ab:
		err = errors.New("magic")
	case int64(total) != size:
		err = errors.New("size")
	case phyOffset != int64(at):
		err = errors.New("offset")
	case int64(at)+size+8 > int64(segmentEnd):
		err = errors.New("room")
	case body != "" && crc32.ChecksumIEEE([]byte(body))&0x7fffffff != bodyCRC:
		err = errors.New("crc")
	}
	return size, topic, body, properties, err
}

// Parse finds a record exactly where the naive parser does, whatever bytes were
// damaged or cut off, and the same one.
func TestParse_AgreesWithTheNaiveParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRand(rapid.Uint64().Draw(t, "seed"))
		variety := forge.Variety{V2: true, IPv6: true, PropertyCRC: true, Transactions: true, MaxSize: 2048}
		at := wire.PhyOffset(rapid.Int64Range(0, 1<<50).Draw(t, "at"))
		window := forge.AppendMessage(nil, forge.RandomMessage(r, variety), at)
		recordLen := len(window)
		window = append(window, rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "behind")...)
		for range rapid.IntRange(0, 2).Draw(t, "damages") {
			// Most bytes of interest are in the first 100.
			i := rapid.OneOf(rapid.IntRange(0, 99), rapid.IntRange(0, recordLen-1)).Draw(t, "damaged")
			window[min(i, len(window)-1)] = rapid.Byte().Draw(t, "by")
		}
		window = window[:rapid.OneOf(rapid.Just(len(window)), rapid.IntRange(0, len(window))).Draw(t, "cut")]
		segmentEnd := at.Add(wire.ByteSize(recordLen + rapid.IntRange(0, 300).Draw(t, "room")))
		if room := int(segmentEnd.Sub(at)); len(window) > room {
			window = window[:room]
		}

		var rec commitlog.Record
		err := commitlog.Parse(window, at, segmentEnd, &rec)
		size, topic, body, properties, naiveErr := naiveParse(window, at, segmentEnd)
		var corrupt *commitlog.CorruptError
		switch {
		case err == nil && naiveErr != nil:
			t.Fatalf("parsed, where the naive parser says: %v", naiveErr)
		case err != nil && naiveErr == nil:
			t.Fatalf("%v, where the naive parser finds a record", err)
		case err == nil:
			if int64(rec.Size) != size || string(rec.Topic) != topic || string(rec.Body) != body || string(rec.Properties) != properties {
				t.Fatalf("%+v, want size %d, topic %q, body %q, properties %q", rec, size, topic, body, properties)
			}
		case errors.Is(err, commitlog.ErrNotYet), errors.Is(err, commitlog.ErrSegmentEnd), errors.As(err, &corrupt):
		default:
			t.Fatalf("undocumented error %v", err)
		}
		checkPrefixes(t, window, at, segmentEnd)
	})
}

// checkPrefixes checks what Parse promises about growing windows: what is said
// once, other than ErrNotYet, is said for ever.
func checkPrefixes(t interface {
	Helper()
	Fatalf(string, ...any)
}, window []byte, at, segmentEnd wire.PhyOffset) {
	t.Helper()
	var rec commitlog.Record
	last := commitlog.ErrNotYet
	step := 1 + len(window)/500
	for n := 0; n <= len(window); n++ {
		if n > 150 && n < len(window)-150 && n%step != 0 {
			continue
		}
		err := commitlog.Parse(window[:n], at, segmentEnd, &rec)
		if !errors.Is(last, commitlog.ErrNotYet) && !sameOutcome(last, err) {
			t.Fatalf("%d bytes give %v, fewer gave %v", n, err, last)
		}
		last = err
	}
}

func sameOutcome(a, b error) bool {
	for _, e := range []error{
		commitlog.ErrNotYet, commitlog.ErrSegmentEnd, commitlog.ErrBadLength, commitlog.ErrBadMagic,
		commitlog.ErrOffsetMismatch, commitlog.ErrBadCRC, commitlog.ErrBlankMismatch,
	} {
		if errors.Is(a, e) != errors.Is(b, e) {
			return false
		}
	}
	return (a == nil) == (b == nil)
}
