package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// HandshakeTimeout is how long a peer may take to prove itself, unless
// SecurityOptions say otherwise.
const HandshakeTimeout = 5 * time.Second

// ErrSecurityOptions is matched by the errors of NewSecurity about options that
// do not go together.
var ErrSecurityOptions = errors.New("link security")

// SecurityOptions say how links are protected.
type SecurityOptions struct {
	// Mode is auto, tls or clear; "" is auto: TLS where there is a key or a
	// certificate.
	Mode string
	// Keys are shared by all agents of the group.
	Keys Keys
	// Cert, Key and CA are PEM files of an own PKI, all or none. They are read
	// again when they change. Where they are given, they protect the link and
	// Keys do not.
	Cert, Key, CA string
	// Insecure allows peers elsewhere than on loopback without key and
	// certificate.
	Insecure bool
	// Timeout bounds a handshake; 0: HandshakeTimeout.
	Timeout time.Duration
	// Log is told when changed files cannot be used; nil: nobody is.
	Log *slog.Logger
}

// Security opens connections to other agents and judges who may have one. It is
// safe for use by several goroutines.
type Security struct {
	mode     wirelink.Mode
	insecure bool
	timeout  time.Duration
	versions wirelink.Versions
	proofs   *proofKeys                // mode clear
	identity identity                  // mode tls
	latest   *atomic.Pointer[Security] // what Reload made of other keys; nil in it: this
}

// An identity is what one end of a TLS connection shows and what it accepts.
type identity interface {
	// own returns the certificate to show and the check of the peer's.
	own(dialing bool) (tls.Certificate, func(tls.ConnectionState) error)
	// refused returns the Problem of a peer that does not accept the
	// certificate, or whose certificate is not accepted.
	refused(reason string, err error) *state.Problem
}

// NewSecurity checks the options and derives or loads what they name. Errors
// match ErrSecurityOptions where options do not go together; files that cannot
// be used are a *state.Problem.
func NewSecurity(o SecurityOptions) (*Security, error) {
	s := &Security{
		latest: new(atomic.Pointer[Security]), insecure: o.Insecure, timeout: o.Timeout,
		versions: wirelink.Versions{Min: wirelink.MinVersion, Max: wirelink.MaxVersion},
	}
	if s.timeout <= 0 {
		s.timeout = HandshakeTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	pki, err := o.pki()
	if err != nil {
		return nil, err
	}
	if s.mode, err = o.mode(pki); err != nil {
		return nil, err
	}
	switch {
	case s.mode == wirelink.ModeClear:
		s.proofs, err = newProofKeys(o.Keys)
	case s.mode == wirelink.ModeTLS && pki:
		s.identity, err = newFileIdentity(o.Cert, o.Key, o.CA, o.Log)
	case s.mode == wirelink.ModeTLS:
		s.identity, err = newKeyIdentity(o.Keys)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// pki reports whether certificates are given.
func (o *SecurityOptions) pki() (bool, error) {
	given := 0
	for _, path := range []string{o.Cert, o.Key, o.CA} {
		if path != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return false, fmt.Errorf("%w: --tls-cert, --tls-key and --tls-ca belong together, one of them is missing", ErrSecurityOptions)
	}
	return given == 3, nil
}

func (o *SecurityOptions) mode(pki bool) (wirelink.Mode, error) {
	keys := o.Keys.Len() > 0
	switch o.Mode {
	case "", "auto":
		if keys || pki {
			return wirelink.ModeTLS, nil
		}
		return wirelink.ModeNone, nil
	case "tls":
		if keys || pki {
			return wirelink.ModeTLS, nil
		}
		return 0, fmt.Errorf("%w: --link-security tls needs --key-file, or --tls-cert, --tls-key and --tls-ca", ErrSecurityOptions)
	case "clear":
		switch {
		case pki:
			return 0, fmt.Errorf("%w: --link-security clear has no use for --tls-cert", ErrSecurityOptions)
		case !keys:
			return 0, fmt.Errorf("%w: --link-security clear needs --key-file: peers still prove the key", ErrSecurityOptions)
		}
		return wirelink.ModeClear, nil
	}
	return 0, fmt.Errorf("%w: --link-security is auto, tls or clear, not %q", ErrSecurityOptions, o.Mode)
}

// Mode returns how connections are protected.
func (s *Security) Mode() wirelink.Mode { return s.mode }

// Protected reports whether peers have to prove anything. Without that a
// listener belongs on loopback.
func (s *Security) Protected() bool { return s.mode != wirelink.ModeNone }

// Abroad reports whether peers elsewhere than on this host are served and
// dialed.
func (s *Security) Abroad() bool { return s.Protected() || s.insecure }

// CertExpires returns when the own certificate of a PKI ends; zero where there is
// none: what is made of keys does not expire.
func (s *Security) CertExpires() time.Time {
	files, ok := s.current().identity.(*fileIdentity)
	if !ok {
		return time.Time{}
	}
	return files.current().cert.Leaf.NotAfter // X509KeyPair has parsed it
}

// Accept makes a session out of a connection that came in: it sends the greeting
// and reads the peer's, and in mode tls it shakes hands. ReadHello follows. The
// connection is the session's, and is closed where there is an error.
//
// Errors are a *state.Problem where the two ends do not fit: not_link,
// link_version, link_security, no_key, wrong_key, wrong_certificate. It returns
// the cause of ctx's end, and wraps os.ErrDeadlineExceeded where the peer took
// longer than the handshake timeout.
func (s *Security) Accept(ctx context.Context, conn net.Conn) (*Session, error) {
	return s.open(ctx, conn, false)
}

// Connect makes a session out of a connection that was dialed; SendHello and
// ReadWelcome follow. It is Accept's other end, and has the same errors. In mode
// tls a peer that refuses our certificate is found out by ReadWelcome.
func (s *Security) Connect(ctx context.Context, conn net.Conn) (*Session, error) {
	return s.open(ctx, conn, true)
}

// permits refuses strangers where nobody has to prove anything.
func (s *Security) permits(peer net.Addr) error {
	tcp, ok := peer.(*net.TCPAddr)
	if s.Abroad() || !ok || tcp.IP.IsLoopback() {
		return nil
	}
	return &state.Problem{
		State: state.Unauthorized, Code: "no_key",
		Reason: fmt.Sprintf("without key and certificate only this host is trusted, and %v is elsewhere", peer),
		Try:    "give all agents of the group the same --key-file (haagent keygen writes one), or --insecure on a network that nobody else is in",
	}
}

// tlsConfig returns what one handshake needs. The protocol's name carries the
// version, so that nobody between the two ends can lower it unseen.
func (s *Security) tlsConfig(dialing bool) *tls.Config {
	cert, verify := s.identity.own(dialing)
	c := &tls.Config{
		MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS13,
		Certificates:           []tls.Certificate{cert},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // verify decides, for both ends alike
		VerifyConnection:       verify,
		SessionTicketsDisabled: true,
		Renegotiation:          tls.RenegotiateNever,
	}
	for v := s.versions.Max; v >= s.versions.Min; v-- {
		c.NextProtos = append(c.NextProtos, protocolName(v))
	}
	return c
}

func protocolName(version uint16) string { return fmt.Sprintf("haagent-link/%d", version) }
