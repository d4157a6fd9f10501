package stock_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
	"github.com/haagent/haagent/wire/remoting"
)

// peer is a remoting port of which the test decides what it answers.
type peer struct {
	net.Listener
	dialled atomic.Int32
	wg      sync.WaitGroup
}

// startPeer serves every connection with serve, which may return at any time;
// the connection is closed then.
func startPeer(t *testing.T, serve func(net.Conn)) *peer {
	t.Helper()
	before := goleak.IgnoreCurrent()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Listener: l}
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.dialled.Add(1)
			p.wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.wg.Wait()
		goleak.VerifyNone(t, before)
	})
	return p
}

// startAnswering starts a peer that answers each request with handle's commands.
func startAnswering(t *testing.T, handle func(req remoting.Command) []remoting.Command) *peer {
	return startPeer(t, func(conn net.Conn) {
		for {
			req, err := remoting.ReadCommand(conn, remoting.MaxFrame)
			if err != nil {
				return
			}
			for _, answer := range handle(req) {
				b, err := remoting.Encode(answer)
				if err != nil {
					t.Error(err)
				}
				if _, err := conn.Write(b); err != nil {
					return
				}
			}
		}
	})
}

func newClient(t *testing.T, addr string, opt stock.BrokerOptions) *stock.Broker {
	t.Helper()
	b := stock.NewBroker(addr, opt)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// recorded returns a real broker's answer as the answer to req.
func recorded(t *testing.T, name string, req remoting.Command) []remoting.Command {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "wire", "remoting", "testdata", name+".bin"))
	if err != nil {
		t.Error(err)
		return nil
	}
	answer, err := remoting.ReadCommand(bytes.NewReader(b), remoting.MaxFrame)
	if err != nil {
		t.Error(err)
		return nil
	}
	answer.Opaque = req.Opaque
	return []remoting.Command{answer}
}

func TestBroker_ReadsWhatRealBrokersAnswer(t *testing.T) {
	tests := map[string]struct {
		version string
		max     wire.PhyOffset
		size    int
	}{
		"4.9.7": {"V4_9_7", 4515, 903},
		"5.3.3": {"V5_3_3", 4765, 953},
	}
	for v, want := range tests {
		t.Run(v, func(t *testing.T) {
			empty, early := atomic.Bool{}, atomic.Bool{}
			p := startAnswering(t, func(req remoting.Command) []remoting.Command {
				name := fmt.Sprintf("%s-%d", v, req.Code)
				switch {
				case req.Code == 28 && early.Load():
					name += "-early"
				case req.Code == 28 && empty.Load():
					name += "-empty"
				case req.Code == 33 && req.ExtFields["offset"] == "1":
					name += "-none"
				}
				return recorded(t, name, req)
			})
			b := newClient(t, p.Addr().String(), stock.BrokerOptions{})
			ctx := t.Context()

			c, err := b.Config(ctx)
			if err != nil {
				t.Fatal(err)
			}
			c.Raw = nil
			if got, want := fmt.Sprintf("%+v", c), "{ClusterName:DefaultCluster BrokerName:broker-a BrokerID:0 Role:ASYNC_MASTER "+
				"BrokerIP2:127.0.0.1 ListenPort:12110 HAListenPort:12111 SegmentSize:1MiB InSyncReplicas:1 CountsInSync:"+fmt.Sprint(v == "5.3.3")+" FlushDiskType:ASYNC_FLUSH "+
				"StorePathCommitLog:/var/lib/rocketmq/store/commitlog Controller:false DLedger:false ConfigRocksDB:false Raw:map[]}"; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}

			info, err := b.RuntimeInfo(ctx)
			if err != nil || info.MinOffset != 0 || info.MaxOffset != want.max || info.Version != want.version || info.Empty() {
				t.Errorf("info %d to %d, %q, %v", info.MinOffset, info.MaxOffset, info.Version, err)
			}
			empty.Store(true)
			info, err = b.RuntimeInfo(ctx)
			if err != nil || info.MinOffset != wire.NoOffset || info.MaxOffset != 0 || !info.Empty() {
				t.Errorf("empty: %d to %d, %v", info.MinOffset, info.MaxOffset, err)
			}
			early.Store(true)
			if _, err := b.RuntimeInfo(ctx); !errors.Is(err, stock.ErrNotReady) {
				t.Errorf("early: %v", err)
			}

			m, err := b.ViewMessage(ctx, 0)
			if err != nil || len(m) != want.size {
				t.Errorf("message: %d bytes, %v", len(m), err)
			}
			if _, err := b.ViewMessage(ctx, 1); !errors.Is(err, stock.ErrNoMessage) {
				t.Errorf("no message: %v", err)
			}
			if n := p.dialled.Load(); n != 1 {
				t.Errorf("dialled %d times", n)
			}
		})
	}
}

func TestBroker_RefusalsHaveNames(t *testing.T) {
	const acl = "org.apache.rocketmq.acl.common.AclException: "
	tests := []struct {
		request remoting.RequestCode
		code    remoting.ResponseCode
		remark  string
		want    error
	}{
		{28, 1, acl + "No accessKey is configured, org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)", stock.ErrUnauthorized},
		{33, 1, acl + "Check signature failed for accessKey=haagent", stock.ErrUnauthorized},
		{26, 1, acl + "No acl config for nobody", stock.ErrUnauthorized},
		{26, 16, "username cannot be null.", stock.ErrUnauthorized},
		{26, 16, "check signature failed.", stock.ErrUnauthorized},
		{402, 3, " request type 402 not supported", stock.ErrNotSupported},
		{33, 1, "can not find message by the offset, 500", stock.ErrNoMessage},
		{33, 1, "java.lang.IllegalArgumentException: newLimit < 0: (-626843481 < 0)", stock.ErrNoMessage},
		{33, 1, "java.lang.NullPointerException", nil},
		{28, 1, "java.util.NoSuchElementException, java.base/java.util.LinkedList.getLast(LinkedList.java:261)", stock.ErrNotReady},
		{26, 1, "java.util.NoSuchElementException", nil},
		{21, 2, "[OVERLOAD]system busy, start flow control for a while", stock.ErrNotReady},
		{21, 14, "", stock.ErrNotReady},
		{28, 1, "can not find message", nil},
		{28, 77, strings.Repeat("ü", 200) + "\n", nil},
	}
	sentinels := []error{stock.ErrUnauthorized, stock.ErrNotSupported, stock.ErrNoMessage, stock.ErrNotReady}
	for _, tt := range tests {
		p := startAnswering(t, func(req remoting.Command) []remoting.Command {
			return []remoting.Command{req.Reply(tt.code, tt.remark)}
		})
		_, err := newClient(t, p.Addr().String(), stock.BrokerOptions{}).Raw(t.Context(), tt.request, nil, nil)
		var re *stock.ResponseError
		if !errors.As(err, &re) || re.Code != tt.code || re.Remark != tt.remark || re.Request != tt.request {
			t.Errorf("%v: %v", tt.request, err)
			continue
		}
		for _, s := range sentinels {
			if errors.Is(err, s) != (s == tt.want) {
				t.Errorf("%v with %q: %v", tt.code, tt.remark, err)
			}
		}
		for _, part := range []string{p.Addr().String(), tt.request.String(), tt.code.String()} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not name %s", err, part)
			}
		}
		if len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\n\uFFFD") {
			t.Errorf("remark passed on raw: %q", err)
		}
	}
}

func TestBroker_OneConnectionForAll(t *testing.T) {
	p := startAnswering(t, func(req remoting.Command) []remoting.Command {
		answer := req.Reply(remoting.Success, "")
		answer.Body = []byte(req.ExtFields["n"])
		notice := remoting.NewRequest(40, nil, nil) // NOTIFY_CONSUMER_IDS_CHANGED
		return []remoting.Command{notice, answer}
	})
	b := newClient(t, p.Addr().String(), stock.BrokerOptions{})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			n := fmt.Sprint(i)
			answer, err := b.Raw(t.Context(), remoting.GetMaxOffset, map[string]string{"n": n}, nil)
			if err != nil || string(answer.Body) != n {
				t.Errorf("asked %s, got %q, %v", n, answer.Body, err)
			}
		})
	}
	wg.Wait()
	if n := p.dialled.Load(); n != 1 {
		t.Errorf("dialled %d times", n)
	}
}

func TestBroker_ContextEndsTheRequestAndTheWait(t *testing.T) {
	arrived := make(chan struct{}, 1)
	p := startAnswering(t, func(remoting.Command) []remoting.Command {
		arrived <- struct{}{}
		return nil
	})
	b := newClient(t, p.Addr().String(), stock.BrokerOptions{Timeout: time.Minute})
	running, stop := context.WithCancel(t.Context())
	first := make(chan error)
	go func() {
		_, err := b.RuntimeInfo(running)
		first <- err
	}()
	<-arrived
	waiting, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := b.RuntimeInfo(waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	stop()
	if err := <-first; !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "no answer within") {
		t.Errorf("running: %v", err)
	}
}

func TestBroker_CloseEndsTheRequest(t *testing.T) {
	arrived := make(chan struct{}, 1)
	p := startAnswering(t, func(remoting.Command) []remoting.Command {
		arrived <- struct{}{}
		return nil
	})
	b := stock.NewBroker(p.Addr().String(), stock.BrokerOptions{Timeout: time.Minute})
	first := make(chan error)
	go func() {
		_, err := b.RuntimeInfo(t.Context())
		first <- err
	}()
	<-arrived
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-first; !errors.Is(err, net.ErrClosed) {
		t.Errorf("running: %v", err)
	}
	if _, err := b.RuntimeInfo(t.Context()); !errors.Is(err, net.ErrClosed) || p.dialled.Load() != 1 {
		t.Errorf("afterwards: %v", err)
	}
}

func TestI3_ARequestOnAnHAPortAcksNothing(t *testing.T) {
	credentials := []remoting.Credentials{{}, {AccessKey: "haagent", SecretKey: "s"}, {AccessKey: "<k>", SecretKey: "s", SecurityToken: "tok"}}
	for _, cred := range credentials {
		acks := make(chan wire.PhyOffset, 1)
		p := startPeer(t, func(conn net.Conn) {
			off, err := ha.NewReportReader(conn).Next() // as masters do: the last whole value of a read
			if err != nil {
				t.Error(err)
			}
			acks <- off
		})
		b := newClient(t, p.Addr().String(), stock.BrokerOptions{Credentials: cred})
		for i := range 30 {
			ext := map[string]string{"offset": strings.Repeat("7", i%11)}
			if _, err := b.Raw(t.Context(), remoting.ViewMessageByID, ext, nil); err == nil {
				t.Fatal("no error")
			}
			if off := <-acks; off != 0 {
				t.Fatalf("acked %d", off)
			}
		}
	}
}

func TestBroker_ViewMessageBelievesNoLength(t *testing.T) {
	message := func(size uint32, off wire.PhyOffset, n int) []byte {
		b := make([]byte, n)
		if n >= 36 {
			binary.BigEndian.PutUint32(b, size)
			binary.BigEndian.PutUint64(b[28:], uint64(off))
		}
		return b
	}
	tests := map[string]struct {
		body []byte
		ok   bool
	}{
		"whole":        {message(100, 4096, 100), true},
		"other offset": {message(100, 4097, 100), false},
		"other size":   {message(101, 4096, 100), false},
		"huge size":    {message(1<<32-1, 4096, 100), false},
		"short":        {message(35, 4096, 35), false},
		"nothing":      {nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := startAnswering(t, func(req remoting.Command) []remoting.Command {
				answer := req.Reply(remoting.Success, "")
				answer.Body = tt.body
				return []remoting.Command{answer}
			})
			m, err := newClient(t, p.Addr().String(), stock.BrokerOptions{}).ViewMessage(t.Context(), 4096)
			switch {
			case tt.ok && (err != nil || !bytes.Equal(m, tt.body)):
				t.Errorf("%d bytes, %v", len(m), err)
			case !tt.ok && (!errors.Is(err, stock.ErrNoMessage) || !strings.Contains(err.Error(), "4096")):
				t.Errorf("got %v", err)
			}
		})
	}
}
