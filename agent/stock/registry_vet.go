package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/haagent/haagent/wire"
)

// ErrOtherLog is matched by the error about a slave that holds another log than
// its master's.
var ErrOtherLog = errors.New("it holds another log")

const (
	// vetPatience bounds how long a registration waits for its log to be looked at.
	// Slaves of 4.x wait for 6 s.
	vetPatience = 5 * time.Second
	// vetRequest bounds one request of that.
	vetRequest = 4 * time.Second
	// vetSegments is how many of the master's last segments are looked at, beside
	// its first one.
	vetSegments = 3
)

// VetSlave compares the log of the slave broker at addr with that of its master's
// agent: the messages at the heads of the first segment and of the last ones. It
// returns an error that matches ErrOtherLog where one of them differs.
//
// Slaves take what comes behind their end without a look at what they have, and
// acknowledge it, so this is where another log shows. It is found out only where
// both can be asked; nil says that nothing is known against the slave. A tail that
// differs behind equal heads is not seen.
func VetSlave(ctx context.Context, addr string, master GroupMaster) error {
	ctx, cancel := context.WithTimeout(ctx, vetPatience)
	defer cancel()
	return vetSlave(ctx, addr, master, vetRequest)
}

// vetSlave is VetSlave with another time for each request.
func vetSlave(ctx context.Context, addr string, master GroupMaster, request time.Duration) error {
	slave := NewBroker(addr, BrokerOptions{Timeout: request})
	defer slave.Close()
	source := NewBroker(master.Remoting, BrokerOptions{Timeout: request})
	defer source.Close()
	for _, off := range heads(ctx, source) {
		theirs, err := slave.ViewMessage(ctx, off)
		switch {
		case errors.Is(err, ErrNoMessage):
			continue // its log begins later, or ends before
		case err != nil:
			return nil // not to be asked
		}
		ours, err := source.ViewMessage(ctx, off)
		if err == nil && !bytes.Equal(ours, theirs) {
			return fmt.Errorf("%w than its master (agent %s): the messages at %d differ", ErrOtherLog, master.Node, off)
		}
	}
	return nil
}

// heads are the first offsets of some segments of a log; none where it cannot be
// asked.
func heads(ctx context.Context, source *Broker) []wire.PhyOffset {
	cfg, err := source.Config(ctx)
	if err != nil || cfg.SegmentSize <= 0 {
		return nil
	}
	info, err := source.RuntimeInfo(ctx)
	if err != nil || info.MaxOffset <= 0 || info.MaxOffset > maxOffset {
		return nil
	}
	first := max(info.MinOffset, 0)
	out := []wire.PhyOffset{first}
	base := (info.MaxOffset - 1).SegmentBase(cfg.SegmentSize)
	for range vetSegments {
		if base <= first {
			break
		}
		out = append(out, base)
		base = (base - 1).SegmentBase(cfg.SegmentSize)
	}
	return out
}

// vet looks at the log of a slave before it is told its master for the first time
// on this connection. It asks no host but the slave's own: what others tell must
// not make a registry connect anywhere.
func (r *Registry) vet(ctx context.Context, from net.Addr, b registered, master GroupMaster) error {
	if r.opt.Vet == nil || master.Remoting == "" {
		return nil
	}
	r.mu.Lock()
	known := r.told[b.registryKey] == told{master: master}
	r.mu.Unlock()
	if known || !speaksForItself(from, b.addr) {
		return nil
	}
	if err := r.opt.Vet(ctx, b.addr, master); err != nil {
		return fmt.Errorf("%w. Try: stop it, and let it begin with an empty store", err)
	}
	return nil
}

// speaksForItself reports whether an address that a peer told is on its own host,
// or that peer is on this host.
func speaksForItself(from net.Addr, addr string) bool {
	at, err := netip.ParseAddrPort(addr)
	peer := PeerAddr(from)
	return err == nil && (peer.IsLoopback() || at.Addr().Unmap() == peer)
}
