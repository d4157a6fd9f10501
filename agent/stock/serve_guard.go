package stock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An AllowList says which addresses may talk in protocols that ask nobody who
// they are.
type AllowList []netip.Prefix

// AllowLoopback lets in this host only.
func AllowLoopback() AllowList {
	return AllowList{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

// ParseAllowList reads networks and addresses, separated by commas, such as
// "10.1.0.0/16,192.168.7.5". It returns an error that names the first word which
// is neither, and nil for an empty text.
func ParseAllowList(text string) (AllowList, error) {
	var list AllowList
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(word)
		if addr, addrErr := netip.ParseAddr(word); addrErr == nil && addr.Zone() == "" {
			prefix, err = addr.Unmap().Prefix(addr.Unmap().BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither a network such as 10.1.0.0/16 nor an address", word)
		}
		list = append(list, prefix.Masked())
	}
	return list, nil
}

// Contains reports whether an address may talk. An IPv4 address that is written
// as an IPv6 one is the IPv4 one.
func (l AllowList) Contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, p := range l {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// String writes the list as ParseAllowList reads it.
func (l AllowList) String() string {
	words := make([]string, len(l))
	for i, p := range l {
		words[i] = p.String()
	}
	return strings.Join(words, ",")
}

// PeerAddr returns the address of the host at the other end; the zero Addr where
// it is not known.
func PeerAddr(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// maxStrangers is how many strangers are told apart in the log, so that a
// scan with many addresses does not fill the memory.
const maxStrangers = 1024

// A Gate is a port that lets in those of an AllowList and closes everybody else
// at once, without a byte. It is lent to one server after the other, so that the
// port stays open while there is nothing to serve.
type Gate struct {
	listener *net.TCPListener
	allow    AllowList
	name     string // of the port, for the log
	log      *slog.Logger
	refused  atomic.Int64

	mu        sync.Mutex // guards what follows
	lent      *lent
	closed    bool
	strangers map[netip.Addr]struct{} // that the log has named
}

// NewGate takes over a listener. name is what the log calls the port.
func NewGate(listener *net.TCPListener, allow AllowList, name string, log *slog.Logger) *Gate {
	return &Gate{listener: listener, allow: allow, name: name, log: log, strangers: make(map[netip.Addr]struct{})}
}

// Addr is where the port is.
func (g *Gate) Addr() net.Addr { return g.listener.Addr() }

// Refused returns how many connections of strangers were closed.
func (g *Gate) Refused() int64 { return g.refused.Load() }

// Close closes the port. It may be called again.
func (g *Gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	if err := g.listener.Close(); err != nil {
		return fmt.Errorf("close %s: %w", g.name, err)
	}
	return nil
}

// Lend returns the port as a listener. Closing that leaves the port open, for
// the next loan, which ends this one.
func (g *Gate) Lend() net.Listener {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lent = &lent{gate: g}
	if err := g.listener.SetDeadline(time.Time{}); err != nil {
		g.log.Debug("port cannot be lent", "port", g.name, "cause", err) // closed: Accept says so
	}
	return g.lent
}

// TurnAway closes every connection at once, until ctx ends: peers see that
// nobody serves them, and pile up nowhere.
func (g *Gate) TurnAway(ctx context.Context) error {
	listener := g.Lend()
	stop := context.AfterFunc(ctx, func() {
		if err := listener.Close(); err != nil {
			g.log.Debug("port cannot be given back", "port", g.name, "cause", err)
		}
	})
	defer stop()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil && err == nil:
			g.drop(conn)
			return nil
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			pause := time.NewTimer(acceptPause)
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			pause.Stop()
			continue
		}
		g.drop(conn)
	}
}

// acceptPause is the wait after an accept that failed, such as for want of file
// descriptors.
const acceptPause = 100 * time.Millisecond

// drop closes a connection.
func (g *Gate) drop(conn net.Conn) {
	if err := conn.Close(); err != nil {
		g.log.Debug("connection did not close", "port", g.name, "cause", err)
	}
}

// stranger closes a connection of one who is not on the list, and names each of
// them once.
func (g *Gate) stranger(conn net.Conn, addr netip.Addr) {
	g.refused.Add(1)
	g.drop(conn)
	g.mu.Lock()
	_, known := g.strangers[addr]
	full := len(g.strangers) >= maxStrangers
	if !known && !full {
		g.strangers[addr] = struct{}{}
	}
	g.mu.Unlock()
	if !known && !full {
		g.log.Warn("a peer that --ha-allow does not list was closed; its further tries are not logged. Try: add it to --ha-allow if it is a slave of yours",
			"port", g.name, "peer", addr.String(), "allowed", g.allow.String())
	}
}

// A lent port is a listener until it is closed or lent again.
type lent struct {
	gate   *Gate
	closed atomic.Bool
}

// Accept implements net.Listener.
func (l *lent) Accept() (net.Conn, error) {
	for !l.closed.Load() {
		conn, err := l.gate.listener.Accept()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && l.closed.Load() {
				break
			}
			return nil, err
		}
		if addr := PeerAddr(conn.RemoteAddr()); !l.gate.allow.Contains(addr) {
			l.gate.stranger(conn, addr)
			continue
		}
		return conn, nil
	}
	return nil, fmt.Errorf("%s: %w", l.gate.name, net.ErrClosed)
}

// Close implements net.Listener.
func (l *lent) Close() error {
	l.closed.Store(true)
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	if l.gate.lent != l || l.gate.closed {
		return nil
	}
	if err := l.gate.listener.SetDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("give back %s: %w", l.gate.name, err)
	}
	return nil
}

// Addr implements net.Listener.
func (l *lent) Addr() net.Addr { return l.gate.Addr() }
