package stock_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire/remoting"
)

// Fault 4: half frames and garbage cost no memory, and nobody else notices.
func TestFault4_RemotingServerBoundsStrangers(t *testing.T) {
	opt := remotingOptions(t)
	closes := make(chan error, 1000)
	opt.OnClose = func(_ net.Addr, err error) { closes <- err }
	opt.Config = map[string]string{"a": "b"}
	opt.MaxConns = 64
	b := serveRemoting(t, opt)
	ask := func() {
		t.Helper()
		if _, err := b.Raw(t.Context(), remoting.GetBrokerConfig, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	random := rand.New(rand.NewPCG(3, 4))
	heads := [][]byte{
		{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 8}, {0, 0, 0, 0}, {0, 0x10, 0, 0x04, 1, 0, 0, 9},
		{0, 0x0f, 0xff, 0xfc, 0, 0, 0, 9}, // the largest that is allowed, and nothing behind it
		[]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 100 {
		conn, err := net.Dial("tcp", opt.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		head := heads[i%len(heads)]
		if i%7 == 0 {
			head = make([]byte, 1+random.IntN(100))
			for k := range head {
				head[k] = byte(random.Uint32())
			}
		}
		if _, err := conn.Write(head); err != nil {
			t.Fatal(err)
		}
		ask()
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-closes; err == nil {
			t.Errorf("% x was taken", head)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 4<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
}

func TestRemotingServerBoundsConnections(t *testing.T) {
	opt := remotingOptions(t)
	opt.MaxConns = 1
	closes := make(chan error, 10)
	opt.OnClose = func(_ net.Addr, err error) { closes <- err }
	opt.Config = map[string]string{"a": "b"}
	b := serveRemoting(t, opt)
	if _, err := b.Raw(t.Context(), remoting.GetBrokerConfig, nil, nil); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", opt.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-closes; !errors.Is(err, serve.ErrTooManyConns) {
		t.Errorf("the second connection ended with %v", err)
	}
	if _, err := b.Raw(t.Context(), remoting.GetBrokerConfig, nil, nil); err != nil {
		t.Errorf("the first connection: %v", err)
	}
}

func TestRemotingServerDropsIdleAndSlowClients(t *testing.T) {
	for name, test := range map[string]struct {
		send []byte
		want time.Duration
	}{
		"idle":       {nil, 2 * time.Minute},
		"half frame": {[]byte{0, 0, 0, 9, 0}, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipeListener()
				closes := make(chan error, 1)
				run(t, stock.NewRemotingServer(stock.RemotingServerOptions{
					Listener: ln, OnClose: func(_ net.Addr, err error) { closes <- err },
				}).Run)
				conn := ln.dial()
				start := time.Now()
				if _, err := conn.Write(test.send); err != nil {
					t.Fatal(err)
				}
				if err := <-closes; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != test.want {
					t.Errorf("ended with %v after %v, want %v", err, time.Since(start), test.want)
				}
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("connection still open: %v", err)
				}
			})
		})
	}
}
