package link_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
)

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

type certFiles struct{ cert, key, ca string }

var (
	bothUses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	longTime = [2]time.Duration{-time.Hour, time.Hour}
	past     = [2]time.Duration{-2 * time.Hour, -time.Hour}
)

func newAuthority(tb testing.TB) *authority { return (&authority{}).authority(tb) }

// authority returns one below a, or one at the top where a is empty.
func (a *authority) authority(tb testing.TB) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: rand.Text()}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue writes the files of a new certificate into a directory of its own.
func (a *authority) issue(tb testing.TB, name string, uses []x509.ExtKeyUsage, valid [2]time.Duration) certFiles {
	tb.Helper()
	dir := tb.TempDir()
	f := certFiles{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")}
	a.issueTo(tb, f, name, uses, valid)
	return f
}

func (a *authority) issueTo(tb testing.TB, f certFiles, name string, uses []x509.ExtKeyUsage, valid [2]time.Duration) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: uses,
		NotBefore: time.Now().Add(valid[0]), NotAfter: time.Now().Add(valid[1]), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	replaceFile(tb, f.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	replaceFile(tb, f.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	replaceFile(tb, f.ca, a.pem)
}

// replaceFile writes a file whose modification time differs from that before.
func replaceFile(tb testing.TB, path string, text []byte) {
	tb.Helper()
	newer := time.Now()
	if info, err := os.Stat(path); err == nil && !newer.After(info.ModTime()) {
		newer = info.ModTime().Add(time.Millisecond)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chtimes(path, newer, newer); err != nil {
		tb.Fatal(err)
	}
}

func appendFile(tb testing.TB, path string, text []byte) {
	tb.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	replaceFile(tb, path, append(old, text...))
}

func withFiles(tb testing.TB, f certFiles, log *slog.Logger) *link.Security {
	tb.Helper()
	s, err := link.NewSecurity(link.SecurityOptions{Cert: f.cert, Key: f.key, CA: f.ca, Log: log, Timeout: patience})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestHandshake_OwnPKI(t *testing.T) {
	t.Parallel()
	ca, strange := newAuthority(t), newAuthority(t)
	good := ca.issue(t, "good", bothUses, longTime)
	foreign := strange.issue(t, "foreign", bothUses, longTime)
	expired := ca.issue(t, "expired", bothUses, past)
	serverOnly := ca.issue(t, "server only", bothUses[:1], longTime)
	clientOnly := ca.issue(t, "client only", bothUses[1:], longTime)
	for _, c := range []struct {
		name              string
		dialer, listener  certFiles
		accepted          bool
		blamedBy, blaming string // part of what the side says that refuses, and the one that is refused
	}{
		{"one CA", good, ca.issue(t, "other", bothUses, longTime), true, "", ""},
		{"for its side only", clientOnly, serverOnly, true, "", ""},
		{"two CAs", good, foreign, false, "", ""},
		{"expired dialer", expired, good, false, "expired", ""},
		{"expired listener", good, expired, false, "expired", ""},
		{"dialer for servers", serverOnly, good, false, "incompatible key usage", ""},
		{"listener for clients", good, clientOnly, false, "incompatible key usage", ""},
	} {
		dialed, listened := handshake(t, withFiles(t, c.dialer, nil), withFiles(t, c.listener, nil))
		if c.accepted {
			wantTalk(t, dialed, listened)
			continue
		}
		wantProblem(t, c.name+", dialer", dialed.err, state.Unauthorized, "wrong_certificate", "--tls-ca")
		wantProblem(t, c.name+", listener", listened.err, state.Unauthorized, "wrong_certificate", "--tls-ca")
		if dialed.err != nil && listened.err != nil && !strings.Contains(dialed.err.Error()+listened.err.Error(), c.blamedBy) {
			t.Errorf("%s: neither %v nor %v says %q", c.name, dialed.err, listened.err, c.blamedBy)
		}
	}
}

// TestHandshake_KeyAgainstPKI: both want TLS and have nothing in common.
func TestHandshake_KeyAgainstPKI(t *testing.T) {
	t.Parallel()
	files := withFiles(t, newAuthority(t).issue(t, "n", bothUses, longTime), nil)
	shared := security(t, "tls", "a")
	dialed, listened := handshake(t, files, shared)
	wantProblem(t, "dialer with certificate", dialed.err, state.Unauthorized, "wrong_certificate")
	wantProblem(t, "listener with key", listened.err, state.Unauthorized, "wrong_key", "--key-file")
	dialed, listened = handshake(t, shared, files)
	wantProblem(t, "dialer with key", dialed.err, state.Unauthorized, "wrong_key", "--key-file")
	wantProblem(t, "listener with certificate", listened.err, state.Unauthorized, "wrong_certificate")
}

func TestSecurity_ReadsChangedFilesAgain(t *testing.T) {
	t.Parallel()
	old, next := newAuthority(t), newAuthority(t)
	var log lines
	files := old.issue(t, "node", bothUses, longTime)
	changing := withFiles(t, files, slog.New(slog.NewTextHandler(&log, nil)))
	oldPeer := withFiles(t, old.issue(t, "old peer", bothUses, longTime), nil)
	nextPeer := withFiles(t, next.issue(t, "next peer", bothUses, longTime), nil)
	accepts := func(what string, peer *link.Security, want bool) {
		t.Helper()
		for range 3 {
			dialed, listened := handshake(t, peer, changing)
			if (dialed.err == nil) != want || (listened.err == nil) != want {
				t.Fatalf("%s: dialer %v, listener %v", what, dialed.err, listened.err)
			}
			dialed, listened = handshake(t, changing, peer)
			if (dialed.err == nil) != want || (listened.err == nil) != want {
				t.Fatalf("%s, dialing: dialer %v, listener %v", what, dialed.err, listened.err)
			}
		}
	}
	accepts("at first", oldPeer, true)
	accepts("at first", nextPeer, false)
	log.want(t, "cannot be used", 0)

	replaceFile(t, files.cert, []byte("no certificate"))
	accepts("with a bad certificate", oldPeer, true)
	log.want(t, "cannot be used", 1)
	if err := os.Remove(files.ca); err != nil {
		t.Fatal(err)
	}
	accepts("with a missing CA", oldPeer, true)
	log.want(t, "cannot be used", 2)

	next.issueTo(t, files, "node", bothUses, longTime)
	accepts("with new files", nextPeer, true)
	accepts("with new files", oldPeer, false)
	log.want(t, "read again", 1)
	log.want(t, "cannot be used", 2)
}

// lines is a log that counts.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) want(tb testing.TB, text string, n int) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := strings.Count(l.buf.String(), text); got != n {
		tb.Errorf("%q is logged %d times, want %d:\n%s", text, got, n, l.buf.String())
	}
}
