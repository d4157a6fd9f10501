package stock

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire/remoting"
)

// BrokerVerify says how much of a broker's certificate must be right.
type BrokerVerify string

// The ways to look at a broker's certificate.
const (
	// VerifyFull: it is from the authority, and for the host that was dialled.
	VerifyFull BrokerVerify = "full"
	// VerifyCA: it is from the authority, whatever name it has. RocketMQ's own
	// clients do so where they verify at all (tls.client.authServer).
	VerifyCA BrokerVerify = "ca"
	// VerifyNone: any will do, as for RocketMQ's own clients by default. The
	// connection is encrypted, but nobody knows to whom.
	VerifyNone BrokerVerify = "none"
)

// BrokerTLS says how TLS is spoken with a broker. Its files are read anew for
// every connection, so that they may be renewed meanwhile.
type BrokerTLS struct {
	// CA is a PEM file of the authorities that the broker's certificate may be
	// from, or of that certificate itself; empty: those of the system.
	CA string
	// Cert and Key are PEM files for brokers that ask their clients for a
	// certificate; both or none.
	Cert, Key string
	// Verify is VerifyFull where empty.
	Verify BrokerVerify
	// ReadKey reads at most so many bytes of Key, or refuses to; nil: anybody's
	// file is read.
	ReadKey func(path string, limit int64) ([]byte, error)
}

// maxPEM is how much of a PEM file is read; bundles of all public authorities have
// 250 KiB.
const maxPEM = 1 << 20

// TLSFileError is about a file of a BrokerTLS.
type TLSFileError struct {
	Option string // ca, cert or key
	Path   string
	Err    error
}

// Error names file and reason.
func (e *TLSFileError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }

// Unwrap returns the reason.
func (e *TLSFileError) Unwrap() error { return e.Err }

// Check reads the files as a connection would. Errors are a *TLSFileError.
func (t *BrokerTLS) Check() error {
	_, err := t.config("")
	return err
}

// config returns what one handshake with a host needs.
func (t *BrokerTLS) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		text, err := readPEM(t.CA, maxPEM)
		if err != nil {
			return nil, &TLSFileError{"ca", t.CA, err}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, &TLSFileError{"ca", t.CA, errors.New("no certificate in PEM form is in it")}
		}
	}
	if t.Cert != "" || t.Key != "" {
		own, err := t.own()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	switch t.Verify {
	case VerifyNone:
		c.InsecureSkipVerify = true
	case VerifyCA:
		c.InsecureSkipVerify = true
		roots := c.RootCAs
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s.PeerCertificates, roots) }
	}
	return c, nil
}

// own reads the certificate that the broker is shown.
func (t *BrokerTLS) own() (tls.Certificate, error) {
	cert, err := readPEM(t.Cert, maxPEM)
	if err != nil {
		return tls.Certificate{}, &TLSFileError{"cert", t.Cert, err}
	}
	read := t.ReadKey
	if read == nil {
		read = readPEM
	}
	key, err := read(t.Key, maxPEM)
	if err != nil {
		return tls.Certificate{}, &TLSFileError{"key", t.Key, err}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return pair, &TLSFileError{"cert", t.Cert, fmt.Errorf("it does not go with %s: %w", t.Key, err)}
	}
	return pair, nil
}

// readPEM reads a regular file of at most limit bytes. It is looked at before it
// is opened: opening a pipe waits for its other end.
func readPEM(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > limit:
		return nil, fmt.Errorf("it is longer than %d bytes", limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// verifyChain looks at everything of a certificate but its name.
func verifyChain(shown []*x509.Certificate, roots *x509.CertPool) error {
	if len(shown) == 0 {
		return errors.New("no certificate was shown")
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	if _, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: shown, Err: err}
	}
	return nil
}

// dialTLS returns a connection on which TLS is spoken. Errors that a person must
// see to are a *state.Problem.
func (b *Broker) dialTLS(ctx context.Context) (net.Conn, error) {
	host, _, err := net.SplitHostPort(b.addr)
	if err != nil {
		return nil, err
	}
	config, err := b.opt.TLS.config(host)
	if err != nil {
		return nil, state.Problemf(state.Unauthorized, "broker_tls_files", "give files in PEM form that this user may read", err, "TLS with the broker at %s", b.addr)
	}
	if err := b.sound(ctx); err != nil {
		return nil, err
	}
	conn, err := b.opt.Dial(ctx, "tcp", b.addr)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // what matters is why
		return nil, b.handshakeProblem(err)
	}
	return secured, nil
}

// sound finds out whether TLS may be spoken to the port at all, on a connection of
// its own. A master's HA port would take the last 8 bytes of a ClientHello as an
// acknowledgement, and half of what they can be lies beyond any end, so that
// producers would be told SEND_OK for what no replica has. So there goes a guarded
// request ahead, which is harmless there (see Raw):
//
//	answered as a broker does      permissive broker: go on
//	the connection is closed       enforcing broker, or something in front of one: go on
//	a TLS alert                    go on
//	anything else, or silence      no remoting port: not a byte of TLS is sent
//
// The request is not signed.
func (b *Broker) sound(ctx context.Context) error {
	conn, err := b.opt.Dial(ctx, "tcp", b.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	frame, err := guarded(remoting.NewRequest(remoting.GetBrokerConfig, nil, nil), remoting.Credentials{})
	if err != nil {
		return err
	}
	if _, err = conn.Write(frame); err == nil {
		_, err = remoting.ReadCommand(conn, remoting.MaxFrame)
	}
	var garbage *remoting.FrameError
	switch {
	case err == nil, hungUp(err), errors.Is(err, io.ErrUnexpectedEOF), alertFrame(err):
		return nil
	case errors.As(err, &garbage):
		return &garbageError{garbage}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// hungUp reports whether a peer ended a connection, with or without a word of TLS.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || alerted(err)
}

// alerted reports whether a peer has sent a TLS alert.
func alerted(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // crypto/tls has no type for it
}

// alertFrame reports whether a TLS alert came where a plain answer was to come.
func alertFrame(err error) bool {
	const alert = 21 // content type of a TLS record
	var garbage *remoting.FrameError
	return errors.As(err, &garbage) && garbage.Head[0] == alert
}

// hungUpProblem is about a broker that ends new connections before it answers on
// them.
func (b *Broker) hungUpProblem(err error) error {
	if b.opt.TLS != nil {
		return b.refusal(err)
	}
	return state.Problemf(state.ProtocolError, "broker_hangs_up", "give --broker-tls if that broker demands TLS (tls.server.mode=enforcing); else look which program or proxy listens there", err,
		"the broker at %s ends every connection without an answer", b.addr)
}

// refusal is about a broker that speaks TLS, and not with us.
func (b *Broker) refusal(err error) error {
	try := "give --broker-tls-cert and --broker-tls-key, which it may ask for (tls.server.need.client.auth)"
	if b.opt.TLS.Cert != "" {
		try = "give a --broker-tls-cert from the authority that the broker trusts (tls.server.trustCertPath)"
	}
	if !alerted(err) {
		try += "; else look which program or proxy listens there"
	}
	return state.Problemf(state.Unauthorized, "broker_refuses_tls", try, err, "the broker at %s ends the TLS connection", b.addr)
}

// handshakeProblem names what makes a handshake fail; errors of the network, which
// go away, are none.
func (b *Broker) handshakeProblem(err error) error {
	var untrusted *tls.CertificateVerificationError
	var other tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		return state.Problemf(state.Unauthorized, "broker_certificate", b.opt.TLS.trust(untrusted.Err), err, "the certificate of the broker at %s is not accepted", b.addr)
	case alerted(err):
		return b.refusal(err)
	case errors.As(err, &other), hungUp(err):
		return state.Problemf(state.ProtocolError, "broker_no_tls", "leave --broker-tls away, or give the broker tls.server.mode=permissive and a certificate (tls.server.certPath) and restart it", err,
			"the broker at %s does not speak TLS", b.addr)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// trust is the next step where a certificate is not accepted.
func (t *BrokerTLS) trust(err error) string {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return "give the broker a certificate for that host, or --broker-tls-verify ca, which looks at the authority only"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "give the broker a new certificate (tls.server.certPath) and restart it"
	case t.CA == "":
		return "give its authority, or the certificate itself, as --broker-tls-ca; or --broker-tls-verify none on a network that nobody else is in"
	}
	return "correct --broker-tls-ca, which has another authority; or --broker-tls-verify none on a network that nobody else is in"
}
