package stock_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// patience bounds everything that a test waits for; nothing takes that long
// unless it fails.
const patience = 20 * time.Second

// servedLog is a log that a test grows while it is served.
type servedLog struct {
	t       testing.TB
	writer  *forge.Writer
	random  *rand.Rand
	variety forge.Variety
	size    wire.ByteSize
	dir     string // of the segments

	mu      sync.Mutex
	moved   map[chan struct{}]struct{}
	reports []haReport
	closes  []error
	changed chan struct{} // closed and replaced with each report and close
}

type haReport struct {
	off     wire.PhyOffset
	request bool
}

func newServedLog(t testing.TB, size wire.ByteSize, start wire.PhyOffset) *servedLog {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
	random := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: size, Start: start, Garbage: random})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return &servedLog{
		t: t, writer: w, random: random, variety: forge.Variety{V2: true, IPv6: true, Transactions: true},
		size: size, dir: filepath.Join(dir, "commitlog"),
		moved: make(map[chan struct{}]struct{}), changed: make(chan struct{}),
	}
}

// grow appends messages until the log is at least that much longer.
func (l *servedLog) grow(n wire.ByteSize) {
	l.t.Helper()
	for until := l.writer.End().Add(n); l.writer.End() < until; {
		if _, err := l.writer.Append(forge.RandomMessage(l.random, l.variety)); err != nil {
			l.t.Fatal(err)
		}
		l.wake()
	}
}

// roll ends the segment.
func (l *servedLog) roll() {
	l.t.Helper()
	if err := l.writer.Roll(); err != nil {
		l.t.Fatal(err)
	}
	l.wake()
}

func (l *servedLog) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.moved {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

func (l *servedLog) listen() (<-chan struct{}, func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := make(chan struct{}, 1)
	l.moved[ch] = struct{}{}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.moved, ch)
	}
}

// bytes returns what the log holds from off up to end.
func (l *servedLog) bytes(off, end wire.PhyOffset) []byte {
	l.t.Helper()
	var all bytes.Buffer
	for off < end {
		base := off.SegmentBase(l.size)
		b, err := os.ReadFile(filepath.Join(l.dir, commitlog.Name(base)))
		if err != nil {
			l.t.Fatal(err)
		}
		all.Write(b[off.Sub(base):min(end, base.Add(l.size)).Sub(base)])
		off = min(end, base.Add(l.size))
	}
	return all.Bytes()
}

// options are those of a server of the log on a TCP port.
func (l *servedLog) options() stock.HAServerOptions {
	l.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	return stock.HAServerOptions{
		Listener: ln, CommitLogDir: l.dir, SegmentSize: l.size, End: l.writer.End, Listen: l.listen,
		OnReport: func(_ net.Addr, off wire.PhyOffset, request bool) {
			l.note(func() { l.reports = append(l.reports, haReport{off, request}) })
		},
		OnClose: func(_ net.Addr, err error) {
			l.note(func() { l.closes = append(l.closes, err) })
		},
	}
}

func (l *servedLog) note(add func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add()
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until enough is true of the reports and closes so far.
func (l *servedLog) await(enough func(reports []haReport, closes []error) bool) {
	l.t.Helper()
	deadline := time.After(patience)
	for {
		l.mu.Lock()
		ok, changed := enough(l.reports, l.closes), l.changed
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			l.t.Fatalf("not seen within %v; reports %v, closes %v", patience, l.reports, l.closes)
		}
	}
}

// awaitClose waits for the end of the n-th connection and checks its reason.
func (l *servedLog) awaitClose(n int, want error) {
	l.t.Helper()
	l.await(func(_ []haReport, closes []error) bool { return len(closes) >= n })
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := l.closes[n-1]; !errors.Is(got, want) {
		l.t.Errorf("connection %d ended with %v, not %v", n, got, want)
	}
}

// awaitRequests waits until n slaves have asked for something.
func (l *servedLog) awaitRequests(n int) {
	l.t.Helper()
	l.await(func(reports []haReport, _ []error) bool {
		got := 0
		for _, r := range reports {
			if r.request {
				got++
			}
		}
		return got >= n
	})
}

// seen returns the reports so far.
func (l *servedLog) seen() []haReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reports)
}

// sum returns the SHA-256 of what the log holds from off up to end.
func (l *servedLog) sum(off, end wire.PhyOffset) []byte {
	h := sha256.Sum256(l.bytes(off, end))
	return h[:]
}

// serveHA runs a server until the test ends and returns its address.
func serveHA(t testing.TB, opt stock.HAServerOptions) string {
	t.Helper()
	run(t, stock.NewHAServer(opt).Run)
	return opt.Listener.Addr().String()
}

// run runs a server until the test ends, when it must end without an error.
func run(t testing.TB, server func(context.Context) error) {
	r := start(server)
	t.Cleanup(func() { r.stop(t) })
}

// running is a server.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

func startHA(opt stock.HAServerOptions) running { return start(stock.NewHAServer(opt).Run) }

func start(server func(context.Context) error) running {
	ctx, cancel := context.WithCancel(context.Background())
	r := running{cancel, make(chan error, 1)}
	go func() { r.done <- server(ctx) }()
	return r
}

// stop ends a server, which must come to its end without an error.
func (r running) stop(t testing.TB) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("server: %v", err)
		}
	case <-time.After(patience):
		t.Error("server does not end")
	}
}

// haPeer is the slave's end of a connection.
type haPeer struct {
	t    testing.TB
	conn net.Conn
}

func dialHA(t testing.TB, addr string, reports ...wire.PhyOffset) *haPeer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	p := &haPeer{t, conn}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	p.report(reports...)
	return p
}

// report sends offsets in one write.
func (p *haPeer) report(offs ...wire.PhyOffset) {
	p.t.Helper()
	var b []byte
	for _, off := range offs {
		b = ha.AppendReport(b, off)
	}
	p.write(b)
}

func (p *haPeer) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// frame reads one frame; one that is no frame fails the test.
func (p *haPeer) frame() (ha.Header, []byte) {
	p.t.Helper()
	h, body, err := readFrame(p.conn)
	if err != nil {
		p.t.Fatal(err)
	}
	return h, body
}

func readFrame(r io.Reader) (ha.Header, []byte, error) {
	var head [ha.HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return ha.Header{}, nil, err
	}
	h, err := ha.ParseHeader(head[:], ha.MaxBody)
	if err != nil {
		return h, nil, err
	}
	body := make([]byte, h.BodySize)
	_, err = io.ReadFull(r, body)
	return h, body, err
}

// take reads frames up to end and checks what holds for all of them: they are
// adjacent, within a segment, and no longer than batch. It returns the bodies.
func (p *haPeer) take(from, end wire.PhyOffset, size, batch wire.ByteSize) []byte {
	p.t.Helper()
	var all []byte
	for at := from; at < end; {
		h, body := p.frame()
		switch {
		case h.PhyOffset != at:
			p.t.Fatalf("frame at %d, want %d", h.PhyOffset, at)
		case h.BodySize > batch:
			p.t.Fatalf("frame of %d bytes, batch is %d", h.BodySize, batch)
		case h.End() > at.SegmentBase(size).Add(size):
			p.t.Fatalf("frame from %d to %d crosses the end of a segment", h.PhyOffset, h.End())
		case h.End() > end:
			p.t.Fatalf("frame ends at %d, confirmed is %d", h.End(), end)
		}
		all = append(all, body...)
		at = h.End()
	}
	return all
}

// ended waits for the server to close the connection.
func (p *haPeer) ended() {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Error("connection was not closed")
	}
}
