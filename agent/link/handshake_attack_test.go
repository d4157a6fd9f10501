package link_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// TestAccept_SaysWhatConnects: what is no agent gets our greeting, which holds
// nothing, and not a byte more.
func TestAccept_SaysWhatConnects(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	noise[0] = 0xff // no beginning of anything
	for _, c := range []struct{ name, sent, say string }{
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "looks like a TLS handshake"},
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "looks like HTTP"},
		{"remoting", "\x00\x00\x00\x5e\x00\x00\x00\x57{\"code\":105}", "looks like RocketMQ remoting"},
		{"HA", "\x00\x00\x00\x00\x00\x00\x10\x00", "looks like the stock RocketMQ HA stream"},
		{"noise", string(noise), "looks like nothing known"},
	} {
		for mode, keyBytes := range map[string]string{"auto": "", "tls": "a", "clear": "a"} {
			peer, done := rawDialer(t, security(t, mode, keyBytes))
			peer.read(wirelink.GreetingSize)
			peer.send([]byte(c.sent))
			if got, _ := io.ReadAll(peer.conn); len(got) != 0 { // the end may be a reset
				t.Errorf("%s, %s: % x was sent", c.name, mode, got)
			}
			wantProblem(t, c.name, (<-done).err, state.ProtocolError, "not_link", c.say)
		}
	}
}

func TestConnect_SaysWhatAnswers(t *testing.T) {
	t.Parallel()
	peer, done := rawListener(t, security(t, "tls", "a"))
	peer.send([]byte("SSH-2.0-OpenSSH_9.6\r\n"))
	wantProblem(t, "dialer", (<-done).err, state.ProtocolError, "not_link", "looks like SSH", "--link-advertise")
}

// A stranger speaks mode clear by hand.
type stranger struct {
	raw
	ours, theirs []byte // greetings
}

// greet exchanges greetings with a listener.
func (r raw) greet() stranger {
	r.tb.Helper()
	s := stranger{raw: r, ours: greeting(wirelink.ModeClear)}
	s.theirs = r.read(wirelink.GreetingSize)
	r.send(s.ours)
	return s
}

// prove returns the frame of a proof by the key of one byte.
func (s stranger) prove(key string, payloads ...[]byte) []byte {
	derived := link.Derive(s.tb, keys(s.tb, key), "haagent link 1 clear dialer")
	return (&wirelink.Proof{MAC: link.ProofOf(derived, s.ours, s.theirs, payloads...)}).Append(nil)
}

// wantRefused fails unless the peer says nothing but a Refuse with that code.
func (s stranger) wantRefused(code wirelink.Code) {
	s.tb.Helper()
	s.end()
	rest := s.rest()
	r := wirelink.NewReader(bytes.NewReader(rest))
	typ, payload, err := r.Next()
	if err != nil || typ != wirelink.TypeRefuse {
		s.tb.Errorf("% x was sent: %v", rest, err)
		return
	}
	if got := wirelink.Code(binary.BigEndian.Uint16(payload)); got != code {
		s.tb.Errorf("refused with %v, want %v", got, code)
	}
	if _, _, err := r.Next(); err != io.EOF {
		s.tb.Errorf("more than a refusal was sent: % x", rest)
	}
}

// TestClear_NothingIsSaidToStrangers goes wrong in every way that a peer without
// the key can, and shows that the same by hand is right with it.
func TestClear_NothingIsSaidToStrangers(t *testing.T) {
	t.Parallel()
	frame := hello().Append(nil)
	payload := frame[wirelink.HeaderSize:]
	other := hello()
	other.Node = "another"
	for _, c := range []struct {
		name string
		send func(s stranger)
		code wirelink.Code // 0: accepted
		want string        // code of the listener's problem
	}{
		{"the key", func(s stranger) { s.send(frame, s.prove("a", payload)) }, 0, ""},
		{"another key", func(s stranger) { s.send(frame, s.prove("b", payload)) }, wirelink.CodeUnauthorized, "wrong_key"},
		{"a proof of nothing", func(s stranger) { s.send(frame, s.prove("a")) }, wirelink.CodeUnauthorized, "wrong_key"},
		{"zeros", func(s stranger) { s.send(frame, (&wirelink.Proof{}).Append(nil)) }, wirelink.CodeUnauthorized, "wrong_key"},
		{"a proof of another hello", func(s stranger) { s.send(frame, s.prove("a", other.Append(nil)[wirelink.HeaderSize:])) }, wirelink.CodeUnauthorized, "wrong_key"},
		{"a proof of the frame", func(s stranger) { s.send(frame, s.prove("a", frame)) }, wirelink.CodeUnauthorized, "wrong_key"},
		{"greetings the wrong way round", func(s stranger) {
			s.ours, s.theirs = s.theirs, s.ours
			s.send(frame, s.prove("a", payload))
		}, wirelink.CodeUnauthorized, "wrong_key"},
		{"no proof but an ask", func(s stranger) { s.send(frame, (&wirelink.Ask{Size: 1}).Append(nil)) }, wirelink.CodeProtocol, "link_protocol"},
		{"no hello but a start", func(s stranger) { s.send((&wirelink.Start{}).Append(nil)) }, wirelink.CodeProtocol, "link_protocol"},
		{"no hello but a transfer", func(s stranger) {
			s.send((&wirelink.Transfer{Body: make([]byte, wirelink.MaxTransfer)}).Append(nil)[:4096])
		}, wirelink.CodeProtocol, "link_protocol"},
		{"no hello but a report", func(s stranger) { s.send((&wirelink.Report{Verified: 1 << 40}).Append(nil)) }, wirelink.CodeProtocol, "link_protocol"},
		{"a hello that is too large", func(s stranger) {
			s.send(binary.BigEndian.AppendUint32(nil, wirelink.MaxHello+1), []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}, wirelink.CodeProtocol, "link_protocol"},
		{"an unknown type", func(s stranger) { s.send([]byte{0, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0}) }, wirelink.CodeProtocol, "link_protocol"},
		{"a hello with a wrong checksum", func(s stranger) { s.send(frame[:len(frame)-1], []byte{frame[len(frame)-1] ^ 1}) }, wirelink.CodeProtocol, "link_protocol"},
	} {
		peer, done := rawDialer(t, security(t, "clear", "a"))
		s := peer.greet()
		c.send(s)
		if c.code == 0 {
			if _, ok := s.frame().(*wirelink.Welcome); !ok {
				t.Errorf("%s: no welcome", c.name)
			}
			if _, ok := s.frame().(*wirelink.Proof); !ok {
				t.Errorf("%s: no proof", c.name)
			}
			if e := <-done; e.err != nil {
				t.Errorf("%s: %v", c.name, e.err)
			}
			continue
		}
		s.wantRefused(c.code)
		want := state.ProtocolError
		if c.want == "wrong_key" {
			want = state.Unauthorized
		}
		wantProblem(t, c.name, (<-done).err, want, c.want)
	}
}

// TestTLS_NothingIsSaidToStrangers: a client without a certificate, or with an
// old TLS, gets no application data.
func TestTLS_NothingIsSaidToStrangers(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*tls.Config{
		"no certificate":   {InsecureSkipVerify: true, NextProtos: []string{"haagent-link/1"}},
		"TLS 1.2":          {InsecureSkipVerify: true, NextProtos: []string{"haagent-link/1"}, MaxVersion: tls.VersionTLS12},
		"another protocol": {InsecureSkipVerify: true, NextProtos: []string{"h2"}},
		"no protocol":      {InsecureSkipVerify: true},
	} {
		peer, done := rawDialer(t, security(t, "tls", "a"))
		peer.read(wirelink.GreetingSize)
		peer.send(greeting(wirelink.ModeTLS))
		conn := tls.Client(peer.conn, config)
		if err := conn.HandshakeContext(t.Context()); err == nil {
			_, _ = conn.Write(hello().Append(nil)) // fails or not: the other end decides
			if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%s: an answer", name)
			}
		}
		if e := <-done; e.err == nil || e.session != nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// A recorder keeps what is sent and received on a connection.
type recorder struct {
	net.Conn
	mu         sync.Mutex
	sent, read []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	n, err := r.Conn.Write(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, b[:n]...)
	return n, err
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = append(r.read, b[:n]...)
	return n, err
}

// TestClear_OldSessionsProveNothing records a session and plays each side of it
// to the other one again.
func TestClear_OldSessionsProveNothing(t *testing.T) {
	t.Parallel()
	s := security(t, "clear", "a")
	d, l := tcpPair(t)
	tape := &recorder{Conn: d}
	dialed, listened := over(t, s, tape, s, l)
	if dialed.err != nil || listened.err != nil {
		t.Fatal(dialed.err, listened.err)
	}
	peer, done := rawDialer(t, s)
	peer.send(tape.sent)
	peer.end()
	wantProblem(t, "listener", (<-done).err, state.Unauthorized, "wrong_key")

	peer, done = rawListener(t, s)
	peer.send(tape.read)
	peer.end()
	wantProblem(t, "dialer", (<-done).err, state.Unauthorized, "wrong_key")
}

// TestClear_OwnWordsProveNothing sends back to an agent what it said itself.
func TestClear_OwnWordsProveNothing(t *testing.T) {
	t.Parallel()
	s := security(t, "clear", "a")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// A mirror: the listener's greeting comes back.
	peer, done := rawDialer(t, s)
	peer.send(peer.read(wirelink.GreetingSize))
	if e := <-done; !errors.Is(e.err, wirelink.ErrGreeting) || !strings.Contains(e.err.Error(), "our own greeting") {
		t.Errorf("%v", e.err)
	}

	// A listener that answers with the dialer's proof.
	d, l := tcpPair(t)
	go func() {
		r := newRaw(t, l)
		r.send(greeting(wirelink.ModeClear))
		r.read(wirelink.GreetingSize)
		frames := wirelink.NewReader(l)
		_, _, _ = frames.Next()
		_, proof, err := frames.Next()
		if err != nil {
			t.Error(err)
		}
		answer := welcome().Append(nil)
		answer = (&wirelink.Proof{MAC: [32]byte(proof)}).Append(answer)
		r.send(answer)
		r.end()
	}()
	wantProblem(t, "dialer", dial(ctx, s, d).err, state.Unauthorized, "wrong_key")

	// Two agents of which each is made to believe that the other one dialed.
	a, b := tcpPair(t)
	hasty := securityWithin(t, "clear", "a", 200*time.Millisecond)
	first, second := make(chan end), make(chan end)
	go func() { first <- listen(ctx, hasty, a) }()
	go func() { second <- listen(ctx, hasty, b) }()
	got := [2]end{<-first, <-second}
	for _, e := range got {
		if e.session != nil || e.err == nil {
			t.Error("two listeners have shaken hands")
		}
	}
}

// A forger changes the greetings that an agent reads.
type forger struct {
	net.Conn
	seen int
	at   int
	to   byte
}

func (f *forger) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if f.at >= f.seen && f.at < f.seen+n {
		b[f.at-f.seen] = f.to
	}
	f.seen += n
	return n, err
}

// TestHandshake_NobodyLowersTheVersion: both ends speak 1 and 2, and somebody
// between them makes each believe that the other one speaks 1 only.
func TestHandshake_NobodyLowersTheVersion(t *testing.T) {
	t.Parallel()
	const maxVersion = 11 // its place in the greeting
	s := security(t, "tls", "a").Speaking(1, 2)
	d, l := tcpPair(t)
	dialed, listened := over(t, s, &forger{Conn: d, at: maxVersion, to: 1}, s, &forger{Conn: l, at: maxVersion, to: 1})
	wantProblem(t, "dialer", dialed.err, state.ProtocolError, "link_downgrade", "haagent-link/1", "haagent-link/2")
	if listened.err == nil {
		t.Error("the listener goes on")
	}
	s = security(t, "clear", "a").Speaking(1, 2)
	d, l = tcpPair(t)
	dialed, listened = over(t, s, &forger{Conn: d, at: maxVersion, to: 1}, s, &forger{Conn: l, at: maxVersion, to: 1})
	wantProblem(t, "dialer", dialed.err, state.Unauthorized, "wrong_key")
	wantProblem(t, "listener", listened.err, state.Unauthorized, "wrong_key")
}

// TestHandshake_NobodyLowersTheMode: whoever changes the modes in the greetings
// gets a connection that does not come about.
func TestHandshake_NobodyLowersTheMode(t *testing.T) {
	t.Parallel()
	const mode = 12 // its place in the greeting
	for _, from := range []string{"tls", "clear"} {
		s := security(t, from, "a")
		for _, to := range []wirelink.Mode{wirelink.ModeNone, wirelink.ModeTLS, wirelink.ModeClear} {
			if to == s.Mode() {
				continue
			}
			d, l := tcpPair(t)
			dialed, listened := over(t, s, &forger{Conn: d, at: mode, to: byte(to)}, s, &forger{Conn: l, at: mode, to: byte(to)})
			wantProblem(t, "dialer", dialed.err, state.Incompatible, "link_security")
			wantProblem(t, "listener", listened.err, state.Incompatible, "link_security")
		}
	}
}

// TestClear_NobodyChangesTheWelcome: what the listener says is proven as well.
func TestClear_NobodyChangesTheWelcome(t *testing.T) {
	t.Parallel()
	s := securityWithin(t, "clear", "a", 0) // the dialer lingers
	frame := welcome().Append(nil)
	changed := welcome()
	changed.Confirmed--
	d, l := tcpPair(t)
	dialed, listened := over(t, s, d, s, &replacer{Conn: l, old: frame, put: changed.Append(nil)})
	if listened.err != nil {
		t.Fatal(listened.err)
	}
	defer listened.session.Close()
	wantProblem(t, "dialer", dialed.err, state.Unauthorized, "wrong_key")
}

// A replacer changes what is written.
type replacer struct {
	net.Conn
	old, put []byte
}

func (r *replacer) Write(b []byte) (int, error) {
	if _, err := r.Conn.Write(bytes.Replace(b, r.old, r.put, 1)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// TestAccept_ReadsLittleOfStrangers floods a listener with what it expects, more
// of it, and never the right proof.
func TestAccept_ReadsLittleOfStrangers(t *testing.T) {
	t.Parallel()
	d, l := tcpPair(t)
	tape := &recorder{Conn: l}
	done := make(chan end)
	ctx := t.Context()
	s := security(t, "clear", "a")
	go func() { done <- listen(ctx, s, tape) }()
	peer := newRaw(t, d).greet()
	peer.send(hello().Append(nil), (&wirelink.Proof{}).Append(nil))
	flood := bytes.Repeat([]byte("flood"), 1<<20)
	_, _ = d.Write(flood) // until the other end closes
	wantProblem(t, "listener", (<-done).err, state.Unauthorized, "wrong_key")
	if most := 128 << 10; len(tape.read) > most {
		t.Errorf("%d bytes were read, want at most %d", len(tape.read), most)
	}
}

// TestWelcome_VerdictsMatchTheDigests: an answer to another question is none.
func TestWelcome_VerdictsMatchTheDigests(t *testing.T) {
	t.Parallel()
	peer, done := rawListener(t, security(t, "auto", ""))
	peer.send(greeting(wirelink.ModeNone))
	peer.read(wirelink.GreetingSize)
	w := welcome()
	w.Verdicts = append(w.Verdicts, wirelink.Equal)
	peer.send(w.Append(nil))
	peer.end()
	wantProblem(t, "dialer", (<-done).err, state.ProtocolError, "link_protocol", "2 verdicts on 1 digests")
}
