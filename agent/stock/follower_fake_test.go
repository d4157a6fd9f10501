package stock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// fakeMaster is a source with a true log and a true remoting port. What its HA
// port does is up to a script. It writes down all that a slave does.
type fakeMaster struct {
	*servedLog
	haPort, port net.Listener
	config       map[string]string
	work         sync.WaitGroup

	// beat is how long serve is silent before it sends a heartbeat.
	beat time.Duration

	state  sync.Mutex // guards what follows
	script func(*fakeLink)
	// onReport, where not nil, is called for each report but the request.
	onReport func(l *fakeLink, off wire.PhyOffset)
	// answer, where it returns true, has answered a request of its own accord.
	answer func(req remoting.Command) (remoting.Command, bool)
	events []fakeEvent
	live   map[*fakeLink]bool
	opened int
}

// fakeEvent is something that a slave did.
type fakeEvent struct {
	at   time.Time
	kind string // ask, request, report, close
	link int    // from 1 on; 0 for ask
	off  wire.PhyOffset
	code remoting.RequestCode // of ask
}

func (e fakeEvent) String() string {
	if e.kind == "ask" {
		return fmt.Sprintf("ask %v %d", e.code, e.off)
	}
	return fmt.Sprintf("%s %d on link %d", e.kind, e.off, e.link)
}

// newFakeMaster returns a master of l that serves as it should until play.
func newFakeMaster(t testing.TB, l *servedLog) *fakeMaster {
	t.Helper()
	return newConfiguredMaster(t, l, func(*fakeMaster) {})
}

// newConfiguredMaster lets configure change what the master says of itself.
func newConfiguredMaster(t testing.TB, l *servedLog, configure func(*fakeMaster)) *fakeMaster {
	t.Helper()
	m := &fakeMaster{servedLog: l, beat: 50 * time.Millisecond, live: make(map[*fakeLink]bool)}
	m.script = func(l *fakeLink) { l.serve(nil) }
	m.haPort, m.port = listenTCP(t), listenTCP(t)
	m.config = map[string]string{
		"brokerClusterName": "c1", "brokerName": "b1", "brokerId": "0", "brokerRole": "ASYNC_MASTER",
		"listenPort": portOf(m.port), "haListenPort": portOf(m.haPort),
		"mappedFileSizeCommitLog": strconv.FormatInt(int64(l.size), 10),
	}
	configure(m)
	m.work.Go(m.accept)
	m.serveRemoting(t)
	t.Cleanup(func() {
		closeAll(t, m.haPort)
		m.cut()
		m.work.Wait()
	})
	return m
}

func listenTCP(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func portOf(l net.Listener) string {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		panic(err)
	}
	return port
}

func closeAll(t testing.TB, all ...io.Closer) {
	t.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

// serveRemoting answers truly what a survey asks, and notes each request.
func (m *fakeMaster) serveRemoting(t testing.TB) {
	inner := listenTCP(t) // of the server that knows, behind the one that notes
	truth := stock.RemotingServerOptions{Listener: inner, Config: m.config, CommitLogDir: m.dir, SegmentSize: m.size,
		End: func() wire.PhyOffset { return m.writer.End() }, Min: func() wire.PhyOffset { return m.writer.Min() }}
	if m.config["inSyncReplicas"] != "" {
		truth.Version, truth.VersionNumber = "V5_3_3", 479
	}
	run(t, stock.NewRemotingServer(truth).Run)
	behind := stock.NewBroker(inner.Addr().String(), stock.BrokerOptions{})
	t.Cleanup(func() { closeAll(t, behind) })
	handlers := make(map[remoting.RequestCode]stock.RemotingHandler)
	for _, code := range []remoting.RequestCode{remoting.GetBrokerConfig, remoting.GetBrokerRuntimeInfo, remoting.ViewMessageByID, remoting.GetBrokerHAStatus} {
		handlers[code] = func(ctx context.Context, _ net.Addr, req remoting.Command) remoting.Command {
			off, err := strconv.ParseInt(req.ExtFields["offset"], 10, 64)
			if err != nil {
				off = int64(wire.NoOffset)
			}
			m.noteEvent(fakeEvent{kind: "ask", code: code, off: wire.PhyOffset(off)})
			m.state.Lock()
			answer := m.answer
			m.state.Unlock()
			if answer != nil {
				if a, ok := answer(req); ok {
					return a
				}
			}
			a, err := behind.Raw(ctx, code, req.ExtFields, nil)
			reply := req.Reply(remoting.Success, "")
			var refused *stock.ResponseError
			switch {
			case errors.As(err, &refused):
				return req.Reply(refused.Code, refused.Remark)
			case err != nil:
				return req.Reply(remoting.SystemError, err.Error())
			}
			reply.Body, reply.Version = a.Body, a.Version
			return reply
		}
	}
	run(t, stock.NewRemotingServer(stock.RemotingServerOptions{Listener: m.port, Version: "as the handlers say", Handlers: handlers}).Run)
}

func (m *fakeMaster) noteEvent(e fakeEvent) {
	m.state.Lock()
	defer m.state.Unlock()
	e.at = time.Now()
	m.events = append(m.events, e)
}

// play changes what the HA port does from the next connection on.
func (m *fakeMaster) play(script func(*fakeLink)) {
	m.state.Lock()
	defer m.state.Unlock()
	m.script = script
}

// lie makes the remoting port answer something else, where answer returns true.
func (m *fakeMaster) lie(answer func(req remoting.Command) (remoting.Command, bool)) {
	m.state.Lock()
	defer m.state.Unlock()
	m.answer = answer
}

// cut closes all connections of the HA port.
func (m *fakeMaster) cut() {
	m.state.Lock()
	defer m.state.Unlock()
	for l := range m.live {
		closeAll(m.t, l.conn)
	}
}

func (m *fakeMaster) accept() {
	for {
		conn, err := m.haPort.Accept()
		if err != nil {
			return
		}
		m.state.Lock()
		m.opened++
		l := &fakeLink{m: m, n: m.opened, conn: conn, gone: make(chan struct{})}
		m.live[l] = true
		script := m.script
		m.state.Unlock()
		m.work.Go(func() { l.run(script) })
	}
}

// dialled returns how many connections there were.
func (m *fakeMaster) dialled() int {
	m.state.Lock()
	defer m.state.Unlock()
	return m.opened
}

// unused reports that there is no connection.
func (m *fakeMaster) unused() bool {
	m.state.Lock()
	defer m.state.Unlock()
	return len(m.live) == 0
}

// happened returns the events of a kind so far.
func (m *fakeMaster) happened(kinds ...string) []fakeEvent {
	m.state.Lock()
	defer m.state.Unlock()
	var out []fakeEvent
	for _, e := range m.events {
		if slices.Contains(kinds, e.kind) {
			out = append(out, e)
		}
	}
	return out
}

// asked returns the requests of all connections so far.
func (m *fakeMaster) asked() []wire.PhyOffset {
	var out []wire.PhyOffset
	for _, e := range m.happened("request") {
		out = append(out, e.off)
	}
	return out
}

// lastReport returns the last report of the last connection, NoOffset before it.
func (m *fakeMaster) lastReport() wire.PhyOffset {
	reports := m.happened("report")
	if len(reports) == 0 {
		return wire.NoOffset
	}
	return reports[len(reports)-1].off
}

// bytes returns what the log holds from from up to to.
func (m *fakeMaster) bytes(from, to wire.PhyOffset) []byte {
	m.t.Helper()
	all := make([]byte, to.Sub(from))
	for p := all; len(p) > 0; {
		base := from.SegmentBase(m.size)
		n := min(wire.ByteSize(len(p)), base.Add(m.size).Sub(from))
		f, err := os.Open(filepath.Join(m.dir, commitlog.Name(base)))
		if err == nil {
			_, err = f.ReadAt(p[:n], int64(from.Sub(base)))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			m.t.Errorf("read source: %v", err)
			return all
		}
		p, from = p[n:], from.Add(n)
	}
	return all
}

// append stores n messages with bodies of size bytes.
func (m *fakeMaster) append(n int, size wire.ByteSize) {
	m.t.Helper()
	appendMessages(m.servedLog, n, size)
}

func appendMessages(l *servedLog, n int, size wire.ByteSize) {
	l.t.Helper()
	for i := range n {
		body := make([]byte, size)
		for k := range body {
			body[k] = byte(k + i + 1)
		}
		msg := forge.Message{Topic: "orders", Body: body, QueueOffset: forge.NextQueueOffset, StoreTimestamp: 1_700_000_000_000, Properties: "KEYS\x01k\x02"}
		if _, err := l.writer.Append(msg); err != nil {
			l.t.Fatal(err)
		}
	}
	l.wake()
}

// eventually waits until ok is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
