package stock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire/ha"
	"github.com/haagent/haagent/wire/remoting"
)

func TestBroker_AnIdleConnectionThatWasClosedIsReplaced(t *testing.T) {
	p := startPeer(t, func(conn net.Conn) {
		req, err := remoting.ReadCommand(conn, remoting.MaxFrame)
		if err != nil {
			t.Error(err)
			return
		}
		b, err := remoting.Encode(req.Reply(remoting.Success, ""))
		if err != nil {
			t.Error(err)
		}
		if _, err := conn.Write(b); err != nil {
			t.Error(err)
		}
	})
	b := newClient(t, p.Addr().String(), stock.BrokerOptions{})
	for range 5 {
		if _, err := b.Raw(t.Context(), remoting.GetAllTopicConfig, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.dialled.Load(); n != 5 {
		t.Errorf("dialled %d times", n)
	}
}

func TestBroker_APeerThatOnlyClosesIsAskedOnce(t *testing.T) {
	p := startPeer(t, func(net.Conn) {})
	b := newClient(t, p.Addr().String(), stock.BrokerOptions{})
	for n := range int32(3) {
		if _, err := b.Raw(t.Context(), remoting.GetAllTopicConfig, nil, nil); err == nil {
			t.Fatal("no error")
		}
		if got := p.dialled.Load(); got != n+1 {
			t.Errorf("dialled %d times for %d requests", got, n+1)
		}
	}
}

func TestBroker_NobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, err = newClient(t, addr, stock.BrokerOptions{}).Config(t.Context())
	var op *net.OpError
	if !errors.As(err, &op) || !strings.Contains(err.Error(), addr) {
		t.Errorf("got %v", err)
	}
}

func TestBroker_ALateAnswerIsNobodys(t *testing.T) {
	release := make(chan struct{})
	p := startAnswering(t, func(req remoting.Command) []remoting.Command {
		answer := req.Reply(remoting.Success, "")
		answer.Body = []byte(req.ExtFields["n"])
		if req.ExtFields["n"] == "slow" {
			<-release
		}
		return []remoting.Command{answer}
	})
	b := newClient(t, p.Addr().String(), stock.BrokerOptions{Timeout: 50 * time.Millisecond})
	_, err := b.Raw(t.Context(), remoting.GetMaxOffset, map[string]string{"n": "slow"}, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("got %v", err)
	}
	close(release)
	answer, err := b.Raw(t.Context(), remoting.GetMaxOffset, map[string]string{"n": "next"}, nil)
	if err != nil || string(answer.Body) != "next" || p.dialled.Load() != 2 {
		t.Errorf("got %q, %v over %d connections", answer.Body, err, p.dialled.Load())
	}
}

func TestFault4_GarbageFromAPeerIsNamed(t *testing.T) {
	tests := []struct {
		name, in string
		kind     error
		says     string
	}{
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n", remoting.ErrFrame, "answered 48 54 54 50 2f 31 2e 31: not a RocketMQ remoting port"},
		{"TLS alert", "\x15\x03\x03\x00\x02\x02\x28", remoting.ErrFrame, "answered 15 03 03 00 02 02 28: not a RocketMQ remoting port"},
		{"HA port", string(ha.AppendHeader(nil, ha.Header{PhyOffset: 1 << 20, BodySize: 5})) + "abcde", remoting.ErrFrame, "answered 00 00 00 00: not a RocketMQ remoting port"},
		{"too much", "\x04\x00\x00\x00\x00\x00\x00\x02{}", remoting.ErrTooLarge, "67108868 bytes, at most 67108864 are read"},
		{"another request's answer", "\x00\x00\x00\x1d\x00\x00\x00\x19" + `{"flag":1,"opaque":99999}`, remoting.ErrFrame, "answer to request 99999 instead of 1"},
		{"torn answer", "\x00\x00\x00\x1d\x00\x00\x00\x19{", io.ErrUnexpectedEOF, "unexpected EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startPeer(t, func(conn net.Conn) {
				if _, err := remoting.ReadCommand(conn, remoting.MaxFrame); err != nil {
					t.Error(err)
				}
				if _, err := io.WriteString(conn, tt.in); err != nil {
					t.Error(err)
				}
			})
			b := newClient(t, p.Addr().String(), stock.BrokerOptions{})
			for range 2 {
				_, err := b.Config(t.Context())
				// The second request has opaque 2.
				says := strings.Replace(tt.says, "instead of 1", "instead of", 1)
				if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), p.Addr().String()) {
					t.Errorf("got %v", err)
				}
			}
			if n := p.dialled.Load(); n != 2 {
				t.Errorf("dialled %d times: a garbled connection was used again", n)
			}
		})
	}
}
