package link_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/link"
)

// golden returns the bytes that a file of testdata spells in hex.
func golden(tb testing.TB, name string) []byte {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		tb.Fatal(err)
	}
	b, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil || len(b) == 0 {
		tb.Fatalf("%s: %d bytes, %v", name, len(b), err)
	}
	return b
}

// sums of what the golden frames speak about.
var (
	sumA    = sha256.Sum256(bytes.Repeat([]byte("a"), 1024))
	sumB    = sha256.Sum256(bytes.Repeat([]byte("b"), 1024))
	sumZero = sha256.Sum256(make([]byte, 1<<20))
)

// goldens are the frames of testdata, which were written by another program.
var goldens = []struct {
	name string
	want link.Message
}{
	{"hello", &link.Hello{
		Channel: link.ChannelLog, Ack: link.AckDisk, SegmentSize: wire.GiB, Min: 0, Verified: 4096, Flushed: 2048, Epoch: 3,
		Cluster: "DefaultCluster", BrokerName: "broker-a", Node: "b/broker-a/1", Version: "1.0.0",
		Digests: []link.Digest{{At: 0, Size: 1024, Sum: sumA}, {At: 3072, Size: 1024, Sum: sumB}},
	}},
	{"hello-empty", &link.Hello{
		Channel: link.ChannelMetadata, Ack: link.AckMemory,
		Min: wire.NoOffset, Verified: wire.NoOffset, Flushed: wire.NoOffset, Node: "n",
	}},
	{"welcome", &link.Welcome{
		SegmentSize: wire.GiB, Min: 0, Confirmed: 8192, Visible: 8448, Epoch: 3,
		Cluster: "DefaultCluster", BrokerName: "broker-a", Node: "a/broker-a/0", Version: "1.0.0",
		Head: link.Digest{At: 0, Size: 1024, Sum: sumA}, Verdicts: []link.Verdict{link.Equal, link.Differs},
	}},
	{"welcome-empty", &link.Welcome{Min: wire.NoOffset, Confirmed: wire.NoOffset, Visible: wire.NoOffset, Node: "m"}},
	{"refuse", &link.Refuse{Code: link.CodeWrongCluster, Text: `we replicate cluster "höch"`}},
	{"ask", &link.Ask{At: 4096, Size: wire.MiB}},
	{"answer", &link.Answer{At: 4096, Size: wire.MiB, Sum: sumZero}},
	{"answer-unknown", &link.Answer{At: 4096}},
	{"start", &link.Start{From: 4096}},
	{"transfer", &link.Transfer{At: 4096, Confirmed: 4100, Body: []byte("log bytes")}},
	{"report", &link.Report{Received: 4105, Verified: 4100, Flushed: 4096}},
	{"heartbeat", &link.Heartbeat{Min: 0, Confirmed: 4100, Visible: 4105}},
	{"heartbeat-replica", &link.Heartbeat{Min: wire.NoOffset, Confirmed: wire.NoOffset, Visible: wire.NoOffset}},
	{"snapshot", &link.Snapshot{Generation: 7, TakenAt: 1767225600000, SourceEnd: 4100, Files: []link.FileEntry{
		{Name: "topics.json", Size: 2, Sum: sha256.Sum256([]byte("{}")), Follows: true},
		{Name: "consumerOffset.json", Size: 3, Sum: sha256.Sum256([]byte("{ }"))},
	}}},
	{"snapshot-empty", &link.Snapshot{Generation: 1<<64 - 1, SourceEnd: wire.NoOffset}},
	{"file", &link.File{Index: 0, Offset: 0, Data: []byte("{}")}},
	{"goodbye", &link.Goodbye{Code: link.CodeStopping}},
	{"packed", &link.Packed{At: 4096, Confirmed: 4100, Size: 64, Sum: link.Sum(bytes.Repeat([]byte("a"), 64)), Data: []byte("\x28\xb5\x2f\xfd\x20\x40\x03\x02\x00a")}},
	{"proof", &link.Proof{MAC: [32]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}}},
}

// rawFrame makes a frame out of anything; the checksum is right.
func rawFrame(t, flags byte, reserved uint16, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	b = append(b, t, flags)
	b = binary.BigEndian.AppendUint16(b, reserved)
	crc := crc32.Checksum(append(bytes.Clone(b), payload...), crc32.MakeTable(crc32.Castagnoli))
	b = binary.BigEndian.AppendUint32(b, crc)
	return append(b, payload...)
}

// kinds are what a FrameError can match besides ErrFrame.
var kinds = []error{link.ErrTooLarge, link.ErrChecksum, link.ErrType, link.ErrUnexpected}

// wantKind fails unless err is a FrameError of exactly the given kind; ErrFrame
// stands for none of the narrower ones.
func wantKind(tb testing.TB, err, kind error) {
	tb.Helper()
	var fe *link.FrameError
	if !errors.As(err, &fe) || !errors.Is(err, link.ErrFrame) || !errors.Is(err, kind) || fe.Reason == "" {
		tb.Errorf("got %v, want %v", err, kind)
		return
	}
	for _, other := range kinds {
		if other != kind && errors.Is(err, other) {
			tb.Errorf("%v matches %v as well", err, other)
		}
	}
}
