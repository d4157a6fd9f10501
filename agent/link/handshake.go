package link

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// A connection that was refused is read on for a part of the handshake timeout
// and a number of bytes, so that the peer gets what was said last: a socket that
// is closed with unread bytes takes back what it has sent.
const (
	lingerPart = 5
	lingerSize = 64 << 10
)

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// Session is a connection between two agents that have greeted each other. The
// dialing side goes on with SendHello and ReadWelcome, the listening side with
// ReadHello and SendWelcome; Conn and Reader are for what follows. Every method
// that returns an error has closed the connection. A session is used by one
// goroutine until its handshake is over.
type Session struct {
	security  *Security
	raw       net.Conn // what deadlines and half-closing work on
	conn      net.Conn // raw, or TLS over it
	reader    *wirelink.Reader
	dialing   bool
	deadline  time.Time // by which the peer has to have proven itself
	version   uint16
	greetings [2][]byte // dialer's and listener's, as sent
	hello     []byte    // its payload, until the Welcome is done
	digests   int       // of the Hello
	provenBy  int       // which of our keys the dialer has proven
}

// Conn returns the connection: the one given to Accept or Connect, or TLS over
// it. Frames may be written to it once the handshake is over.
func (s *Session) Conn() net.Conn { return s.conn }

// Reader returns the reader of the connection's frames.
func (s *Session) Reader() *wirelink.Reader { return s.reader }

// Version returns the version that both ends speak.
func (s *Session) Version() uint16 { return s.version }

// Close closes the connection without a word.
func (s *Session) Close() error { return s.raw.Close() }

// Refuse tells the peer why it gets no answer, or no more of them, and closes
// the connection. It takes a fifth of the handshake timeout at most, a second where
// that was not set. The error is that of sending.
func (s *Session) Refuse(code wirelink.Code, text string) error {
	return s.farewell(&wirelink.Refuse{Code: code, Text: wirelink.Text(text)})
}

// farewell sends a last message; nil: none besides what TLS has said.
func (s *Session) farewell(last wirelink.Message) error {
	defer s.raw.Close()
	if err := s.raw.SetDeadline(time.Now().Add(s.security.timeout / lingerPart)); err != nil {
		return err
	}
	if last != nil {
		if _, err := s.conn.Write(last.Append(nil)); err != nil {
			return fmt.Errorf("send the %v to %v: %w", last.Type(), s.raw.RemoteAddr(), err)
		}
		if t, ok := s.conn.(*tls.Conn); ok {
			_ = t.CloseWrite() // the peer has the message, with or without this
		}
	}
	if half, ok := s.raw.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			return nil
		}
	}
	_, _ = io.CopyN(io.Discard, s.raw, lingerSize) // until the peer closes, in most cases
	return nil
}

// open greets and shakes hands.
func (s *Security) open(ctx context.Context, conn net.Conn, dialing bool) (*Session, error) {
	s = s.current() // and no other until the end of the handshake
	sn := &Session{security: s, raw: conn, conn: conn, dialing: dialing, deadline: time.Now().Add(s.timeout), provenBy: -1}
	err := sn.step(ctx, sn.deadline, func() error {
		if err := s.permits(conn.RemoteAddr()); err != nil {
			return err
		}
		if err := sn.greet(); err != nil {
			return err
		}
		if s.mode != wirelink.ModeTLS {
			return nil
		}
		return sn.shake(ctx)
	})
	if err != nil {
		return nil, err
	}
	sn.reader = wirelink.NewReader(sn.conn)
	return sn, nil
}

// A handshakeError is one that the peer is told about before the connection is
// closed. Without a message it has been told by TLS.
type handshakeError struct {
	message wirelink.Message
	err     error
}

func (r *handshakeError) Error() string { return r.err.Error() }
func (r *handshakeError) Unwrap() error { return r.err }

func refuseWith(code wirelink.Code, text string, err error) error {
	return &handshakeError{message: &wirelink.Refuse{Code: code, Text: wirelink.Text(text)}, err: err}
}

// step runs one step of the handshake, ends it with ctx or at the deadline, and
// closes the connection if it fails.
func (s *Session) step(ctx context.Context, deadline time.Time, step func() error) error {
	if ctx.Err() != nil {
		s.raw.Close()
		return context.Cause(ctx)
	}
	err := s.raw.SetDeadline(deadline)
	if err == nil {
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(ended)
			_ = s.raw.SetDeadline(longAgo) // fails where the connection is closed already
		})
		err = step()
		if !stop() {
			<-ended
		}
	}
	if ctx.Err() != nil {
		s.raw.Close()
		return context.Cause(ctx)
	}
	if err == nil {
		err = s.raw.SetDeadline(time.Time{})
	}
	if err == nil {
		return nil
	}
	var r *handshakeError
	if errors.As(err, &r) {
		_ = s.farewell(r.message) // what matters is why
		return r.err
	}
	s.raw.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) && state.AsProblem(err) == nil {
		return fmt.Errorf("%v did not finish the handshake within %v: %w", s.raw.RemoteAddr(), s.security.timeout, err)
	}
	return err
}

// greet exchanges greetings. The listener speaks first: a stock broker's HA port
// would take a greeting for an acknowledgement of bytes that nobody has.
func (s *Session) greet() error {
	ours := wirelink.Greeting{Min: s.security.versions.Min, Max: s.security.versions.Max, Mode: s.security.mode}
	_, _ = rand.Read(ours.Nonce[:]) // never fails: it ends the process instead
	var theirs wirelink.Greeting
	send := func() error {
		if _, err := s.raw.Write(ours.Append(nil)); err != nil {
			return fmt.Errorf("send the greeting to %v: %w", s.raw.RemoteAddr(), err)
		}
		return nil
	}
	read := func() (err error) {
		if theirs, err = wirelink.ReadGreeting(s.raw); err != nil {
			return s.greetingError(err)
		}
		return nil
	}
	first, second := send, read
	if s.dialing {
		first, second = read, send
	}
	if err := first(); err != nil {
		return err
	}
	if err := second(); err != nil {
		return err
	}
	s.greetings = [2][]byte{theirs.Append(nil), ours.Append(nil)}
	if s.dialing {
		s.greetings[0], s.greetings[1] = s.greetings[1], s.greetings[0]
	}
	return s.agree(ours, theirs)
}

func (s *Session) greetingError(err error) error {
	peer := s.raw.RemoteAddr()
	if errors.Is(err, wirelink.ErrGreeting) {
		p := &state.Problem{State: state.ProtocolError, Code: "not_link", Reason: fmt.Sprintf("%v is no agent", peer), Err: err}
		p.Try = "find out what connects to the agents' port (--link-bind); brokers and their clients belong elsewhere"
		if s.dialing {
			p.Try = "let the master's agent advertise its link port (--link-advertise, default port 10915), not a broker's"
		}
		return p
	}
	return fmt.Errorf("read the greeting of %v: %w", peer, err)
}

// agree finds the version and compares the modes. The listener tells the dialer
// what does not fit, the dialer sees it by itself.
func (s *Session) agree(ours, theirs wirelink.Greeting) error {
	tell := func(code wirelink.Code, text string, err error) error {
		if s.dialing {
			return err
		}
		return refuseWith(code, text, err)
	}
	peer := s.raw.RemoteAddr()
	version, err := wirelink.Negotiate(ours, theirs)
	if err != nil {
		text := fmt.Sprintf("we speak versions %v, you %v", s.security.versions, wirelink.Versions{Min: theirs.Min, Max: theirs.Max})
		return tell(wirelink.CodeVersion, text, &state.Problem{
			State: state.Incompatible, Code: "link_version", Reason: fmt.Sprintf("the agent at %v speaks another version of the link", peer), Err: err,
			Try: "update the older one of the two agents",
		})
	}
	if ours.Nonce == theirs.Nonce {
		return fmt.Errorf("%v sends our own greeting back: %w", peer, wirelink.ErrGreeting)
	}
	if ours.Mode != theirs.Mode {
		return tell(wirelink.CodeSecurity, fmt.Sprintf("we want %v, you speak %v", ours.Mode, theirs.Mode), modeProblem(peer, ours.Mode, theirs.Mode))
	}
	s.version = version
	return nil
}

func modeProblem(peer net.Addr, ours, theirs wirelink.Mode) error {
	p := &state.Problem{
		State: state.Incompatible, Code: "link_security",
		Reason: fmt.Sprintf("the agent at %v speaks %v, we want %v", peer, theirs, ours),
		Try:    "give both the same --link-security",
	}
	if ours == wirelink.ModeNone || theirs == wirelink.ModeNone {
		p.Try = "give both the same --key-file and the same --link-security"
	}
	return p
}

// shake starts TLS on the connection.
func (s *Session) shake(ctx context.Context) error {
	config := s.security.tlsConfig(s.dialing)
	conn := tls.Server(s.raw, config)
	if s.dialing {
		conn = tls.Client(s.raw, config)
	}
	if err := conn.HandshakeContext(ctx); err != nil {
		return s.tlsError(err)
	}
	s.conn = conn
	if got, want := conn.ConnectionState().NegotiatedProtocol, protocolName(s.version); got != want {
		return &state.Problem{
			State: state.ProtocolError, Code: "link_downgrade",
			Reason: fmt.Sprintf("the greetings of %v agree on %q, TLS on %q: somebody changes them on the way", s.raw.RemoteAddr(), want, got),
			Try:    "look for what stands between the two agents",
		}
	}
	return nil
}
