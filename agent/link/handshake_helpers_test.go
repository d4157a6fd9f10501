package link_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// tcpPair returns both ends of a connection over loopback.
func tcpPair(tb testing.TB) (dialer, listener *net.TCPConn) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	d, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { d.Close(); c.Close() })
	return d.(*net.TCPConn), c.(*net.TCPConn)
}

// hello and welcome are what the tests' agents say.
func hello() *wirelink.Hello {
	return &wirelink.Hello{
		Channel: wirelink.ChannelLog, Ack: wirelink.AckMemory, Min: 0, Verified: 100, Flushed: 50, Cluster: "c", BrokerName: "b", Node: "replica",
		Digests: []wirelink.Digest{{At: 0, Size: 100}},
	}
}

func welcome() *wirelink.Welcome {
	return &wirelink.Welcome{
		Min: 0, Confirmed: 200, Visible: 200, Cluster: "c", BrokerName: "b", Node: "master",
		Verdicts: []wirelink.Verdict{wirelink.Equal},
	}
}

// An end is what one side of a handshake came to.
type end struct {
	session *link.Session
	err     error
}

// dial does the dialing side on conn.
func dial(ctx context.Context, s *link.Security, conn net.Conn) end {
	session, err := s.Connect(ctx, conn)
	if err != nil {
		return end{err: err}
	}
	if err := session.SendHello(ctx, hello()); err != nil {
		return end{err: err}
	}
	w, err := session.ReadWelcome(ctx)
	if err != nil {
		return end{err: err}
	}
	if w.Node != "master" {
		return end{err: errors.New("another welcome")}
	}
	return end{session: session}
}

// listen does the listening side on conn.
func listen(ctx context.Context, s *link.Security, conn net.Conn) end {
	session, err := s.Accept(ctx, conn)
	if err != nil {
		return end{err: err}
	}
	h, err := session.ReadHello(ctx)
	if err != nil {
		return end{err: err}
	}
	if h.Node != "replica" {
		return end{err: errors.New("another hello")}
	}
	if err := session.SendWelcome(ctx, welcome()); err != nil {
		return end{err: err}
	}
	return end{session: session}
}

// handshake runs both sides over loopback.
func handshake(tb testing.TB, dialing, listening *link.Security) (dialed, listened end) {
	tb.Helper()
	d, l := tcpPair(tb)
	return over(tb, dialing, d, listening, l)
}

// over runs both sides on two connections.
func over(tb testing.TB, dialing *link.Security, d net.Conn, listening *link.Security, l net.Conn) (dialed, listened end) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	done := make(chan end)
	go func() { done <- listen(ctx, listening, l) }()
	dialed = dial(ctx, dialing, d)
	return dialed, <-done
}

// wantProblem fails unless err is a Problem of that code with a next step.
func wantProblem(tb testing.TB, side string, err error, s state.State, code string, say ...string) {
	tb.Helper()
	p := state.AsProblem(err)
	if p == nil || p.State != s || p.Code != code || p.Reason == "" || p.Try == "" {
		tb.Errorf("%s: %v, want %s %s", side, err, s, code)
		return
	}
	for _, text := range say {
		if !strings.Contains(p.Reason+" "+p.Try+" "+err.Error(), text) {
			tb.Errorf("%s: %v (try: %s) does not say %q", side, err, p.Try, text)
		}
	}
}

// wantTalk fails unless frames pass both ways.
func wantTalk(tb testing.TB, dialed, listened end) {
	tb.Helper()
	if dialed.err != nil || listened.err != nil {
		tb.Errorf("dialer: %v; listener: %v", dialed.err, listened.err)
		return
	}
	defer dialed.session.Close()
	defer listened.session.Close()
	for _, pair := range [][2]*link.Session{{dialed.session, listened.session}, {listened.session, dialed.session}} {
		sent := make(chan error, 1)
		body := bytes.Repeat([]byte("log"), 100_000)
		go func() {
			frame := wirelink.AppendTransfer(nil, 7, 7, body)
			_, err := pair[0].Conn().Write(append(frame, body...))
			sent <- err
		}()
		if err := pair[1].Conn().SetReadDeadline(time.Now().Add(patience)); err != nil {
			tb.Error(err)
		}
		typ, payload, err := pair[1].Reader().Next()
		if err != nil || typ != wirelink.TypeTransfer {
			tb.Errorf("%v, %v", typ, err)
			return
		}
		if _, _, got, err := wirelink.ParseTransfer(payload); err != nil || !bytes.Equal(got, body) {
			tb.Errorf("%d bytes, %v", len(got), err)
		}
		if err := <-sent; err != nil {
			tb.Error(err)
		}
	}
	if dialed.session.Version() != wirelink.MaxVersion || listened.session.Version() != wirelink.MaxVersion {
		tb.Errorf("versions %d and %d", dialed.session.Version(), listened.session.Version())
	}
}

// A raw is a peer that is written by hand.
type raw struct {
	tb   testing.TB
	conn net.Conn
}

// rawDialer connects by hand to a listener, whose end is sent when it is over.
func rawDialer(tb testing.TB, listening *link.Security) (raw, <-chan end) {
	tb.Helper()
	d, l := tcpPair(tb)
	done := make(chan end, 1)
	ctx := tb.Context()
	go func() { done <- listen(ctx, listening, l) }()
	return newRaw(tb, d), done
}

// rawListener is connected to by a dialer, whose end is sent when it is over.
func rawListener(tb testing.TB, dialing *link.Security) (raw, <-chan end) {
	tb.Helper()
	d, l := tcpPair(tb)
	done := make(chan end, 1)
	ctx := tb.Context()
	go func() { done <- dial(ctx, dialing, d) }()
	return newRaw(tb, l), done
}

func newRaw(tb testing.TB, conn net.Conn) raw {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	return raw{tb, conn}
}

func (r raw) send(parts ...[]byte) {
	r.tb.Helper()
	for _, p := range parts {
		if _, err := r.conn.Write(p); err != nil {
			r.tb.Fatal(err)
		}
	}
}

// end says that nothing more will come.
func (r raw) end() {
	r.tb.Helper()
	if err := r.conn.(*net.TCPConn).CloseWrite(); err != nil {
		r.tb.Fatal(err)
	}
}

// read returns the next n bytes.
func (r raw) read(n int) []byte {
	r.tb.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(r.conn, b); err != nil {
		r.tb.Fatal(err)
	}
	return b
}

// frame returns the next frame's message.
func (r raw) frame() wirelink.Message {
	r.tb.Helper()
	typ, payload, err := wirelink.NewReader(r.conn).Next()
	if err != nil {
		r.tb.Fatal(err)
	}
	m, err := wirelink.Decode(typ, bytes.Clone(payload))
	if err != nil {
		r.tb.Fatal(err)
	}
	return m
}

// rest returns everything until the peer closes.
func (r raw) rest() []byte {
	r.tb.Helper()
	b, err := io.ReadAll(r.conn)
	if err != nil {
		r.tb.Fatal(err)
	}
	return b
}

func greeting(mode wirelink.Mode) []byte {
	g := wirelink.Greeting{Min: 1, Max: 1, Mode: mode}
	_, _ = rand.Read(g.Nonce[:])
	return g.Append(nil)
}
