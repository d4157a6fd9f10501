package link_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// keys returns keys that consist of one byte each.
func keys(tb testing.TB, bytes string) link.Keys {
	tb.Helper()
	if bytes == "" {
		return link.Keys{}
	}
	var text strings.Builder
	for _, b := range []byte(bytes) {
		text.WriteString(key(b) + "\n")
	}
	k, err := link.ParseKeys([]byte(text.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// security returns a Security of a mode with keys of one byte each, and with
// patience for a machine that is busy.
func security(tb testing.TB, mode, keyBytes string) *link.Security {
	tb.Helper()
	return securityWithin(tb, mode, keyBytes, patience)
}

// securityWithin returns one with that handshake timeout; 0: the usual one.
func securityWithin(tb testing.TB, mode, keyBytes string, timeout time.Duration) *link.Security {
	tb.Helper()
	s, err := link.NewSecurity(link.SecurityOptions{Mode: mode, Keys: keys(tb, keyBytes), Timeout: timeout})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestNewSecurity_Modes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	files := ca.issue(t, "node", bothUses, longTime)
	with := func(mode, keyBytes string, f certFiles) link.SecurityOptions {
		return link.SecurityOptions{Mode: mode, Keys: keys(t, keyBytes), Cert: f.cert, Key: f.key, CA: f.ca}
	}
	missing := files
	missing.cert = filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		name string
		o    link.SecurityOptions
		want wirelink.Mode
		say  string
	}{
		{"nothing", with("", "", certFiles{}), wirelink.ModeNone, ""},
		{"auto with nothing", with("auto", "", certFiles{}), wirelink.ModeNone, ""},
		{"auto with a key", with("auto", "a", certFiles{}), wirelink.ModeTLS, ""},
		{"auto with certificates", with("auto", "", files), wirelink.ModeTLS, ""},
		{"auto with both", with("auto", "a", files), wirelink.ModeTLS, ""},
		{"tls with a key", with("tls", "a", certFiles{}), wirelink.ModeTLS, ""},
		{"tls with certificates", with("tls", "", files), wirelink.ModeTLS, ""},
		{"clear with a key", with("clear", "a", certFiles{}), wirelink.ModeClear, ""},
		{"tls with nothing", with("tls", "", certFiles{}), 0, "needs --key-file, or --tls-cert"},
		{"clear with nothing", with("clear", "", certFiles{}), 0, "needs --key-file"},
		{"clear with certificates", with("clear", "a", files), 0, "no use for --tls-cert"},
		{"another word", with("none", "", certFiles{}), 0, `auto, tls or clear, not "none"`},
		{"no CA", with("auto", "", certFiles{cert: files.cert, key: files.key}), 0, "belong together"},
		{"a CA alone", with("auto", "a", certFiles{ca: files.ca}), 0, "belong together"},
		{"a missing file", with("auto", "a", missing), 0, missing.cert},
	} {
		s, err := link.NewSecurity(c.o)
		if c.say != "" {
			file := c.name == "a missing file"
			if err == nil || !strings.Contains(err.Error(), c.say) || errors.Is(err, link.ErrSecurityOptions) == file || (state.AsProblem(err) != nil) != file {
				t.Errorf("%s: %v, want %q", c.name, err, c.say)
			}
			continue
		}
		if err != nil || s.Mode() != c.want || s.Protected() != (c.want != wirelink.ModeNone) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// The key 00 01 .. 1f and what is derived from it, computed by another program.
const (
	exampleKey       = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	exampleSeed      = "cb50393960eb90a6a087f322c05ca5d00bbe9ca63dba4703d9909162c3609ffb"
	examplePublic    = "76b984789ded179878657bc383ac553fa578c7eb91337c8a01dcac3953273e7b"
	exampleDialer    = "8ea00c9b69240070037e9269bdabeac6f31d9a16fc5821ddccd37d4ab8c9d20c"
	exampleListening = "9d88415b4a70b64c903f6afa0f4ab20c672f484ff28ba5cb13949a0d26040fd6"
)

func TestKeyDerivation_Golden(t *testing.T) {
	k, err := link.ParseKeys([]byte(exampleKey))
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{
		"haagent link 1 tls identity":   exampleSeed,
		"haagent link 1 clear dialer":   exampleDialer,
		"haagent link 1 clear listener": exampleListening,
	} {
		if got := hex.EncodeToString(link.Derive(t, k, label)); got != want {
			t.Errorf("%s: %s, want %s", label, got, want)
		}
	}
	if got := hex.EncodeToString(ed25519.NewKeyFromSeed(link.Derive(t, k, "haagent link 1 tls identity"))[32:]); got != examplePublic {
		t.Errorf("public key %s, want %s", got, examplePublic)
	}
}

// TestKeyIdentity_IsTheSameEverywhere: two agents make the same certificate, and
// it is a good one.
func TestKeyIdentity_IsTheSameEverywhere(t *testing.T) {
	k, err := link.ParseKeys([]byte(exampleKey + "\n" + key('z')))
	if err != nil {
		t.Fatal(err)
	}
	first, second := link.CertificateOf(t, k), link.CertificateOf(t, k)
	if !bytes.Equal(first, second) {
		t.Error("it changes from time to time")
	}
	cert, err := x509.ParseCertificate(first)
	if err != nil {
		t.Fatal(err)
	}
	public, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok || hex.EncodeToString(public) != examplePublic {
		t.Errorf("the key is %x, want that of the first key", public)
	}
	if err := cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature); err != nil {
		t.Error(err)
	}
	if other := link.CertificateOf(t, keys(t, "z")); bytes.Equal(first, other) {
		t.Error("another key has the same certificate")
	}
}
