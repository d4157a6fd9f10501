package link

import (
	"crypto/tls"
	"testing"

	wirelink "github.com/haagent/haagent/wire/link"
)

// Derive returns what is derived from the first key.
func Derive(tb testing.TB, k Keys, label string) []byte {
	tb.Helper()
	b, err := derive(k.all()[0], label)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// CertificateOf returns the certificate that an agent with these keys shows.
func CertificateOf(tb testing.TB, k Keys) []byte {
	tb.Helper()
	id, err := newKeyIdentity(k)
	if err != nil {
		tb.Fatal(err)
	}
	return id.cert.Certificate[0]
}

// Speaking returns a copy of s that speaks other versions.
func (s *Security) Speaking(least, most uint16) *Security {
	other := *s
	other.versions = wirelink.Versions{Min: least, Max: most}
	return &other
}

// ProofOf returns the proof of a derived key, as docs/protocol.md has it.
func ProofOf(derived, dialer, listener []byte, payloads ...[]byte) [32]byte {
	return proof(derived, [2][]byte{dialer, listener}, payloads...)
}

// TLSConfig returns what a handshake is made with.
func (s *Security) TLSConfig(dialing bool) *tls.Config { return s.tlsConfig(dialing) }
