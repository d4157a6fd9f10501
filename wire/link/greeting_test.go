package link_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire/link"
)

func goldenNonce() (nonce [32]byte) {
	for i := range nonce {
		nonce[i] = 0xa0 + byte(i)
	}
	return nonce
}

func TestGreeting_Golden(t *testing.T) {
	for name, want := range map[string]link.Greeting{
		"greeting":        {Min: 1, Max: 1, Mode: link.ModeClear, Nonce: goldenNonce()},
		"greeting-future": {Min: 3, Max: 5, Mode: link.ModeTLS, Nonce: goldenNonce()},
	} {
		b := golden(t, name)
		got, err := link.ParseGreeting(b)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if again := want.Append([]byte("x")); !bytes.Equal(again[1:], b) {
			t.Errorf("%s: written as % x", name, again[1:])
		}
		got, err = link.ReadGreeting(iotest.OneByteReader(bytes.NewReader(b)))
		if err != nil || got != want {
			t.Errorf("%s in single bytes: %+v, %v", name, got, err)
		}
	}
}

// TestGreeting_FutureVersion: a peer that has left our version behind is
// understood well enough to be told apart.
func TestGreeting_FutureVersion(t *testing.T) {
	ours := link.Greeting{Min: link.MinVersion, Max: link.MaxVersion}
	theirs, err := link.ParseGreeting(golden(t, "greeting-future"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = link.Negotiate(ours, theirs)
	var ve *link.VersionError
	if !errors.As(err, &ve) || !errors.Is(err, link.ErrVersion) || ve.Ours != (link.Versions{Min: 1, Max: 2}) || ve.Theirs != (link.Versions{Min: 3, Max: 5}) {
		t.Fatalf("%+v", err)
	}
	if want := "no common link version: we speak 1 to 2, the peer speaks 3 to 5"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		ours, theirs link.Versions
		want         uint16 // 0: none
	}{
		{link.Versions{Min: 1, Max: 1}, link.Versions{Min: 1, Max: 1}, 1},
		{link.Versions{Min: 1, Max: 3}, link.Versions{Min: 2, Max: 5}, 3},
		{link.Versions{Min: 1, Max: 9}, link.Versions{Min: 4, Max: 4}, 4},
		{link.Versions{Min: 1, Max: 1}, link.Versions{Min: 2, Max: 2}, 0},
		{link.Versions{Min: 1, Max: 65535}, link.Versions{Min: 65535, Max: 65535}, 65535},
	} {
		for range 2 {
			a, b := link.Greeting{Min: c.ours.Min, Max: c.ours.Max}, link.Greeting{Min: c.theirs.Min, Max: c.theirs.Max}
			got, err := link.Negotiate(a, b)
			if got != c.want || (err == nil) != (c.want != 0) {
				t.Errorf("%v and %v: %d, %v", c.ours, c.theirs, got, err)
			}
			c.ours, c.theirs = c.theirs, c.ours
		}
	}
}

// TestNegotiate_HighestOfBoth compares with the definition.
func TestNegotiate_HighestOfBoth(t *testing.T) {
	ends := rapid.Custom(func(rt *rapid.T) link.Greeting {
		from := rapid.Uint16Range(1, 12).Draw(rt, "min")
		return link.Greeting{Min: from, Max: rapid.Uint16Range(from, 12).Draw(rt, "max")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		a, b := ends.Draw(rt, "ours"), ends.Draw(rt, "theirs")
		want := uint16(0)
		for v := uint16(1); v <= 12; v++ {
			if v >= a.Min && v <= a.Max && v >= b.Min && v <= b.Max {
				want = v
			}
		}
		got, err := link.Negotiate(a, b)
		other, otherErr := link.Negotiate(b, a)
		if got != want || other != want || (err == nil) != (want != 0) || (otherErr == nil) != (want != 0) {
			rt.Fatalf("%d (%v) and %d (%v), want %d", got, err, other, otherErr, want)
		}
	})
}

func TestGreeting_CutAtEveryByte(t *testing.T) {
	b := golden(t, "greeting")
	for cut := range b {
		want := io.ErrUnexpectedEOF
		if cut == 0 {
			want = io.EOF
		}
		if _, err := link.ParseGreeting(b[:cut]); err != want {
			t.Errorf("cut at %d: %v", cut, err)
		}
		if _, err := link.ReadGreeting(bytes.NewReader(b[:cut])); err != want {
			t.Errorf("read, cut at %d: %v", cut, err)
		}
	}
}

func TestGreeting_RefusesValues(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int
		to   byte
		say  string
	}{
		{"magic", 7, '\r', "looks like nothing known"},
		{"version 0", 9, 0, "versions 0 to 1"},
		{"versions the wrong way round", 9, 2, "versions 2 to 1"},
		{"mode", 12, 3, "mode 3 is unknown"},
		{"reserved", 13, 1, "reserved bytes 01 00 00"},
		{"reserved", 14, 1, "reserved bytes 00 01 00"},
		{"reserved", 15, 1, "reserved bytes 00 00 01"},
	} {
		b := golden(t, "greeting")
		b[c.at] = c.to
		_, err := link.ParseGreeting(b)
		var ge *link.GreetingError
		if !errors.As(err, &ge) || !errors.Is(err, link.ErrGreeting) || !errors.Is(err, link.ErrFrame) || !strings.Contains(err.Error(), c.say) || !bytes.Equal(ge.Head, b) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := link.ParseGreeting(append(golden(t, "greeting"), 0)); !errors.Is(err, link.ErrGreeting) || !strings.Contains(err.Error(), "1 bytes too many") {
		t.Errorf("49 bytes: %v", err)
	}
	for _, g := range []link.Greeting{{Min: 0, Max: 1}, {Min: 2, Max: 1}, {Min: 1, Max: 1, Mode: 3}} {
		if !panics(func() { g.Append(nil) }) {
			t.Errorf("%+v is sent", g)
		}
	}
}

// TestReadGreeting_SaysWhatItLooksLike feeds what other programs open with. The
// peer then waits: the answer must come without another byte.
func TestReadGreeting_SaysWhatItLooksLike(t *testing.T) {
	remoting := "\x00\x00\x00\x5e\x00\x00\x00\x57{\"code\":105}"
	for _, c := range []struct{ name, head, want string }{
		{"TLS ClientHello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS handshake"},
		{"TLS alert", "\x15\x03\x03\x00\x02\x02\x2a\x00", "a TLS alert"},
		{"HTTP request", "GET / HTTP/1.1\r\n", "HTTP"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n", "HTTP"},
		{"HTTP answer", "HTTP/1.1 400 Bad Request\r\n", "HTTP"},
		{"HTTP post", "POST /v1 HTTP/1.1", "HTTP"},
		{"SSH", "SSH-2.0-OpenSSH_9.6\r\n", "SSH"},
		{"remoting, JSON", remoting, "RocketMQ remoting"},
		{"remoting, binary", "\x00\x00\x00\x30\x01\x00\x00\x20\x00\x69\x00\x00", "RocketMQ remoting"},
		{"HA report of 0", "\x00\x00\x00\x00\x00\x00\x00\x00", "the stock RocketMQ HA stream"},
		{"HA report above 4 GiB", "\x00\x00\x00\x05\x00\x00\x10\x00", "the stock RocketMQ HA stream"},
		{"HA frame", "\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x05hello", "the stock RocketMQ HA stream"},
		{"random", "\x9b\x1f\x02\xee\x10\x88\x01\x5c\x77", "nothing known"},
		{"another text", "haagent is no agent", "nothing known"},
	} {
		for name, from := range map[string]io.Reader{
			"and then nothing": &chain{parts: []io.Reader{strings.NewReader(c.head), stalled{t}}},
			"and then the end": strings.NewReader(c.head),
		} {
			_, err := link.ReadGreeting(from)
			if !errors.Is(err, link.ErrGreeting) || !strings.Contains(err.Error(), "looks like "+c.want) {
				t.Errorf("%s %s: %v", c.name, name, err)
			}
		}
	}
}

// stalled fails a test that reads it.
type stalled struct{ tb testing.TB }

func (s stalled) Read([]byte) (int, error) {
	s.tb.Error("read on after bytes that open no greeting")
	return 0, io.EOF
}

func TestReadGreeting_FewWrongBytes(t *testing.T) {
	for _, end := range []error{io.EOF, os.ErrDeadlineExceeded} {
		_, err := link.ReadGreeting(&chain{parts: []io.Reader{strings.NewReader("GET"), iotest.ErrReader(end)}})
		if !errors.Is(err, link.ErrGreeting) {
			t.Errorf("GET and %v: %v", end, err)
		}
	}
	_, err := link.ReadGreeting(&chain{parts: []io.Reader{strings.NewReader("haa"), iotest.ErrReader(os.ErrDeadlineExceeded)}})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the beginning and a deadline: %v", err)
	}
}

func TestReadGreeting_StaysWithinTheGreeting(t *testing.T) {
	from := bytes.NewReader(append(golden(t, "greeting"), "TLS"...))
	if _, err := link.ReadGreeting(from); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(from); string(rest) != "TLS" {
		t.Errorf("%q is left", rest)
	}
}
