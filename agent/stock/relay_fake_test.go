package stock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// countingMaster is a SYNC_MASTER with producers, which counts its slaves as
// brokers do: 4.x takes the highest report that it ever got, as long as anybody
// is connected and not too far behind; 5.x counts the connections that have
// reported enough.
type countingMaster struct {
	*fakeMaster
	v5     bool
	inSync int           // inSyncReplicas of 5.x
	gap    wire.ByteSize // haSlaveFallbehindMax of 4.x

	mu      sync.Mutex // guards what follows
	live    map[int]wire.PhyOffset
	highest wire.PhyOffset
	held    map[string]wire.PhyOffset // the most that each replica has acked: the truth
	n       int                       // of which this many must have what is reported
	changed chan struct{}             // closed and replaced with each change
	short   wire.PhyOffset            // where the log is said to end; wire.NoOffset: where it does
	guests  []string                  // slaves that it says it has, besides
}

// newCountingMaster returns a master of a version; inSync of 0 is 4.x. It holds
// what is reported to it against the truth about n replicas. Properties are its
// others, name after name and value.
func newCountingMaster(t testing.TB, inSync, n int, properties ...string) *countingMaster {
	t.Helper()
	l := newServedLog(t, 64*wire.KiB, 0)
	m := &countingMaster{v5: inSync > 0, inSync: inSync, gap: 256 * wire.MiB, n: n,
		live: make(map[int]wire.PhyOffset), held: make(map[string]wire.PhyOffset), changed: make(chan struct{}), short: wire.NoOffset}
	m.fakeMaster = newConfiguredMaster(t, l, func(m *fakeMaster) {
		m.config["brokerRole"] = "SYNC_MASTER"
		m.config["storePathCommitLog"] = l.dir
		if inSync > 0 {
			m.config["inSyncReplicas"] = strconv.Itoa(inSync)
		}
		for i := 0; i < len(properties); i += 2 {
			m.config[properties[i]] = properties[i+1]
		}
	})
	m.onReport = func(l *fakeLink, off wire.PhyOffset) { m.reported(l, off, false) }
	m.play(func(l *fakeLink) {
		m.reported(l, l.request, true)
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.live, l.n)
			m.wakeAll()
		}()
		l.serve(nil)
	})
	m.lie(m.tell)
	return m
}

// tell answers for the end of the log.
func (m *countingMaster) tell(req remoting.Command) (remoting.Command, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := m.writer.End()
	if m.short != wire.NoOffset {
		end = m.short
	}
	a := req.Reply(remoting.Success, "")
	switch {
	case req.Request() == remoting.GetBrokerHAStatus && m.v5:
		var peers []string
		for _, addr := range m.guests {
			peers = append(peers, fmt.Sprintf(`{"addr":%q,"inSync":true}`, addr))
		}
		m.state.Lock()
		defer m.state.Unlock()
		for l := range m.fakeMaster.live {
			peers = append(peers, fmt.Sprintf(`{"addr":%q,"inSync":true}`, l.conn.RemoteAddr()))
		}
		a.Version = 479
		a.Body = fmt.Appendf(nil, `{"master":true,"masterCommitLogMaxOffset":%d,"haConnectionInfo":[%s]}`, end, strings.Join(peers, ","))
	case req.Request() == remoting.GetBrokerRuntimeInfo && m.short != wire.NoOffset:
		a.Body = fmt.Appendf(nil, `{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"%d","brokerVersionDesc":"V4_9_7"}}`, end)
	default:
		return remoting.Command{}, false
	}
	return a, true
}

// end lets the log be said to end earlier than it does.
func (m *countingMaster) endsAt(short wire.PhyOffset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.short = short
}

// reported counts a report, after holding it against the truth (I3).
func (m *countingMaster) reported(l *fakeLink, off wire.PhyOffset, request bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.wakeAll()
	end := m.writer.End()
	if m.short != wire.NoOffset {
		end = m.short
	}
	have := 0
	for _, held := range m.held {
		if held >= off {
			have++
		}
	}
	if off > end || off > 0 && have < m.n {
		m.t.Errorf("link %d reported %d (request: %v): the log ends at %d, %d of %v have it", l.n, off, request, end, have, m.held)
	}
	if !m.v5 && !request && off > end {
		closeAll(m.t, l.conn)
		return
	}
	m.live[l.n] = off
	m.highest = max(m.highest, off)
}

// wakeAll tells whoever waits; mu is held.
func (m *countingMaster) wakeAll() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// shortly is a slaveTimeout for messages that nobody gets.
const shortly = 100 * time.Millisecond

// put stores a message and answers as the broker does, which waits for at most a
// slaveTimeout.
func (m *countingMaster) put(slaveTimeout time.Duration) string {
	m.append(1, 100)
	end := m.writer.End()
	m.mu.Lock()
	refused := !m.v5 && (len(m.live) == 0 || end.Sub(m.highest) >= m.gap)
	m.mu.Unlock()
	if refused {
		return brokertest.StatusNoSlave
	}
	timeout := time.After(slaveTimeout)
	for {
		m.mu.Lock()
		enough, changed := m.enough(end), m.changed
		m.mu.Unlock()
		if enough {
			return brokertest.StatusOK
		}
		select {
		case <-changed:
		case <-timeout:
			return brokertest.StatusFlushSlave
		}
	}
}

// enough reports whether a message that ends at end counts as replicated; mu is
// held.
func (m *countingMaster) enough(end wire.PhyOffset) bool {
	if !m.v5 {
		return m.highest >= end
	}
	replicas := 1
	for _, off := range m.live {
		if off >= end {
			replicas++
		}
	}
	return replicas >= m.inSync
}

// links returns what the connections have reported last.
func (m *countingMaster) links() []wire.PhyOffset {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []wire.PhyOffset
	for _, off := range m.live {
		all = append(all, off)
	}
	return all
}

// replicas are nodes that ack what a test says.
type replicas struct {
	*acks.Table
	m     *countingMaster
	conns map[string]*acks.Conn
}

func newReplicas(t testing.TB, m *countingMaster) *replicas {
	t.Helper()
	r := &replicas{Table: acks.NewTable(), m: m, conns: make(map[string]*acks.Conn)}
	t.Cleanup(r.Close)
	return r
}

func (r *replicas) join(nodes ...string) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	for _, node := range nodes {
		r.conns[node] = r.Join(node, acks.Memory)
	}
}

func (r *replicas) conn(node string) *acks.Conn {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return r.conns[node]
}

// ack makes a replica hold the log up to an offset, and say so.
func (r *replicas) ack(node string, off wire.PhyOffset) {
	r.m.mu.Lock()
	r.m.held[node] = max(r.m.held[node], off)
	r.m.mu.Unlock()
	r.conn(node).Report(acks.Marks{Memory: off, Disk: off})
}

func (r *replicas) leave(nodes ...string) {
	for _, node := range nodes {
		r.conn(node).Leave()
	}
}

// follow lets replicas join and hold all that the log ever gets, until the
// function is called that it returns, with which they leave.
func (r *replicas) follow(nodes ...string) (leave func()) {
	r.join(nodes...)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		moved, stop := r.m.listen()
		defer stop()
		for {
			for _, node := range nodes {
				r.ack(node, r.m.writer.End())
			}
			select {
			case <-moved:
			case <-ctx.Done():
				return
			}
		}
	})
	left := sync.OnceFunc(func() {
		cancel()
		work.Wait()
		r.leave(nodes...)
	})
	r.m.t.Cleanup(left)
	return left
}

// relayed is a relay at work.
type relayed struct {
	*stock.Relay
	authority *stock.Authority
	broker    *cutter
	log       *logBook
}

// relay runs a relay for n replicas until the test ends, on changed options.
func relay(t testing.TB, m *countingMaster, table stock.RelayAcks, n int, change ...func(*stock.AuthorityOptions)) *relayed {
	t.Helper()
	r := &relayed{broker: &cutter{}, log: newLogBook()}
	r.Relay = stock.NewRelay(stock.RelayOptions{Acks: table, N: n, Log: r.log.logger()})
	r.authority = listenTo(t, m.fakeMaster, func(opt *stock.AuthorityOptions) {
		opt.Broker = stock.NewBroker(m.port.Addr().String(), stock.BrokerOptions{Dial: r.broker.dial})
		opt.Relay = r.Relay
		for _, f := range change {
			f(opt)
		}
	})
	return r
}

// awaitLinks waits until so many connections have all reported off.
func (r *relayed) awaitLinks(t testing.TB, m *countingMaster, n int, off wire.PhyOffset) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d connections at %d", n, off), func() bool {
		links := m.links()
		for _, at := range links {
			if at != off {
				return false
			}
		}
		return len(links) == n
	})
}

// cutter cuts connections that it has dialled.
type cutter struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cutter) cut(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	c.conns = nil
}
