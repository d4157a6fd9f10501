package control_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/control"
)

// crowd is how many connections are kept, and how many come.
func crowd() (most, come int) {
	if os.Getenv("HAAGENT_LONG") != "" {
		return control.MaxConns, 20_000
	}
	return 64, 400
}

// knock opens a connection from one of the addresses of this host, so that ports
// do not run out.
func knock(addr string, i int) (net.Conn, error) {
	d := net.Dialer{Timeout: 60 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 7, byte(1+i%200))}}
	return d.Dial("tcp", addr)
}

// However many connections stay open, the server keeps so many and no more, and
// answers who comes last; whoever waits goes on waiting.
func TestServeHTTP_ConnectionsHaveABound(t *testing.T) {
	waits := make(chan struct{}, 1)
	release := make(chan struct{})
	most, come := crowd()
	h := control.Handlers{
		Status: func() control.Status { return control.Status{Node: "a"} },
		Wait: func(context.Context, control.WaitRequest) (control.WaitAnswer, error) {
			waits <- struct{}{}
			<-release
			return control.WaitAnswer{Result: "PUT_OK"}, nil
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, func(ctx context.Context) error { return h.ServeAtMost(ctx, l, most) })
	addr := l.Addr().String()
	waiter := dial(t, addr)
	write(t, waiter, "GET /v1/wait?offset=1&timeout=5m HTTP/1.1\r\nHost: a\r\n\r\n")
	<-waits
	var open []net.Conn
	t.Cleanup(func() {
		for _, conn := range open {
			conn.Close()
		}
	})
	for i := range come {
		conn, err := knock(addr, i)
		if err != nil {
			if errors.Is(err, syscall.EMFILE) {
				t.Fatalf("%v after %d: let tests open more files (ulimit -n)", err, i)
			}
			t.Fatal(err)
		}
		open = append(open, conn)
		write(t, conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") // from now on it may stay for a minute
		if code, _ := read(t, conn); code != 200 {
			t.Fatalf("connection %d is answered %d", i, code)
		}
		if len(open) > most+100 { // this end's own, of which the server has let go
			open[0].Close()
			open = open[1:]
		}
	}
	last := dial(t, addr)
	write(t, last, "GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n")
	if code, body := read(t, last); code != 200 || !strings.Contains(body, `"node":"a"`) {
		t.Errorf("who comes last is answered %d %s", code, body)
	}
	if err := open[0].SetReadDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := open[0].Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("who has been quiet for longest reads %d bytes, %v", n, err)
	}
	close(release)
	if code, body := read(t, waiter); code != 200 || !strings.Contains(body, "PUT_OK") {
		t.Errorf("who waited is answered %d %s", code, body)
	}
}

// Probes leave nothing behind, whatever they send.
func TestServeHTTP_ProbesLeaveNothing(t *testing.T) {
	addr := serveHTTP(t, control.Handlers{Status: func() control.Status { return control.Status{Node: "a"} }})
	garbage := []string{"", "\x00\x00", "\x16\x03\x01\x02\x00\x01", "GET / HTTP/1.1\r\n", "GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n", strings.Repeat("x", 20<<10)}
	n := 500
	if os.Getenv("HAAGENT_LONG") != "" {
		n = 20_000
	}
	round := func(n int) {
		var work sync.WaitGroup
		for worker := range 4 {
			work.Go(func() {
				for i := worker; i < n; i += 4 {
					conn, err := knock(addr, i)
					if err != nil {
						t.Errorf("probe %d: %v", i, err)
						return
					}
					if _, err := io.WriteString(conn, garbage[i%len(garbage)]); err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
						t.Errorf("probe %d: %v", i, err)
					}
					if err := conn.Close(); err != nil {
						t.Errorf("probe %d: %v", i, err)
					}
				}
			})
		}
		work.Wait()
	}
	round(40)
	files, routines, heap := footprint(t)
	round(n)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for f, r, h := footprint(t); f > files+2 || r > routines+4 || h > heap+8<<20; f, r, h = footprint(t) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d files, %d goroutines and a heap of %d became %d, %d and %d", files, routines, heap, f, r, h)
		}
	}
}

func footprint(t *testing.T) (files, routines int, heap uint64) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return len(entries), runtime.NumGoroutine(), m.HeapAlloc
}
