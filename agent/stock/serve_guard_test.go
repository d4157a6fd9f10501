package stock_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/stock"
)

func TestAllowList(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list, addr string
		want       bool
	}{
		{"10.1.0.0/16", "10.1.2.3", true},
		{"10.1.0.0/16", "10.2.2.3", false},
		{"10.1.0.0/16", "::ffff:10.1.2.3", true},
		{"10.1.2.3/16", "10.1.9.9", true},
		{" 10.0.0.1 , 192.168.7.0/24,", "10.0.0.1", true},
		{" 10.0.0.1 , 192.168.7.0/24,", "192.168.7.200", true},
		{" 10.0.0.1 , 192.168.7.0/24,", "10.0.0.2", false},
		{"fd00::/8", "fd12::1", true},
		{"fd00::/8", "fe80::1", false},
		{"fe80::/10", "fe80::1%eth0", true},
		{"0.0.0.0/0", "8.8.8.8", true},
		{"0.0.0.0/0", "::1", false},
		{"", "127.0.0.1", false},
	} {
		list, err := stock.ParseAllowList(c.list)
		if err != nil {
			t.Errorf("%q: %v", c.list, err)
			continue
		}
		if got := list.Contains(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("%q holds %s: %v", c.list, c.addr, got)
		}
		again, err := stock.ParseAllowList(list.String())
		if err != nil || again.String() != list.String() {
			t.Errorf("%q reads back as %q: %v", list, again, err)
		}
	}
	for _, word := range []string{"10.0.0.0/33", "host", "10.0.0", "10.0.0.1:80", "10.0.0.0/8;10.1.0.0/16"} {
		if _, err := stock.ParseAllowList("10.0.0.1," + word); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", word, err)
		}
	}
	for addr, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "10.0.0.1": false} {
		if got := stock.AllowLoopback().Contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("loopback holds %s: %v", addr, got)
		}
	}
	if stock.AllowLoopback().Contains(netip.Addr{}) {
		t.Error("nobody knows who that is, and he was let in")
	}
}

// gateLog is a log that tests read.
type gateLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *gateLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *gateLog) count(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), word)
}

func newGate(t *testing.T, allow string) (*stock.Gate, *gateLog) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4zero})
	if err != nil {
		t.Fatal(err)
	}
	list, err := stock.ParseAllowList(allow)
	if err != nil {
		t.Fatal(err)
	}
	log := &gateLog{}
	g := stock.NewGate(l, list, "the port", slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, log
}

// knock connects to a gate from one of the addresses of this host.
func knock(t *testing.T, g *stock.Gate, from string) *net.TCPConn {
	t.Helper()
	to, ok := g.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal(g.Addr())
	}
	conn, err := net.DialTCP("tcp4", &net.TCPAddr{IP: net.ParseIP(from)}, &net.TCPAddr{IP: net.ParseIP("127.0.0.1"), Port: to.Port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// turnedAway reports whether a connection ends without a byte.
func turnedAway(conn net.Conn) bool {
	n, err := conn.Read(make([]byte, 1))
	return n == 0 && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET))
}

// A stranger gets no byte and no time, and one line in the log however often he
// comes; a friend between is let in.
func TestGate_LetsInFriendsOnly(t *testing.T) {
	t.Parallel()
	g, log := newGate(t, "127.0.0.1")
	l := g.Lend()
	accepted := make(chan net.Conn, 4)
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	for range 20 {
		if !turnedAway(knock(t, g, "127.0.0.2")) {
			t.Fatal("a stranger was let in")
		}
	}
	if !turnedAway(knock(t, g, "127.0.0.3")) {
		t.Fatal("a stranger was let in")
	}
	friend := knock(t, g, "127.0.0.1")
	conn := <-accepted
	if conn == nil || conn.RemoteAddr().String() != friend.LocalAddr().String() {
		t.Errorf("let in was %v", conn)
	}
	if conn != nil && conn.Close() != nil {
		t.Error("the connection does not close")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if late, ok := <-accepted; ok {
		t.Errorf("after the end %v was let in", late.RemoteAddr())
	}
	if n := log.count("127.0.0.2"); n != 1 {
		t.Errorf("the log names the stranger %d times", n)
	}
	if n := g.Refused(); n != 21 {
		t.Errorf("%d were refused, want 21", n)
	}
}

// A gate is lent again and again; between loans connections are turned away, and
// the port stays the same.
func TestGate_IsLentAgain(t *testing.T) {
	t.Parallel()
	g, _ := newGate(t, "127.0.0.0/8")
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		away := make(chan error, 1)
		go func() { away <- g.TurnAway(ctx) }()
		if !turnedAway(knock(t, g, "127.0.0.1")) {
			t.Error("nobody was to be let in")
		}
		cancel()
		if err := <-away; err != nil {
			t.Error(err)
		}
		l := g.Lend()
		peer := knock(t, g, "127.0.0.1")
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil || conn.Close() != nil {
			t.Error(err)
		}
		if n, err := peer.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("read %d, %v", n, err)
		}
		waiting := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			waiting <- err
		}()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waiting; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the loan ended with %v", err)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := g.Lend().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed port accepts: %v", err)
	}
	if err := g.TurnAway(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed port turns away: %v", err)
	}
}
