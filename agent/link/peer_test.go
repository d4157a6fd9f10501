package link_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// peer is one end of a link in a test's own hands.
type peer struct {
	t       testing.TB
	conn    net.Conn
	session *link.Session
	welcome *wirelink.Welcome
}

// emptyHello is that of a replica which holds nothing.
func emptyHello(node string) *wirelink.Hello {
	return &wirelink.Hello{Channel: wirelink.ChannelLog, Ack: wirelink.AckMemory, SegmentSize: segmentSize, Min: wire.NoOffset, Verified: wire.NoOffset, Flushed: wire.NoOffset,
		Epoch: 1, Cluster: "c", BrokerName: "b", Node: node, Version: "test"}
}

// dialMaster shakes hands as a replica that says h.
func dialMaster(t testing.TB, m *master, h *wirelink.Hello) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", m.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p := &peer{t: t, conn: conn}
	if p.session, err = m.opt.security.Connect(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	if err := p.session.SendHello(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if p.welcome, err = p.session.ReadWelcome(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *peer) send(messages ...wirelink.Message) {
	p.t.Helper()
	for _, m := range messages {
		p.sendBytes(m.Append(nil))
	}
}

func (p *peer) sendBytes(b []byte) {
	p.t.Helper()
	if _, err := p.session.Conn().Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// next reads a message, or how the connection ends.
func (p *peer) next() (wirelink.Message, error) {
	p.t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
		p.t.Fatal(err)
	}
	typ, payload, err := p.session.Reader().Next()
	if err != nil {
		return nil, err
	}
	return wirelink.Decode(typ, payload)
}

// transfer reads on to the next transfer.
func (p *peer) transfer() *wirelink.Transfer {
	p.t.Helper()
	for {
		m, err := p.next()
		if err != nil {
			p.t.Fatal(err)
		}
		if tr, ok := m.(*wirelink.Transfer); ok {
			return tr
		}
	}
}

// upTo reads on until bytes up to end have come.
func (p *peer) upTo(end wire.PhyOffset) {
	p.t.Helper()
	for {
		if tr := p.transfer(); tr.At.Add(wire.ByteSize(len(tr.Body))) >= end {
			return
		}
	}
}

// goodbye reads on to the end of the connection and returns the code it was
// told, 0 for none.
func (p *peer) goodbye() wirelink.Code {
	p.t.Helper()
	for {
		m, err := p.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.t.Fatal("the connection goes on")
		}
		if err != nil {
			return 0
		}
		if bye, ok := m.(*wirelink.Goodbye); ok {
			return bye.Code
		}
	}
}

// fakeMaster serves one connection after the other with serve, which gets the
// peer behind the handshake and ends the connection.
func fakeMaster(t testing.TB, serve func(p *peer, start wire.PhyOffset)) (addr string, links func() int) {
	t.Helper()
	return fakeMasterOf(t, segmentSize, serve)
}

func fakeMasterOf(t testing.TB, segment wire.ByteSize, serve func(p *peer, start wire.PhyOffset)) (addr string, links func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	security := noSecurity(t)
	ended := make(chan struct{})
	count := make(chan int, 1)
	count <- 0
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			count <- <-count + 1
			fakeSession(t, security, conn, segment, serve)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return l.Addr().String(), func() int { n := <-count; count <- n; return n }
}

func fakeSession(t testing.TB, security *link.Security, conn net.Conn, segment wire.ByteSize, serve func(p *peer, start wire.PhyOffset)) {
	p := &peer{t: t, conn: conn}
	var err error
	if p.session, err = security.Accept(t.Context(), conn); err != nil {
		return // the follower stops
	}
	h, err := p.session.ReadHello(t.Context())
	if err != nil {
		return
	}
	w := &wirelink.Welcome{SegmentSize: segment, Min: 0, Confirmed: 0, Visible: 0, Epoch: 1, Cluster: "c", BrokerName: "b", Node: "master", Version: "test",
		Verdicts: make([]wirelink.Verdict, len(h.Digests))}
	for i := range w.Verdicts {
		w.Verdicts[i] = wirelink.Equal
	}
	if err := p.session.SendWelcome(t.Context(), w); err != nil {
		return
	}
	m, err := p.next()
	if err != nil {
		return
	}
	start, ok := m.(*wirelink.Start)
	if !ok {
		t.Errorf("the follower begins with %v", m.Type())
		return
	}
	serve(p, start.From)
	_, _ = io.Copy(io.Discard, conn) // until the follower has enough
}
