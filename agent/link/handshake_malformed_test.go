package link_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// reframe returns the frame with one byte of its payload changed and a checksum
// that is right.
func reframe(frame []byte, at int, to byte) []byte {
	b := bytes.Clone(frame)
	b[wirelink.HeaderSize+at] = to
	sum := crc32.Checksum(append(bytes.Clone(b[:8]), b[wirelink.HeaderSize:]...), crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(b[8:], sum)
	return b
}

// TestReadHello_MalformedWithTheKey: whoever has the key may still be broken.
func TestReadHello_MalformedWithTheKey(t *testing.T) {
	t.Parallel()
	const channel = 0 // its place in the payload
	peer, done := rawDialer(t, security(t, "clear", "a"))
	s := peer.greet()
	frame := reframe(hello().Append(nil), channel, 7)
	s.send(frame, s.prove("a", frame[wirelink.HeaderSize:]))
	s.wantRefused(wirelink.CodeProtocol)
	wantProblem(t, "listener", (<-done).err, state.ProtocolError, "link_protocol", "channel 7")
}

// TestReadWelcome_Malformed: the dialer says so, too, and looks into nothing that
// is not proven.
func TestReadWelcome_Malformed(t *testing.T) {
	t.Parallel()
	const epoch = 32 // its place in a Welcome's payload
	bad := reframe(welcome().Append(nil), epoch, 0xff)
	for _, c := range []struct {
		name, mode, keyBytes string
		answer               []byte
		code                 string
		want                 state.State
	}{
		{"a welcome", "auto", "", bad, "link_protocol", state.ProtocolError},
		{"an unproven welcome", "clear", "a", append(bytes.Clone(bad), (&wirelink.Proof{}).Append(nil)...), "wrong_key", state.Unauthorized},
		{"a refusal", "auto", "", reframe((&wirelink.Refuse{Code: 1}).Append(nil), 1, 0), "link_protocol", state.ProtocolError},
		{"a refusal instead of a proof", "clear", "a", (&wirelink.Refuse{Code: wirelink.CodeUnauthorized}).Append(welcome().Append(nil)), "wrong_key", state.Unauthorized},
		{"a transfer", "auto", "", (&wirelink.Transfer{Body: make([]byte, 1<<20)}).Append(nil)[:100], "link_protocol", state.ProtocolError},
		{"a goodbye", "auto", "", (&wirelink.Goodbye{Code: 1}).Append(nil), "link_protocol", state.ProtocolError},
		{"a heartbeat", "clear", "a", (&wirelink.Heartbeat{}).Append(nil), "link_protocol", state.ProtocolError},
	} {
		s := security(t, c.mode, c.keyBytes)
		peer, done := rawListener(t, s)
		peer.send(greeting(s.Mode()))
		peer.read(wirelink.GreetingSize)
		peer.send(c.answer)
		peer.end()
		wantProblem(t, c.name, (<-done).err, c.want, c.code)
	}
}

// TestConnect_AnotherTLSServer: an alert that is not about certificates is an
// error of the connection, not a wrong key.
func TestConnect_AnotherTLSServer(t *testing.T) {
	t.Parallel()
	cert := newAuthority(t).issue(t, "web", bothUses, longTime)
	pair, err := tls.LoadX509KeyPair(cert.cert, cert.key)
	if err != nil {
		t.Fatal(err)
	}
	peer, done := rawListener(t, security(t, "tls", "a"))
	peer.send(greeting(wirelink.ModeTLS))
	peer.read(wirelink.GreetingSize)
	server := tls.Server(peer.conn, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	_ = server.HandshakeContext(t.Context()) // fails: there is no common protocol
	if e := <-done; e.err == nil || state.AsProblem(e.err) != nil || !strings.Contains(e.err.Error(), "no application protocol") {
		t.Errorf("%v", e.err)
	}
}

// TestTLS_WhatIsOffered reads the settings that no handshake of ours shows.
func TestTLS_WhatIsOffered(t *testing.T) {
	t.Parallel()
	s := security(t, "tls", "a").Speaking(1, 3)
	for _, dialing := range []bool{true, false} {
		c := s.TLSConfig(dialing)
		if c.MinVersion != tls.VersionTLS13 || c.MaxVersion != tls.VersionTLS13 || !c.SessionTicketsDisabled || c.ClientSessionCache != nil ||
			c.ClientAuth != tls.RequireAnyClientCert || c.Renegotiation != tls.RenegotiateNever || c.VerifyConnection == nil || len(c.Certificates) != 1 {
			t.Errorf("dialing %v: %+v", dialing, c)
		}
		if got := strings.Join(c.NextProtos, " "); got != "haagent-link/3 haagent-link/2 haagent-link/1" {
			t.Errorf("protocols %s", got)
		}
		if err := c.VerifyConnection(tls.ConnectionState{}); err == nil {
			t.Error("a peer without a certificate is accepted")
		}
	}
	// And the last version there can be.
	if got := security(t, "tls", "a").Speaking(65534, 65535).TLSConfig(true).NextProtos; len(got) != 2 {
		t.Errorf("protocols %v", got)
	}
}

// TestHandshake_Intermediates: a chain may have more than two links.
func TestHandshake_Intermediates(t *testing.T) {
	t.Parallel()
	root := newAuthority(t)
	middle := root.authority(t)
	files := middle.issue(t, "node", bothUses, longTime)
	appendFile(t, files.cert, middle.pem)
	replaceFile(t, files.ca, root.pem)
	s := withFiles(t, files, nil)
	dialed, listened := handshake(t, s, s)
	wantTalk(t, dialed, listened)

	bare := middle.issue(t, "node", bothUses, longTime)
	replaceFile(t, bare.ca, root.pem)
	dialed, listened = handshake(t, withFiles(t, bare, nil), s)
	wantProblem(t, "dialer without the middle", dialed.err, state.Unauthorized, "wrong_certificate")
	wantProblem(t, "listener", listened.err, state.Unauthorized, "wrong_certificate", "unknown authority")

	replaceFile(t, bare.ca, []byte("nothing"))
	_, err := link.NewSecurity(link.SecurityOptions{Cert: bare.cert, Key: bare.key, CA: bare.ca})
	wantProblem(t, "empty CA", err, state.Unauthorized, "tls_files", bare.ca, "holds no certificate")
	_, err = link.NewSecurity(link.SecurityOptions{Cert: bare.cert, Key: files.key, CA: files.ca})
	wantProblem(t, "another's key", err, state.Unauthorized, "tls_files", bare.cert, files.key)
}

// TestHandshake_PeerGoesAway closes the other end at each step: an error of the
// connection, which is tried again, and never a Problem.
func TestHandshake_PeerGoesAway(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"tls", "clear"} {
		s := security(t, mode, "a")
		for name, says := range map[string][]byte{"at once": nil, "in the greeting": greeting(s.Mode())[:20], "behind the greeting": greeting(s.Mode())} {
			for side, connect := range map[string]func(testing.TB, *link.Security) (raw, <-chan end){"listener": rawDialer, "dialer": rawListener} {
				peer, done := connect(t, s)
				peer.send(says)
				peer.end()
				if e := <-done; e.err == nil || state.AsProblem(e.err) != nil || !strings.Contains(e.err.Error(), "127.0.0.1") {
					t.Errorf("%s, %s %s: %v", mode, side, name, e.err)
				}
			}
		}
	}
}
