package discovery

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var sample = Member{
	Role: "master", Cluster: "DefaultCluster", BrokerName: "broker-a", BrokerID: 1, Link: "10.0.0.1:10915",
	HA: "", Remoting: "[::1]:10911", Epoch: 258, Version: "1.0",
}

const sampleHex = "01" + "0000000000000001" + "0000000000000102" +
	"066d6173746572" + "0e44656661756c74436c7573746572" + "0862726f6b65722d61" +
	"0e31302e302e302e313a3130393135" + "00" + "0b5b3a3a315d3a3130393131" + "03312e30"

func TestMeta_Bytes(t *testing.T) {
	t.Parallel()
	got, err := encodeMeta(sample)
	if err != nil || hex.EncodeToString(got) != sampleHex {
		t.Fatalf("it is %x, %v", got, err)
	}
	back := Member{Node: "n", Addr: "a:1", Status: Alive}
	want := sample
	want.Node, want.Addr, want.Status = "n", "a:1", Alive
	if err := decodeMeta(got, &back); err != nil || back != want {
		t.Errorf("it came back as %+v, %v", back, err)
	}
	// A later version of the program may say more.
	if err := decodeMeta(append(got, 1, 2, 3), &back); err != nil || back != want {
		t.Errorf("with more behind it, it came back as %+v, %v", back, err)
	}
}

// Whatever cannot be read leaves the member as it was.
func TestMeta_Unreadable(t *testing.T) {
	t.Parallel()
	good, err := encodeMeta(sample)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string][]byte{
		"another version": append([]byte{2}, good[1:]...),
		"version 0":       make([]byte, 40),
		"too long":        append(slices.Clone(good), make([]byte, MaxMeta)...),
		"control":         bytes.Replace(good, []byte("broker-a"), []byte("broker\n\x00"), 1),
		"no UTF-8":        bytes.Replace(good, []byte("broker-a"), []byte("broker\xff\xfe"), 1),
	}
	for n := range good {
		bad[fmt.Sprintf("cut at %d", n)] = good[:n]
	}
	for name, meta := range bad {
		m := Member{Node: "n", Addr: "a:1", Role: "kept"}
		if err := decodeMeta(meta, &m); !errors.Is(err, errMeta) || m != (Member{Node: "n", Addr: "a:1", Role: "kept"}) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// metaOf returns a member whose meta takes n bytes.
func metaOf(t testing.TB, n int) Member {
	t.Helper()
	m := Member{Node: "n", Cluster: strings.Repeat("c", 250), BrokerName: strings.Repeat("b", n-metaHead-7-250)}
	return m
}

func TestMeta_Limit(t *testing.T) {
	t.Parallel()
	for n, ok := range map[int]bool{511: true, 512: true, 513: false} {
		m := metaOf(t, n)
		got, err := encodeMeta(m)
		if ok && (err != nil || len(got) != n) {
			t.Errorf("%d: %d bytes, %v", n, len(got), err)
		}
		var wrong *OptionError
		if !ok && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), "513 bytes") || wrong.Option != "cluster") {
			t.Errorf("%d: it says %v", n, err)
		}
		opt := options("a")
		opt.Self = m
		g, err := New(opt)
		if (err == nil) != ok {
			t.Fatalf("%d: New says %v", n, err)
		}
		if ok {
			a := run(t, g, &logBook{})
			b := start(t, options("b", a.Addr()))
			b.sees(Alive, "n")
			if got := b.member("n"); got.Cluster != m.Cluster || got.BrokerName != m.BrokerName {
				t.Errorf("%d: it came as %+v", n, got)
			}
		}
	}
}

// A change that does not fit is refused and changes nothing.
func TestMeta_ChangeThatDoesNotFit(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Self = metaOf(t, 512)
	opt.Self.Node = "a"
	a := start(t, opt)
	b := start(t, options("b", a.Addr()))
	b.sees(Alive, "a")
	before := a.member("a")
	var wrong *OptionError
	if err := a.SetSelf(func(m *Member) { m.Version = "1"; m.Epoch = 9 }); !errors.As(err, &wrong) {
		t.Errorf("it says %v", err)
	}
	if got := a.member("a"); got != before {
		t.Errorf("it is %+v now", got)
	}
	if err := a.SetSelf(func(m *Member) { m.Epoch = 10 }); err != nil {
		t.Error(err)
	}
	eventually(t, "b has the epoch", func() bool { return b.member("a").Epoch == 10 })
}

func TestMeta_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~äöü語]{0,40}`)
		m := Member{
			Node: "n", Role: text.Draw(t, "role"), Cluster: text.Draw(t, "cluster"), BrokerName: text.Draw(t, "name"),
			BrokerID: rapid.Int64().Draw(t, "id"), Link: text.Draw(t, "link"), Epoch: rapid.Int64().Draw(t, "epoch"),
		}
		got, err := encodeMeta(m)
		if err != nil {
			t.Fatal(err)
		}
		back := Member{Node: "n"}
		if err := decodeMeta(got, &back); err != nil || back != m {
			t.Fatalf("%+v came back as %+v, %v", m, back, err)
		}
	})
}

// FuzzMeta: no bytes are a fault, and what can be read has one encoding, but for
// what a later version adds behind it.
func FuzzMeta(f *testing.F) {
	if files, err := filepath.Glob("testdata/fuzz/FuzzMeta/*"); err != nil || len(files) == 0 {
		f.Fatalf("the corpus is empty: %v", err)
	}
	f.Fuzz(func(t *testing.T, meta []byte) {
		before := Member{Node: "n", Addr: "a:1", Status: Alive}
		m := before
		err := decodeMeta(meta, &m)
		if err != nil {
			if !errors.Is(err, errMeta) || m != before {
				t.Fatalf("%+v, %v", m, err)
			}
			return
		}
		again, err := encodeMeta(m)
		if err != nil || !bytes.HasPrefix(meta, again) {
			t.Fatalf("%x became %x, %v", meta, again, err)
		}
	})
}
