package link_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"regexp"
	"testing"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// docBytes returns the blocks of bytes in docs/protocol.md by their names.
func docBytes(tb testing.TB) map[string][]byte {
	tb.Helper()
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		tb.Fatal(err)
	}
	blocks := map[string][]byte{}
	for _, m := range regexp.MustCompile("<!-- bytes: (\\S+) -->\n```text\n([0-9a-f \n]+)\n```").FindAllSubmatch(text, -1) {
		name := string(m[1])
		if blocks[name] != nil {
			tb.Errorf("%s stands there twice", name)
		}
		b, err := hex.DecodeString(string(bytes.Join(bytes.Fields(m[2]), nil)))
		if err != nil {
			tb.Errorf("%s: %v", name, err)
		}
		blocks[name] = b
	}
	if marks := bytes.Count(text, []byte("<!-- bytes:")); marks != len(blocks) {
		tb.Errorf("%d of %d blocks can be read", len(blocks), marks)
	}
	return blocks
}

// TestProtocolDoc makes each block of bytes in docs/protocol.md anew.
func TestProtocolDoc(t *testing.T) {
	t.Parallel()
	doc := docBytes(t)
	k, err := link.ParseKeys([]byte(base64.StdEncoding.EncodeToString(doc["key"])))
	if err != nil {
		t.Fatal(err)
	}
	nonce := func(first byte) (n [32]byte) {
		for i := range n {
			n[i] = first + byte(i)
		}
		return n
	}
	greeting := func(first byte) []byte {
		return wirelink.Greeting{Min: 1, Max: 2, Mode: wirelink.ModeClear, Nonce: nonce(first)}.Append(nil)
	}
	sum := func(letter string) [32]byte { return sha256.Sum256(bytes.Repeat([]byte(letter), 1024)) }
	hello := (&wirelink.Hello{
		Channel: wirelink.ChannelLog, Ack: wirelink.AckDisk, Accepts: wirelink.EncodingZstd, SegmentSize: wire.GiB, Min: 0, Verified: 4096, Flushed: 2048, Epoch: 3,
		Cluster: "DefaultCluster", BrokerName: "broker-a", Node: "b/broker-a/1", Version: "1.0.0",
		Digests: []wirelink.Digest{{At: 0, Size: 1024, Sum: sum("a")}, {At: 3072, Size: 1024, Sum: sum("b")}},
	}).Append(nil)
	welcome := (&wirelink.Welcome{
		SegmentSize: wire.GiB, Min: 0, Confirmed: 8192, Visible: 8448, Epoch: 3,
		Cluster: "DefaultCluster", BrokerName: "broker-a", Node: "a/broker-a/0", Version: "1.0.0",
		Head: wirelink.Digest{At: 0, Size: 1024, Sum: sum("a")}, Verdicts: []wirelink.Verdict{wirelink.Equal, wirelink.Differs},
	}).Append(nil)
	dialer, listener := link.Derive(t, k, "haagent link 1 clear dialer"), link.Derive(t, k, "haagent link 1 clear listener")
	said, asked := hello[wirelink.HeaderSize:], welcome[wirelink.HeaderSize:]
	seed := link.Derive(t, k, "haagent link 1 tls identity")
	want := map[string][]byte{
		"key":                k.Bytes()[0],
		"tls-seed":           seed,
		"tls-public":         ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey),
		"clear-dialer-key":   dialer,
		"clear-listener-key": listener,
		"listener-greeting":  greeting(0xa0),
		"dialer-greeting":    greeting(0xd0),
		"hello":              hello,
		"dialer-proof":       (&wirelink.Proof{MAC: link.ProofOf(dialer, greeting(0xd0), greeting(0xa0), said)}).Append(nil),
		"welcome":            welcome,
		"listener-proof":     (&wirelink.Proof{MAC: link.ProofOf(listener, greeting(0xd0), greeting(0xa0), said, asked)}).Append(nil),
		"start":              (&wirelink.Start{From: 4096}).Append(nil),
		"transfer":           (&wirelink.Transfer{At: 4096, Confirmed: 4100, Body: []byte("log bytes")}).Append(nil),
		"packed": (&wirelink.Packed{At: 4096, Confirmed: 4100, Size: 64, Sum: wirelink.Sum(bytes.Repeat([]byte("a"), 64)),
			Data: []byte("\x28\xb5\x2f\xfd\x20\x40\x03\x02\x00a")}).Append(nil),
		"report":    (&wirelink.Report{Received: 4105, Verified: 4100, Flushed: 4096}).Append(nil),
		"heartbeat": (&wirelink.Heartbeat{Min: 0, Confirmed: 4100, Visible: 4105}).Append(nil),
		"goodbye":   (&wirelink.Goodbye{Code: wirelink.CodeStopping}).Append(nil),
	}
	for name, b := range want {
		if !bytes.Equal(doc[name], b) {
			t.Errorf("%s is\n% x in docs/protocol.md, but\n% x here", name, doc[name], b)
		}
	}
	for name := range doc {
		if want[name] == nil {
			t.Errorf("%s in docs/protocol.md is not compared", name)
		}
	}
}

// TestProtocolDoc_IsSpoken plays the dialer's bytes of docs/protocol.md, with the
// nonces of today, to a listener, so that the order of things is the code's too.
func TestProtocolDoc_IsSpoken(t *testing.T) {
	t.Parallel()
	doc := docBytes(t)
	k, err := link.ParseKeys([]byte(base64.StdEncoding.EncodeToString(doc["key"])))
	if err != nil {
		t.Fatal(err)
	}
	s, err := link.NewSecurity(link.SecurityOptions{Mode: "clear", Keys: k})
	if err != nil {
		t.Fatal(err)
	}
	d, l := tcpPair(t)
	done := make(chan error, 1)
	ctx := t.Context()
	go func() {
		session, err := s.Accept(ctx, l)
		if err == nil {
			if _, err = session.ReadHello(ctx); err == nil {
				w := welcome()
				w.Verdicts = make([]wirelink.Verdict, 2)
				err = session.SendWelcome(ctx, w)
			}
		}
		done <- err
	}()
	peer := newRaw(t, d)
	theirs := peer.read(wirelink.GreetingSize)
	peer.send(doc["dialer-greeting"])
	mac := link.ProofOf(doc["clear-dialer-key"], doc["dialer-greeting"], theirs, doc["hello"][wirelink.HeaderSize:])
	peer.send(doc["hello"], (&wirelink.Proof{MAC: mac}).Append(nil))
	answer := peer.frame()
	if _, ok := answer.(*wirelink.Welcome); !ok {
		t.Fatalf("%+v", answer)
	}
	want := link.ProofOf(doc["clear-listener-key"], doc["dialer-greeting"], theirs, doc["hello"][wirelink.HeaderSize:], answer.Append(nil)[wirelink.HeaderSize:])
	if p, ok := peer.frame().(*wirelink.Proof); !ok || p.MAC != want {
		t.Errorf("the listener's proof is %+v", p)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
