package link

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/haagent/haagent/agent/state"
)

// The labels under which keys are derived from a shared key. A key that is
// derived under one says nothing about the others, nor about the shared key,
// which gossip uses as it is.
const (
	labelIdentity = "haagent link 1 tls identity"
	labelDialer   = "haagent link 1 clear dialer"
	labelListener = "haagent link 1 clear listener"
)

// derive returns 32 bytes of HKDF-SHA256 without salt.
func derive(key [KeySize]byte, label string) ([]byte, error) {
	b, err := hkdf.Key(sha256.New, key[:], nil, label, 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key for %q: %w", label, err)
	}
	return b, nil
}

// errWrongKey is returned by the check of a peer's certificate.
var errWrongKey = errors.New("the peer's identity is derived from none of our keys")

// keyIdentity is an identity that both ends derive from the shared keys.
type keyIdentity struct {
	cert     tls.Certificate     // of the first key
	accepted []ed25519.PublicKey // of all keys
}

func newKeyIdentity(keys Keys) (*keyIdentity, error) {
	id := &keyIdentity{}
	for i, key := range keys.all() {
		seed, err := derive(key, labelIdentity)
		if err != nil {
			return nil, err
		}
		private := ed25519.NewKeyFromSeed(seed)
		id.accepted = append(id.accepted, private.Public().(ed25519.PublicKey))
		if i == 0 {
			if id.cert, err = selfSigned(private); err != nil {
				return nil, err
			}
		}
	}
	return id, nil
}

// selfSigned returns a certificate that depends on the key alone. Peers look at
// nothing in it but the public key, so its dates cover all clocks.
func selfSigned(private ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "haagent"},
		NotBefore:    time.Unix(0, 0).UTC(),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the link's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: crypto.Signer(private)}, nil
}

func (id *keyIdentity) own(bool) (tls.Certificate, func(tls.ConnectionState) error) {
	return id.cert, id.verify
}

// verify compares the peer's key with all that are accepted, in a time that does
// not depend on which one it is.
func (id *keyIdentity) verify(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return errWrongKey
	}
	key, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return errWrongKey
	}
	found := 0
	for _, accepted := range id.accepted {
		found |= subtle.ConstantTimeCompare(accepted, key)
	}
	if found != 1 {
		return errWrongKey
	}
	return nil
}

func (id *keyIdentity) refused(reason string, err error) *state.Problem {
	return wrongKey(reason, err)
}

// wrongKey is the Problem of two ends without a common key.
func wrongKey(reason string, err error) *state.Problem {
	return &state.Problem{
		State: state.Unauthorized, Code: "wrong_key", Reason: reason, Err: err,
		Try: "give all agents of the group the same --key-file; to change the key, add the new one behind the old one everywhere before it moves to the first line",
	}
}

// proofKeys are what mode clear proves and checks keys with.
type proofKeys struct {
	dialer, listener [][]byte // one for each shared key
}

func newProofKeys(keys Keys) (*proofKeys, error) {
	p := &proofKeys{}
	for _, key := range keys.all() {
		d, err := derive(key, labelDialer)
		if err != nil {
			return nil, err
		}
		l, err := derive(key, labelListener)
		if err != nil {
			return nil, err
		}
		p.dialer, p.listener = append(p.dialer, d), append(p.listener, l)
	}
	return p, nil
}

// proof returns the MAC over the greetings, dialer's first, and the payloads,
// each behind its length.
func proof(key []byte, greetings [2][]byte, payloads ...[]byte) [32]byte {
	mac := hmac.New(sha256.New, key)
	for _, g := range greetings {
		mac.Write(g) // a hash never fails
	}
	for _, p := range payloads {
		mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		mac.Write(p)
	}
	return [32]byte(mac.Sum(nil))
}

// proven returns the place of the key that made a proof, or -1. It takes the
// same time for all keys and for none.
func proven(keys [][]byte, got [32]byte, greetings [2][]byte, payloads ...[]byte) int {
	found := -1
	for i, key := range keys {
		want := proof(key, greetings, payloads...)
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(want[:], got[:]), i, found)
	}
	return found
}
