package link

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/haagent/haagent/agent/state"
)

const maxPEM = 1 << 20

// fileIdentity is an identity out of an own PKI. Its files are looked at before
// each handshake and read again when one of them has changed; what cannot be
// used leaves what was there before.
type fileIdentity struct {
	cert, key, ca string
	log           *slog.Logger

	mu     sync.Mutex
	loaded loadedFiles
	seen   [3]fileStamp // of the files that were read last, usable or not
}

// loadedFiles is what the three files held when they could be used.
type loadedFiles struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// fileStamp is by which a changed file is known.
type fileStamp struct {
	modified time.Time
	size     int64
}

func newFileIdentity(cert, key, ca string, log *slog.Logger) (*fileIdentity, error) {
	id := &fileIdentity{cert: cert, key: key, ca: ca, log: log}
	id.seen = id.stamps()
	var err error
	if id.loaded, err = id.load(); err != nil {
		p := &state.Problem{
			State: state.Unauthorized, Code: "tls_files", Reason: "the link's certificate cannot be used", Err: err,
			Try: "give PEM files that belong together as --tls-cert, --tls-key and --tls-ca",
		}
		if errors.Is(err, errKeyMode) {
			p.Try = "chmod 600 " + key
		}
		return nil, p
	}
	return id, nil
}

// stamps returns how the files look from outside; zero for one that is not there.
func (id *fileIdentity) stamps() (stamps [3]fileStamp) {
	for i, path := range []string{id.cert, id.key, id.ca} {
		if info, err := os.Stat(path); err == nil {
			stamps[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

func (id *fileIdentity) load() (loadedFiles, error) {
	var texts [3][]byte
	for i, path := range []string{id.cert, id.key, id.ca} {
		read := readSmall
		if path == id.key {
			read = ReadSecret
		}
		text, err := read(path, maxPEM)
		if err != nil {
			return loadedFiles{}, fmt.Errorf("read %s: %w", path, err)
		}
		texts[i] = text
	}
	cert, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return loadedFiles{}, fmt.Errorf("%s with %s: %w", id.cert, id.key, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(texts[2]) {
		return loadedFiles{}, fmt.Errorf("%s holds no certificate", id.ca)
	}
	return loadedFiles{cert, roots}, nil
}

// current returns the newest files that could be used. Files that cannot are
// named in the log once for each time they change.
func (id *fileIdentity) current() loadedFiles {
	id.mu.Lock()
	defer id.mu.Unlock()
	stamps := id.stamps() // before reading: a change in between is seen next time
	if stamps == id.seen {
		return id.loaded
	}
	id.seen = stamps
	loaded, err := id.load()
	if err != nil {
		id.log.Warn("changed certificate files cannot be used, the old ones stay", "error", err)
		return id.loaded
	}
	id.log.Info("certificate files read again", "cert", id.cert)
	id.loaded = loaded
	return loaded
}

// errWrongCertificate is matched by the check of a peer's certificate.
var errWrongCertificate = errors.New("the peer's certificate is not accepted")

func (id *fileIdentity) own(dialing bool) (tls.Certificate, func(tls.ConnectionState) error) {
	files := id.current()
	usage := x509.ExtKeyUsageClientAuth
	if dialing {
		usage = x509.ExtKeyUsageServerAuth
	}
	return files.cert, func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return fmt.Errorf("%w: it shows none", errWrongCertificate)
		}
		// Names are not compared: peers are found by gossip, by address.
		o := x509.VerifyOptions{Roots: files.roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
		for _, c := range cs.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		if _, err := cs.PeerCertificates[0].Verify(o); err != nil {
			return fmt.Errorf("%w: %w", errWrongCertificate, err)
		}
		return nil
	}
}

func (id *fileIdentity) refused(reason string, err error) *state.Problem {
	return &state.Problem{
		State: state.Unauthorized, Code: "wrong_certificate", Reason: reason, Err: err,
		Try: "give all agents certificates for both server and client use from the CA in --tls-ca (" + id.ca + " here), and look at their dates",
	}
}
