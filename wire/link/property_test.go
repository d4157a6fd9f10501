package link_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/link"
)

// draw makes messages of all types within their limits.
type draw struct{ *rapid.T }

func (d draw) offset(name string, least int64) wire.PhyOffset {
	return wire.PhyOffset(rapid.Int64Range(least, math.MaxInt64).Draw(d.T, name))
}

// ends are those of a master's log: in order, or all none.
func (d draw) ends() (least, confirmed, visible wire.PhyOffset) {
	if rapid.Bool().Draw(d.T, "no log") {
		return wire.NoOffset, wire.NoOffset, wire.NoOffset
	}
	least = d.offset("min", 0)
	confirmed = d.offset("confirmed", int64(least))
	return least, confirmed, d.offset("visible", int64(confirmed))
}

func (d draw) name(name string, least int) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("aZ-_/.ö中😀\u2028 ")), least, 60, link.MaxString).Draw(d.T, name)
}

func (d draw) sum() (sum [32]byte) {
	copy(sum[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(d.T, "sum"))
	return sum
}

func (d draw) digest() link.Digest {
	size := wire.ByteSize(rapid.Int64Range(1, int64(link.MaxDigestRange)).Draw(d.T, "size"))
	at := wire.PhyOffset(rapid.Int64Range(0, math.MaxInt64-int64(size)).Draw(d.T, "at"))
	return link.Digest{At: at, Size: size, Sum: d.sum()}
}

func (d draw) text() string {
	return link.Text(rapid.String().Draw(d.T, "text"))
}

func (d draw) message(typ link.Type) link.Message {
	epoch := rapid.Int64Range(0, math.MaxInt64)
	switch typ {
	case link.TypeHello:
		return &link.Hello{
			Channel: rapid.SampledFrom([]link.Channel{link.ChannelLog, link.ChannelMetadata}).Draw(d.T, "channel"),
			Ack:     rapid.SampledFrom([]link.Ack{link.AckMemory, link.AckDisk}).Draw(d.T, "ack"), SegmentSize: wire.ByteSize(d.offset("segment", 0)),
			Min: d.offset("min", -1), Verified: d.offset("verified", -1), Flushed: d.offset("flushed", -1), Epoch: epoch.Draw(d.T, "epoch"),
			Accepts: rapid.SampledFrom([]link.Encodings{0, link.EncodingZstd}).Draw(d.T, "accepts"),
			Cluster: d.name("cluster", 0), BrokerName: d.name("broker", 0), Node: d.name("node", 1), Version: d.name("version", 0),
			Digests: rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) link.Digest { return draw{rt}.digest() }), 0, 64).Draw(d.T, "digests"),
		}
	case link.TypeWelcome:
		m := &link.Welcome{
			SegmentSize: wire.ByteSize(d.offset("segment", 0)),
			Epoch:       epoch.Draw(d.T, "epoch"), Cluster: d.name("cluster", 0), BrokerName: d.name("broker", 0), Node: d.name("node", 1), Version: d.name("version", 0),
			Verdicts: rapid.SliceOfN(rapid.SampledFrom([]link.Verdict{link.Unknown, link.Equal, link.Differs}), 0, 64).Draw(d.T, "verdicts"),
		}
		m.Min, m.Confirmed, m.Visible = d.ends()
		if rapid.Bool().Draw(d.T, "head") {
			m.Head = d.digest()
		}
		return m
	case link.TypeRefuse:
		return &link.Refuse{Code: link.Code(rapid.Uint16Min(1).Draw(d.T, "code")), Text: d.text()}
	case link.TypeGoodbye:
		return &link.Goodbye{Code: link.Code(rapid.Uint16Min(1).Draw(d.T, "code")), Text: d.text()}
	case link.TypeAsk:
		r := d.digest()
		return &link.Ask{At: r.At, Size: r.Size}
	case link.TypeAnswer:
		r := d.digest()
		if rapid.Bool().Draw(d.T, "unknown") {
			r.Size, r.Sum = 0, [32]byte{}
		}
		return &link.Answer{At: r.At, Size: r.Size, Sum: r.Sum}
	case link.TypeStart:
		return &link.Start{From: d.offset("from", 0)}
	case link.TypeTransfer:
		body := rapid.SliceOfN(rapid.Byte(), 1, 5000).Draw(d.T, "body")
		return &link.Transfer{At: wire.PhyOffset(rapid.Int64Range(0, math.MaxInt64-5000).Draw(d.T, "at")), Confirmed: d.offset("confirmed", -1), Body: body}
	case link.TypeReport:
		return &link.Report{Received: d.offset("received", -1), Verified: d.offset("verified", -1), Flushed: d.offset("flushed", -1)}
	case link.TypeHeartbeat:
		least, confirmed, visible := d.ends()
		return &link.Heartbeat{Min: least, Confirmed: confirmed, Visible: visible}
	case link.TypeSnapshot:
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zA-Z][a-z.ö]{0,40}`), 0, 64, rapid.ID[string]).Draw(d.T, "names")
		m := &link.Snapshot{Generation: rapid.Uint64().Draw(d.T, "generation"), TakenAt: epoch.Draw(d.T, "takenAt"), SourceEnd: d.offset("end", -1)}
		for _, n := range names {
			size := wire.ByteSize(rapid.Int64Range(0, int64(link.MaxFileSize)).Draw(d.T, "size"))
			m.Files = append(m.Files, link.FileEntry{Name: n, Size: size, Sum: d.sum(), Follows: rapid.Bool().Draw(d.T, "follows")})
		}
		return m
	case link.TypePacked:
		data := rapid.SliceOfN(rapid.Byte(), 1, 5000).Draw(d.T, "data")
		return &link.Packed{At: wire.PhyOffset(rapid.Int64Range(0, math.MaxInt64-int64(link.MaxTransfer)).Draw(d.T, "at")), Confirmed: d.offset("confirmed", -1),
			Size: wire.ByteSize(rapid.Int64Range(int64(len(data))+1, int64(link.MaxTransfer)).Draw(d.T, "size")), Sum: rapid.Uint32().Draw(d.T, "sum"), Data: data}
	case link.TypeFile:
		data := rapid.SliceOfN(rapid.Byte(), 1, 5000).Draw(d.T, "data")
		offset := rapid.Int64Range(0, int64(link.MaxFileSize)-int64(len(data))).Draw(d.T, "offset")
		return &link.File{Index: rapid.Uint16Range(0, 63).Draw(d.T, "index"), Offset: wire.ByteSize(offset), Data: data}
	}
	return &link.Proof{MAC: d.sum()}
}

// TestDecodingUndoesEncoding sends any messages of any types through a Reader
// in any pieces.
func TestDecodingUndoesEncoding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var sent []link.Message
		var stream []byte
		for range rapid.IntRange(1, 5).Draw(rt, "messages") {
			m := draw{rt}.message(link.Type(rapid.Uint8Range(1, uint8(link.LastType)).Draw(rt, "type")))
			before := len(stream)
			stream = m.Append(stream)
			least, most := link.Sizes(m.Type())
			if size := len(stream) - before - link.HeaderSize; size < least || size > most {
				rt.Fatalf("%v of %d bytes, outside of %d to %d", m.Type(), size, least, most)
			}
			sent = append(sent, m)
		}
		r := link.NewReader(&pieces{rt: rt, rest: stream})
		for _, want := range sent {
			typ, payload, err := r.Next()
			if err != nil {
				rt.Fatal(err)
			}
			got, err := link.Decode(typ, bytes.Clone(payload))
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
				rt.Fatalf("%v %s", err, diff)
			}
		}
	})
}

// pieces gives a stream in pieces of drawn sizes.
type pieces struct {
	rt   *rapid.T
	rest []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	n := rapid.IntRange(1, max(1, len(b))).Draw(p.rt, "piece")
	n = copy(b[:n], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// TestSizes_LargestMessagesFit fills every field to its limit.
func TestSizes_LargestMessagesFit(t *testing.T) {
	name := string(bytes.Repeat([]byte("n"), link.MaxString))
	hello := &link.Hello{Channel: 1, Ack: 1, Cluster: name, BrokerName: name, Node: name, Version: name}
	welcome := &link.Welcome{Cluster: name, BrokerName: name, Node: name, Version: name, Verdicts: make([]link.Verdict, link.MaxDigests)}
	for range link.MaxDigests {
		hello.Digests = append(hello.Digests, link.Digest{Size: link.MaxDigestRange})
	}
	snapshot := &link.Snapshot{}
	for i := range link.MaxFiles {
		snapshot.Files = append(snapshot.Files, link.FileEntry{Name: fmt.Sprintf("%s%02d", name[2:], i), Size: link.MaxFileSize})
	}
	text := link.Text(name + name + name)
	for _, m := range []link.Message{
		hello, welcome, snapshot, &link.Refuse{Code: math.MaxUint16, Text: text}, &link.Goodbye{Code: 1, Text: text},
		&link.Transfer{Body: make([]byte, link.MaxTransfer)}, &link.Packed{Size: link.MaxTransfer, Data: make([]byte, link.MaxTransfer-1)},
		&link.File{Index: link.MaxFiles - 1, Offset: link.MaxFileSize - link.MaxPiece, Data: make([]byte, link.MaxPiece)},
	} {
		frame := m.Append(nil)
		if _, most := link.Sizes(m.Type()); len(frame) != link.HeaderSize+most {
			t.Errorf("%v: %d bytes, the limit is %d", m.Type(), len(frame)-link.HeaderSize, most)
		}
		typ, payload, err := link.NewReader(bytes.NewReader(frame)).Next()
		if err != nil || typ != m.Type() {
			t.Errorf("%v: %v", m.Type(), err)
		}
		if _, err := link.Decode(typ, payload); err != nil {
			t.Error(err)
		}
	}
}
