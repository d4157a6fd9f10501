//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// relay stands between an agent and a master's HA port. It can cut the link and
// chop the stream, and it holds the agent to its word: a report never exceeds
// the bytes that the master has shown, and never falls on one connection.
type relay struct {
	addr   string
	target string

	mu      sync.Mutex
	conns   map[net.Conn]bool
	dribble bool
	shown   wire.PhyOffset // the highest end of a body that any connection was sent
	reports int
	links   int
	wrong   []string
}

// dribbleSize is how many bytes come at a time while the relay dribbles: less
// than a frame's header, and no divisor of it.
const dribbleSize = 7

// startRelay starts a relay that ends with the test.
func startRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), target: target, conns: make(map[net.Conn]bool)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		r.cut()
		running.Wait()
		r.check(t)
	})
	return r
}

// check fails the test with every report that was wrong.
func (r *relay) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	same(t, "reports", r.wrong)
	r.wrong = nil
}

func (r *relay) complain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// cut closes every connection at once.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			r.wrong = append(r.wrong, err.Error())
		}
	}
}

func (r *relay) setDribble(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dribble = on
}

func (r *relay) counts() (links, reports int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links, r.reports
}

func (r *relay) track(conn net.Conn, here bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if here {
		r.conns[conn] = true
	} else {
		delete(r.conns, conn)
	}
}

// serve passes one connection on until either side ends it.
func (r *relay) serve(ctx context.Context, agent net.Conn) {
	defer agent.Close()
	var d net.Dialer
	master, err := d.DialContext(ctx, "tcp", r.target)
	if err != nil {
		return // the master is down, and so is its port here
	}
	defer master.Close()
	for _, conn := range []net.Conn{agent, master} {
		r.track(conn, true)
		defer r.track(conn, false)
	}
	r.mu.Lock()
	r.links++
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		r.passReports(agent, master)
		r.end(master)
	})
	r.passFrames(master, agent)
	r.end(agent)
	both.Wait()
}

func (r *relay) end(conn net.Conn) {
	if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		r.complain("close: %v", err)
	}
}

// passReports judges each report before it lets it through.
func (r *relay) passReports(from io.Reader, to io.Writer) {
	last := wire.NoOffset
	frame := make([]byte, ha.ReportSize)
	for {
		if _, err := io.ReadFull(from, frame); err != nil {
			return
		}
		off, err := ha.ParseReport(frame)
		if err != nil {
			r.complain("report: %v", err)
			return
		}
		r.mu.Lock()
		r.reports++
		// The very first request of an empty replica asks for byte 1.
		if off > max(r.shown, 1) {
			r.wrong = append(r.wrong, fmt.Sprintf("I3: report %d, but the master has shown %d", off, r.shown))
		}
		if off < last {
			r.wrong = append(r.wrong, fmt.Sprintf("report %d after %d on one connection", off, last))
		}
		r.mu.Unlock()
		last = off
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// TestRelay_SeesWrongReports: what judges the agent's acks must be able to find
// one that is wrong.
func TestRelay_SeesWrongReports(t *testing.T) {
	master := startFakeMaster(t, func(to io.Writer, request wire.PhyOffset) error {
		if err := header(to, request, 9); err != nil {
			return err
		}
		_, err := to.Write(make([]byte, 9))
		return err
	})
	for _, c := range []struct {
		name    string
		reports []wire.PhyOffset // behind a request of 1 and its answer, which ends at 10
		wrong   int
	}{
		{"honest", []wire.PhyOffset{1, 5, 10, 10}, 0},
		{"above what was shown", []wire.PhyOffset{11}, 1},
		{"falling", []wire.PhyOffset{10, 9}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := startRelay(t, master.addr)
			conn, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer closeConn(t, conn)
			say := func(off wire.PhyOffset) {
				if _, err := conn.Write(ha.AppendReport(nil, off)); err != nil {
					t.Fatal(err)
				}
			}
			say(1)
			if _, err := io.ReadFull(conn, make([]byte, ha.HeaderSize+9)); err != nil {
				t.Fatal(err)
			}
			for _, off := range c.reports {
				say(off)
			}
			waitFor(t, "all reports", func() (string, bool) {
				_, reports := r.counts()
				return fmt.Sprint(reports), reports == 1+len(c.reports)
			})
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.wrong) != c.wrong {
				t.Errorf("complaints are %q", r.wrong)
			}
			r.wrong = nil // they were called for
		})
	}
}

// passFrames notes how far bodies reach before it lets them through.
func (r *relay) passFrames(from io.Reader, to io.Writer) {
	var decoder ha.Decoder
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !r.pass(&decoder, buf[:n], to) || err != nil {
			return
		}
	}
}

func (r *relay) pass(decoder *ha.Decoder, b []byte, to io.Writer) bool {
	for in := b; len(in) > 0; {
		n, ev, err := decoder.Next(in)
		if err != nil {
			r.complain("the master sent no frames: %v", err)
			return false
		}
		in = in[n:]
		if ev.Kind == ha.Body {
			r.mu.Lock()
			r.shown = max(r.shown, ev.PhyOffset.Add(wire.ByteSize(len(ev.Data))))
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	size := len(b)
	if r.dribble {
		size = dribbleSize
	}
	r.mu.Unlock()
	for len(b) > 0 {
		piece := b[:min(size, len(b))]
		if _, err := to.Write(piece); err != nil {
			return false
		}
		b = b[len(piece):]
	}
	return true
}
