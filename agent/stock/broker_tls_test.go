package stock_test

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire/ha"
	"github.com/haagent/haagent/wire/remoting"
)

// An issuer signs certificates; the zero issuer makes those that sign themselves.
type issuer struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

// issue writes a certificate and its key below dir.
func (i issuer) issue(t *testing.T, dir, name string, edit func(*x509.Certificate)) (cert, key string, as issuer) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if edit != nil {
		edit(template)
	}
	parent, signer := template, private
	if i.cert != nil {
		parent, signer = i.cert, i.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	writePEM(t, cert, "CERTIFICATE", der)
	writePEM(t, key, "PRIVATE KEY", pkcs8)
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, issuer{parsed, private}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func authority(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }

func loopbackHost(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} }

// startTLSBroker starts a remoting port of one of the modes of tls.server.mode.
func startTLSBroker(t *testing.T, mode string, server func() *tls.Config) *peer {
	return startPeer(t, func(conn net.Conn) {
		const clientHello = 22
		r := bufio.NewReader(conn)
		first, err := r.Peek(1)
		if err != nil {
			return
		}
		opened := io.ReadWriter(struct {
			io.Reader
			io.Writer
		}{r, conn})
		switch secured := first[0] == clientHello; {
		case secured && mode == "disabled", !secured && mode == "enforcing":
			return
		case secured:
			opened = tls.Server(&peeked{conn, r}, server())
		}
		for {
			req, err := remoting.ReadCommand(opened, remoting.MaxFrame)
			if err != nil {
				return
			}
			b, err := remoting.Encode(req.Reply(remoting.Success, mode))
			if err != nil {
				t.Error(err)
			}
			if _, err := opened.Write(b); err != nil {
				return
			}
		}
	})
}

// peeked is a connection of which some bytes were looked at.
type peeked struct {
	net.Conn
	r io.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func serving(t *testing.T, cert, key string, edit func(*tls.Config)) func() *tls.Config {
	return func() *tls.Config {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Error(err)
		}
		c := &tls.Config{Certificates: []tls.Certificate{pair}}
		if edit != nil {
			edit(c)
		}
		return c
	}
}

// TestBroker_TLS: with whom TLS is spoken, and what is said where it cannot be.
func TestBroker_TLS(t *testing.T) {
	dir := t.TempDir()
	ca, _, root := issuer{}.issue(t, dir, "ca", authority)
	otherCA, _, _ := issuer{}.issue(t, dir, "other", authority)
	here, hereKey, _ := root.issue(t, dir, "here", loopbackHost)
	nameless, namelessKey, _ := root.issue(t, dir, "nameless", nil)
	alone, aloneKey, _ := issuer{}.issue(t, dir, "alone", nil)
	old, oldKey, _ := root.issue(t, dir, "old", func(c *x509.Certificate) {
		loopbackHost(c)
		c.NotAfter = time.Now().Add(-time.Minute)
	})
	client, clientKey, _ := root.issue(t, dir, "client", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	pool := x509.NewCertPool()
	pool.AddCert(root.cert)
	demanding := func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool }
	demanding12 := func(c *tls.Config) { demanding(c); c.MaxVersion = tls.VersionTLS12 }
	for _, c := range []struct {
		name, mode string
		server     func() *tls.Config
		tls        *stock.BrokerTLS
		code, try  string // of the Problem; none: it works
	}{
		{"authority and name", "enforcing", serving(t, here, hereKey, nil), &stock.BrokerTLS{CA: ca}, "", ""},
		{"permissive broker", "permissive", serving(t, here, hereKey, nil), &stock.BrokerTLS{CA: ca, Verify: stock.VerifyFull}, "", ""},
		{"permissive broker, without TLS", "permissive", serving(t, here, hereKey, nil), nil, "", ""},
		{"wrong authority", "enforcing", serving(t, here, hereKey, nil), &stock.BrokerTLS{CA: otherCA}, "broker_certificate", "correct --broker-tls-ca"},
		{"wrong authority, name aside", "enforcing", serving(t, here, hereKey, nil), &stock.BrokerTLS{CA: otherCA, Verify: stock.VerifyCA}, "broker_certificate", "correct --broker-tls-ca"},
		{"no authority given", "enforcing", serving(t, here, hereKey, nil), &stock.BrokerTLS{}, "broker_certificate", "as --broker-tls-ca"},
		{"wrong name", "enforcing", serving(t, nameless, namelessKey, nil), &stock.BrokerTLS{CA: ca}, "broker_certificate", "--broker-tls-verify ca"},
		{"wrong name, not looked at", "enforcing", serving(t, nameless, namelessKey, nil), &stock.BrokerTLS{CA: ca, Verify: stock.VerifyCA}, "", ""},
		{"expired", "enforcing", serving(t, old, oldKey, nil), &stock.BrokerTLS{CA: ca}, "broker_certificate", "new certificate"},
		{"expired, name aside", "enforcing", serving(t, old, oldKey, nil), &stock.BrokerTLS{CA: ca, Verify: stock.VerifyCA}, "broker_certificate", "new certificate"},
		{"the certificate itself", "enforcing", serving(t, alone, aloneKey, nil), &stock.BrokerTLS{CA: alone, Verify: stock.VerifyCA}, "", ""},
		{"any certificate", "enforcing", serving(t, alone, aloneKey, nil), &stock.BrokerTLS{Verify: stock.VerifyNone}, "", ""},
		{"no TLS there", "disabled", nil, &stock.BrokerTLS{CA: ca}, "broker_no_tls", "leave --broker-tls away"},
		{"TLS demanded", "enforcing", serving(t, here, hereKey, nil), nil, "broker_hangs_up", "--broker-tls"},
		{"client certificate", "enforcing", serving(t, here, hereKey, demanding), &stock.BrokerTLS{CA: ca, Cert: client, Key: clientKey}, "", ""},
		{"no client certificate", "enforcing", serving(t, here, hereKey, demanding), &stock.BrokerTLS{CA: ca}, "broker_refuses_tls", "give --broker-tls-cert and"},
		{"no client certificate, TLS 1.2", "enforcing", serving(t, here, hereKey, demanding12), &stock.BrokerTLS{CA: ca}, "broker_refuses_tls", "give --broker-tls-cert and"},
		{"wrong client certificate", "enforcing", serving(t, here, hereKey, demanding), &stock.BrokerTLS{CA: ca, Cert: alone, Key: aloneKey}, "broker_refuses_tls", "that the broker trusts"},
		{"missing file", "enforcing", serving(t, here, hereKey, nil), &stock.BrokerTLS{CA: filepath.Join(dir, "none.pem")}, "broker_tls_files", "may read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startTLSBroker(t, c.mode, c.server)
			b := newClient(t, p.Addr().String(), stock.BrokerOptions{TLS: c.tls, Timeout: patience})
			answer, err := b.Raw(t.Context(), remoting.GetMinOffset, nil, nil)
			if err != nil && state.AsProblem(err) == nil { // one that ends a connection may just be going down
				_, err = b.Raw(t.Context(), remoting.GetMinOffset, nil, nil)
			}
			problem := state.AsProblem(err)
			switch {
			case c.code == "" && (err != nil || answer.Remark != c.mode):
				t.Errorf("got %q, %v", answer.Remark, err)
			case c.code != "" && (problem == nil || problem.Code != c.code || !strings.Contains(problem.Try, c.try) || !strings.Contains(problem.Reason, p.Addr().String())):
				t.Errorf("got %v, %+v; want %s with %q", err, problem, c.code, c.try)
			}
		})
	}
}

// Only a plain request that does no harm goes to a port that is no remoting port:
// a ClientHello ends in bytes that a HA port takes for an acknowledgement.
func TestI3_NoClientHelloToAHAPort(t *testing.T) {
	for name, answer := range map[string][]byte{"log": ha.AppendHeader(nil, ha.Header{PhyOffset: 1 << 20, BodySize: 32 << 10}), "text": []byte("HTTP/1.1 400 Bad Request\r\n\r\n")} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got bytes.Buffer
			p := startPeer(t, func(conn net.Conn) {
				b := make([]byte, 4096)
				n, err := conn.Read(b)
				if err == nil {
					_, err = conn.Write(append(answer, make([]byte, 32<<10)...))
				}
				more, _ := io.ReadAll(conn)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got.Write(b[:n])
				got.Write(more)
			})
			b := newClient(t, p.Addr().String(), stock.BrokerOptions{TLS: &stock.BrokerTLS{Verify: stock.VerifyNone}, Timeout: patience})
			if _, err := b.Config(t.Context()); !errors.Is(err, remoting.ErrFrame) && !errors.Is(err, remoting.ErrTooLarge) {
				t.Errorf("got %v", err)
			}
			p.Close()
			p.wg.Wait()
			if n := p.dialled.Load(); n != 1 {
				t.Errorf("dialled %d times", n)
			}
			mu.Lock()
			defer mu.Unlock()
			if sent := got.Bytes(); len(sent)%8 != 0 || !bytes.HasSuffix(sent, make([]byte, 8)) {
				t.Errorf("the port was sent % x", sent)
			}
		})
	}
}

// A port that says nothing may be a HA port without a log: it is sent no TLS.
func TestBroker_TLSNotSpokenToSilence(t *testing.T) {
	p := startPeer(t, func(conn net.Conn) {
		if b, _ := io.ReadAll(conn); len(b)%8 != 0 || !bytes.HasSuffix(b, make([]byte, 8)) {
			t.Errorf("the port was sent % x", b)
		}
	})
	b := newClient(t, p.Addr().String(), stock.BrokerOptions{TLS: &stock.BrokerTLS{Verify: stock.VerifyNone}, Timeout: 200 * time.Millisecond})
	if _, err := b.Config(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("got %v", err)
	}
	if n := p.dialled.Load(); n != 1 {
		t.Errorf("dialled %d times", n)
	}
}

// Renewed files are used for the next connection.
func TestBroker_TLSFilesRenewed(t *testing.T) {
	dir := t.TempDir()
	_, _, first := issuer{}.issue(t, dir, "ca", authority)
	first.issue(t, dir, "broker", loopbackHost)
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "broker.pem"), filepath.Join(dir, "broker-key.pem")
	p := startTLSBroker(t, "enforcing", serving(t, cert, key, nil))
	opt := &stock.BrokerTLS{CA: ca}
	b := newClient(t, p.Addr().String(), stock.BrokerOptions{TLS: opt})
	if _, err := b.Raw(t.Context(), remoting.GetMinOffset, nil, nil); err != nil {
		t.Fatal(err)
	}
	_, _, second := issuer{}.issue(t, dir, "ca", authority)
	second.issue(t, dir, "broker", loopbackHost)
	if _, err := newClient(t, p.Addr().String(), stock.BrokerOptions{TLS: opt}).Raw(t.Context(), remoting.GetMinOffset, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestBrokerTLS_Check: files that cannot be used are told before anybody is
// dialled.
func TestBrokerTLS_Check(t *testing.T) {
	dir := t.TempDir()
	ca, caKey, root := issuer{}.issue(t, dir, "ca", authority)
	cert, key, _ := root.issue(t, dir, "client", nil)
	none := filepath.Join(dir, "none")
	for name, c := range map[string]struct {
		tls    stock.BrokerTLS
		option string
	}{
		"all well":             {stock.BrokerTLS{CA: ca, Cert: cert, Key: key}, ""},
		"nothing given":        {stock.BrokerTLS{}, ""},
		"no authority":         {stock.BrokerTLS{CA: none}, "ca"},
		"a directory":          {stock.BrokerTLS{CA: dir}, "ca"},
		"a key as authority":   {stock.BrokerTLS{CA: key}, "ca"},
		"no certificate":       {stock.BrokerTLS{Cert: none, Key: key}, "cert"},
		"no key":               {stock.BrokerTLS{Cert: cert, Key: none}, "key"},
		"another one's key":    {stock.BrokerTLS{Cert: cert, Key: caKey}, "cert"},
		"a key others may use": {stock.BrokerTLS{Cert: cert, Key: key, ReadKey: func(string, int64) ([]byte, error) { return nil, errors.New("mode 0644") }}, "key"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.tls.Check()
			var file *stock.TLSFileError
			if c.option == "" && err != nil || c.option != "" && (!errors.As(err, &file) || file.Option != c.option) {
				t.Errorf("got %v, want one about %q", err, c.option)
			}
		})
	}
}
