package control_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/wire"
)

// pipes is a listener whose connections are pipes, so that time can be virtual.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

// inVirtualTime runs test against a server, which stop ends.
func inVirtualTime(t *testing.T, h control.Handlers, test func(t *testing.T, p *pipes, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.ServeHTTP(ctx, p) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("server: %v", err)
			}
		})
		test(t, p, stop)
		stop()
	})
}

// The longest wait takes its five minutes, and its answer arrives: no timeout of
// the server cuts it short.
func TestWait_FiveMinutes(t *testing.T) {
	table := acks.NewTable()
	table.Join("a", acks.Memory)
	inVirtualTime(t, waiters(table, 0), func(t *testing.T, p *pipes, stop func()) {
		conn := p.dial()
		defer conn.Close()
		begin := time.Now()
		write(t, conn, "GET /v1/wait?offset=1&timeout=5m HTTP/1.1\r\nHost: a\r\n\r\n")
		code, body := read(t, conn)
		if code != 504 || !strings.Contains(body, `"elapsedSeconds":300}`) || time.Since(begin) != 5*time.Minute {
			t.Errorf("after %s: %d %s", time.Since(begin), code, body)
		}
		write(t, conn, "GET /v1/wait?offset=1&timeout=4m HTTP/1.1\r\nHost: a\r\n\r\n") // over the same connection
		if code, body := read(t, conn); code != 504 || !strings.Contains(body, `"elapsedSeconds":240}`) {
			t.Errorf("again: %d %s", code, body)
		}
	})
}

// The client waits as long as the agent may, and not for ever.
func TestWait_ClientsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil }}
		client := control.NewClient(transport)
		var agent sync.WaitGroup
		agent.Go(func() { // takes the connection and never answers
			conn, err := p.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			for buf := make([]byte, 1024); ; {
				if _, err := conn.Read(buf); err != nil {
					return
				}
			}
		})
		begin := time.Now()
		_, err := client.Wait(t.Context(), control.WaitRequest{Offset: 1, Acks: 1, Timeout: control.MaxWaitTimeout})
		if took := time.Since(begin); !errors.Is(err, control.ErrNoAgent) || took < control.MaxWaitTimeout || took > control.MaxWaitTimeout+time.Minute {
			t.Errorf("after %s: %v", took, err)
		}
		agent.Wait()
	})
}

// A client that goes away takes its waiter with it at once.
func TestWait_ClientGoesAway(t *testing.T) {
	table := acks.NewTable()
	table.Join("a", acks.Memory)
	h := waiters(table, 0)
	wait := h.Wait
	ended := make(chan time.Time, 1)
	h.Wait = func(ctx context.Context, r control.WaitRequest) (control.WaitAnswer, error) {
		defer func() { ended <- time.Now() }()
		return wait(ctx, r)
	}
	inVirtualTime(t, h, func(t *testing.T, p *pipes, stop func()) {
		conn := p.dial()
		write(t, conn, "GET /v1/wait?offset=1&timeout=5m HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait()
		left := time.Now().Add(time.Minute)
		time.Sleep(time.Minute)
		if len(ended) != 0 {
			t.Fatal("ended before the client went away")
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case at := <-ended:
			if !at.Equal(left) {
				t.Errorf("ended %s after the client", at.Sub(left))
			}
		default:
			t.Error("still waiting for nobody")
		}
	})
}

// An agent that stops tells who waits that it does, and not that replicas are slow.
func TestWait_StoppingServer(t *testing.T) {
	table := acks.NewTable()
	table.Join("a", acks.Memory).Report(acks.Marks{Memory: 5, Disk: wire.NoOffset})
	inVirtualTime(t, waiters(table, 0), func(t *testing.T, p *pipes, stop func()) {
		conn := p.dial()
		defer conn.Close()
		write(t, conn, "GET /v1/wait?offset=6&timeout=5m HTTP/1.1\r\nHost: a\r\n\r\n")
		synctest.Wait()
		begin := time.Now()
		var stopped sync.WaitGroup
		stopped.Go(stop)
		code, body := read(t, conn)
		stopped.Wait()
		if code != 503 || !strings.Contains(body, `"code":"stopping"`) || time.Since(begin) > time.Second {
			t.Errorf("after %s: %d %s", time.Since(begin), code, body)
		}
	})
}
