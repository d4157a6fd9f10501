package control_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/wire"
)

// announced tells of every wait that reaches the handlers.
func announced(h control.Handlers) (control.Handlers, <-chan struct{}) {
	entered := make(chan struct{}, 10_000)
	wait := h.Wait
	h.Wait = func(ctx context.Context, r control.WaitRequest) (control.WaitAnswer, error) {
		entered <- struct{}{}
		return wait(ctx, r)
	}
	return h, entered
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// read reads one answer.
func read(t *testing.T, conn net.Conn) (int, string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Two thousand wait at once, each on a connection of its own: one report answers
// every other one, the last replica's leaving the rest.
func TestWait_TwoThousandAtOnce(t *testing.T) {
	const many = 2000
	table := acks.NewTable()
	a := table.Join("a", acks.Memory)
	h, entered := announced(waiters(table, 0))
	addr := serveHTTP(t, h)
	conns := make([]net.Conn, many)
	for i := range conns {
		conns[i] = dial(t, addr)
		write(t, conns[i], fmt.Sprintf("GET /v1/wait?offset=%d&timeout=5m HTTP/1.1\r\nHost: a\r\n\r\n", 100+i%2*100))
	}
	for range conns {
		<-entered
	}
	a.Report(acks.Marks{Memory: 100, Disk: wire.NoOffset})
	for i := 0; i < many; i += 2 {
		if code, body := read(t, conns[i]); code != 200 || !strings.Contains(body, `"PUT_OK"`) {
			t.Fatalf("%d: %d %s", i, code, body)
		}
	}
	a.Leave()
	for i := 1; i < many; i += 2 {
		if code, body := read(t, conns[i]); code != 503 || !strings.Contains(body, `"SLAVE_NOT_AVAILABLE"`) {
			t.Fatalf("%d: %d %s", i, code, body)
		}
	}
}
