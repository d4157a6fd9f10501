package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// RefusedError is what a peer said instead of an answer.
type RefusedError struct {
	Code wirelink.Code
	Text string
}

// Error shows the code and the text.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %v: %s", e.Code, e.Text) }

// SendHello sends the replica's first message and, in mode clear, the proof of
// our key. It returns a *wirelink.FrameError for a message that cannot be sent.
func (s *Session) SendHello(ctx context.Context, h *wirelink.Hello) error {
	return s.step(ctx, s.deadline, func() error {
		if err := h.Check(); err != nil {
			return fmt.Errorf("send the hello: %w", err)
		}
		frame := h.Append(nil)
		s.hello, s.digests = frame[wirelink.HeaderSize:], len(h.Digests)
		if p := s.security.proofs; p != nil {
			mac := proof(p.dialer[0], s.greetings, s.hello)
			frame = (&wirelink.Proof{MAC: mac}).Append(frame)
		}
		if _, err := s.conn.Write(frame); err != nil {
			return s.readError("send the hello to", err)
		}
		return nil
	})
}

// ReadHello returns the replica's first message once the replica has proven its
// key: until then at most one frame of wirelink.MaxHello bytes and a proof are
// read, and nothing of it is looked at. A peer without our key is refused and
// returned as a *state.Problem with the code wrong_key. No more frames are read
// than these, so the peer may send on.
func (s *Session) ReadHello(ctx context.Context) (*wirelink.Hello, error) {
	var hello *wirelink.Hello
	err := s.step(ctx, s.deadline, func() error {
		payload, err := s.next(wirelink.TypeHello)
		if err != nil {
			return err
		}
		s.hello = bytes.Clone(payload)
		if p := s.security.proofs; p != nil {
			mac, err := s.readProof()
			if err != nil {
				return err
			}
			if s.provenBy = proven(p.dialer, mac, s.greetings, s.hello); s.provenBy < 0 {
				return refuseWith(wirelink.CodeUnauthorized, "your key is not known here",
					wrongKey(fmt.Sprintf("the agent at %v does not prove one of our keys", s.raw.RemoteAddr()), nil))
			}
		}
		m, err := wirelink.Decode(wirelink.TypeHello, s.hello)
		if err != nil {
			return s.malformed(err)
		}
		hello = m.(*wirelink.Hello)
		if s.version < wirelink.VersionPacked && hello.Accepts != 0 {
			return s.malformed(fmt.Errorf("%w: encodings %#04x in version %d", wirelink.ErrFrame, uint16(hello.Accepts), s.version))
		}
		s.digests = len(hello.Digests)
		s.reader.Expect()
		return nil
	})
	return hello, err
}

// SendWelcome answers the Hello and, in mode clear, proves the key that the
// replica has proven. It returns a *wirelink.FrameError for a message that
// cannot be sent, and an error where the verdicts are not as many as the digests.
func (s *Session) SendWelcome(ctx context.Context, w *wirelink.Welcome) error {
	return s.step(ctx, time.Now().Add(s.security.timeout), func() error {
		err := w.Check()
		if err == nil && len(w.Verdicts) != s.digests {
			err = fmt.Errorf("%d verdicts on %d digests", len(w.Verdicts), s.digests)
		}
		if err != nil {
			return refuseWith(wirelink.CodeInternal, "no answer can be made", fmt.Errorf("send the welcome: %w", err))
		}
		frame := w.Append(nil)
		if p := s.security.proofs; p != nil {
			mac := proof(p.listener[s.provenBy], s.greetings, s.hello, frame[wirelink.HeaderSize:])
			frame = (&wirelink.Proof{MAC: mac}).Append(frame)
		}
		s.hello = nil
		if _, err := s.conn.Write(frame); err != nil {
			return s.readError("send the welcome to", err)
		}
		return nil
	})
}

// ReadWelcome returns the master's answer once the master has proven its key. A
// master that refuses is a *RefusedError, in a *state.Problem with the code
// wrong_key where it does not know our key; in mode tls that is where a listener
// that rejects our certificate is found out.
func (s *Session) ReadWelcome(ctx context.Context) (*wirelink.Welcome, error) {
	var welcome *wirelink.Welcome
	err := s.step(ctx, time.Now().Add(s.security.timeout), func() error {
		payload, err := s.next(wirelink.TypeWelcome, wirelink.TypeRefuse)
		if err != nil {
			return err
		}
		payload = bytes.Clone(payload)
		if p := s.security.proofs; p != nil {
			mac, err := s.readProof()
			if err != nil {
				return err
			}
			if proven(p.listener, mac, s.greetings, s.hello, payload) < 0 {
				return refuseWith(wirelink.CodeUnauthorized, "you do not prove one of our keys",
					wrongKey(fmt.Sprintf("the agent at %v does not prove one of our keys", s.raw.RemoteAddr()), nil))
			}
		}
		s.hello = nil
		m, err := wirelink.Decode(wirelink.TypeWelcome, payload)
		if err != nil {
			return s.malformed(err)
		}
		welcome = m.(*wirelink.Welcome)
		if len(welcome.Verdicts) != s.digests {
			return s.malformed(fmt.Errorf("%w: %d verdicts on %d digests", wirelink.ErrFrame, len(welcome.Verdicts), s.digests))
		}
		s.reader.Expect()
		return nil
	})
	return welcome, err
}

// next reads a frame of the first type; Refuse, where it is among the types,
// becomes an error.
func (s *Session) next(types ...wirelink.Type) ([]byte, error) {
	s.reader.Expect(types...)
	t, payload, err := s.reader.Next()
	switch {
	case errors.Is(err, wirelink.ErrFrame):
		return nil, s.malformed(err)
	case err != nil:
		return nil, s.readError(fmt.Sprintf("read the %v of", types[0]), err)
	case t == wirelink.TypeRefuse:
		return nil, s.refused(payload)
	}
	return payload, nil
}

func (s *Session) readProof() (mac [32]byte, err error) {
	types := []wirelink.Type{wirelink.TypeProof}
	if s.dialing {
		types = append(types, wirelink.TypeRefuse)
	}
	payload, err := s.next(types...)
	if err == nil {
		copy(mac[:], payload) // a proof of another length is no frame
	}
	return mac, err
}

// refused makes an error out of the peer's Refuse.
func (s *Session) refused(payload []byte) error {
	m, err := wirelink.Decode(wirelink.TypeRefuse, payload)
	if err != nil {
		return s.malformed(err)
	}
	r := m.(*wirelink.Refuse)
	refused := &RefusedError{Code: r.Code, Text: r.Text}
	if r.Code == wirelink.CodeUnauthorized {
		return wrongKey(fmt.Sprintf("the agent at %v does not accept our key", s.raw.RemoteAddr()), refused)
	}
	return refused
}

// malformed tells the peer, and the caller, that something is no message.
func (s *Session) malformed(err error) error {
	return refuseWith(wirelink.CodeProtocol, "what you sent is not what belongs here", &state.Problem{
		State: state.ProtocolError, Code: "link_protocol", Reason: fmt.Sprintf("the agent at %v does not keep to the protocol", s.raw.RemoteAddr()), Err: err,
		Try: "update the older one of the two agents; if they are alike, report it with this line",
	})
}

// readError makes an error out of a failed read or write, which in TLS may be
// the peer's verdict on our certificate.
func (s *Session) readError(what string, err error) error {
	if s.security.mode == wirelink.ModeTLS {
		if p := s.certificateRefused(err); p != nil {
			return p
		}
	}
	return fmt.Errorf("%s %v: %w", what, s.raw.RemoteAddr(), err)
}

// tlsError makes an error out of a failed TLS handshake.
func (s *Session) tlsError(err error) error {
	peer := s.raw.RemoteAddr()
	if p := s.certificateRefused(err); p != nil {
		return p
	}
	if errors.Is(err, errWrongKey) || errors.Is(err, errWrongCertificate) {
		return &handshakeError{err: s.security.identity.refused(fmt.Sprintf("we do not accept the agent at %v", peer), err)}
	}
	return fmt.Errorf("TLS handshake with %v: %w", peer, err)
}

// certificateRefused returns a Problem where err is the peer's alert about our
// certificate, and nil otherwise.
func (s *Session) certificateRefused(err error) error {
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "remote error" {
		return nil
	}
	// The type of an alert is not exported, its words are.
	switch alert.Err.Error() {
	case "tls: bad certificate", "tls: unsupported certificate", "tls: revoked certificate", "tls: expired certificate",
		"tls: unknown certificate", "tls: unknown certificate authority", "tls: access denied", "tls: certificate required":
		return s.security.identity.refused(fmt.Sprintf("the agent at %v does not accept us", s.raw.RemoteAddr()), err)
	}
	return nil
}
