package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// stockBook enters the acks of stock slaves into the table that agents are in.
// Nobody tells who they are, so a slave's node is its address: of the
// connections of one host the newest counts, where it has acked anything.
//
// The first report of a connection is its request and puts nothing into the
// table; a connection that has only asked is in nobody's reach.
type stockBook struct {
	table *acks.Table
	end   func() wire.PhyOffset // of what is served
	now   func() time.Time
	log   *slog.Logger

	mu      sync.Mutex             // guards what follows
	conns   map[string]*stockSlave // by address and port
	counted map[string]*stockSlave // by node: whose acks are in the table
	seq     uint64
	said    map[string]time.Time     // what the log was told of late
	began   map[netip.Addr]time.Time // when each host last asked for a log from its start
}

// stockSlave is one connection.
type stockSlave struct {
	node, addr string
	acked      wire.PhyOffset // NoOffset: it has only asked
	seq        uint64         // in the order of first acks
	level      time.Time      // when it was last where the log ended
	ack        *acks.Conn     // nil: another one of its node counts
}

func newStockBook(table *acks.Table, end func() wire.PhyOffset, log *slog.Logger) *stockBook {
	return &stockBook{table: table, end: end, now: time.Now, log: log,
		conns: map[string]*stockSlave{}, counted: map[string]*stockSlave{}, said: map[string]time.Time{}, began: map[netip.Addr]time.Time{}}
}

// sayAgain is how long the log is spared what it was told of a slave.
const sayAgain = time.Minute

// maxSaid bounds what is remembered of that.
const maxSaid = 1024

// due reports whether the log may be told something about a slave again. mu is held.
func (b *stockBook) due(node, what string) bool {
	key := node + " " + what
	now := b.now()
	if last, ok := b.said[key]; ok && now.Sub(last) < sayAgain {
		return false
	}
	if len(b.said) >= maxSaid {
		for key, last := range b.said {
			if now.Sub(last) >= sayAgain {
				delete(b.said, key)
			}
		}
		if len(b.said) >= maxSaid {
			return false
		}
	}
	b.said[key] = now
	return true
}

// mention logs something about a slave, at most once a minute.
func (b *stockBook) mention(node, what string, log func()) {
	b.mu.Lock()
	due := b.due(node, what)
	b.mu.Unlock()
	if due {
		log()
	}
}

// report is stock.HAServerOptions.OnReport.
func (b *stockBook) report(remote net.Addr, off wire.PhyOffset, request bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	host := stock.PeerAddr(remote)
	node := host.String()
	s := b.conns[remote.String()]
	if request || s == nil {
		b.conns[remote.String()] = &stockSlave{node: node, addr: remote.String(), acked: wire.NoOffset, level: b.now()}
		if off == 0 && request {
			if len(b.began) >= maxSaid {
				clear(b.began)
			}
			b.began[host] = b.now()
		}
		if b.due(node, "asks") {
			b.log.Info("a stock slave has connected", "slave", remote.String(), "request", off)
		}
		return
	}
	if s.acked < 0 {
		b.seq++
		s.seq = b.seq
	}
	s.acked = max(s.acked, off)
	if s.acked >= b.end() {
		s.level = b.now()
	}
	switch old := b.counted[node]; {
	case old == s:
	case old != nil && old.seq > s.seq:
		return // a newer connection counts
	default:
		if old != nil {
			old.ack = nil
		}
		s.ack = b.table.Join(node, acks.Memory) // in place of the old one
		b.counted[node] = s
	}
	s.ack.Report(acks.Marks{Memory: s.acked, Disk: wire.NoOffset})
}

// beganAt is stock.StoreAnswersOptions.Began: a slave with an empty store asks
// for 0.
func (b *stockBook) beganAt(host netip.Addr) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.began[host]
}

// closed is stock.HAServerOptions.OnClose. What an older connection of the node
// has acked counts again when it reports anew: it may be dead.
func (b *stockBook) closed(remote net.Addr, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.conns[remote.String()]
	if s == nil {
		b.log.Debug("a connection asked for nothing", "peer", remote.String(), "cause", err)
		return
	}
	delete(b.conns, s.addr)
	if b.counted[s.node] == s {
		delete(b.counted, s.node)
		s.ack.Leave()
	}
	switch {
	case err == nil:
	case errors.Is(err, stock.ErrAheadOfLog):
		if b.due(s.node, "ahead") {
			b.log.Error("a stock slave was closed that reports more than there is: it follows another log, or this one lost its tail. Try: stop it, and let it begin with an empty store", "slave", s.addr, "cause", err)
		}
	case b.due(s.node, "left"):
		cause := err
		if errors.Is(err, io.EOF) {
			cause = errors.New("it hung up")
		}
		b.log.Info("a stock slave has left", "slave", s.addr, "acked", s.acked, "cause", cause)
	}
}

// replicas is what the status says of stock slaves.
func (b *stockBook) replicas() []control.Replica {
	end := b.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]control.Replica, 0, len(b.conns))
	for _, s := range b.conns {
		if s.acked >= 0 && s.ack == nil {
			continue // a newer connection of its node speaks for it
		}
		r := control.Replica{Node: s.node, Kind: "broker", Addr: s.addr, State: state.CatchingUp, Acked: s.acked, Flushed: wire.NoOffset, Ack: acks.Memory.String()}
		if end > s.acked {
			r.LagBytes = int64(end.Sub(max(s.acked, 0)))
			r.LagSeconds = b.now().Sub(s.level).Seconds()
		}
		if s.acked >= 0 && r.LagBytes < int64(nearBytes) {
			r.State = state.Streaming
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b control.Replica) int { return strings.Compare(a.Addr, b.Addr) })
	return out
}

// nearBytes is how little a slave that keeps up may lag behind.
const nearBytes = wire.MiB

// tooFar is the end of a connection whose slave asks for more than there is.
func tooFar(request, end wire.PhyOffset) error {
	return fmt.Errorf("%w: it asks for %d of %d", stock.ErrAheadOfLog, request, end)
}
