package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// packetBuffer is what the kernel may hold of packets that wait to be read; it
// gives less where it wants to.
const packetBuffer = 2 << 20

// bindTries is how often a free port is asked for: the one that TCP gets may be
// taken for UDP.
const bindTries = 16

// sockets are what gossip listens on: one port, for streams and for packets.
type sockets struct {
	tcp   *net.TCPListener
	udp   *net.UDPConn
	bound netip.AddrPort // may be unspecified in its address, never in its port
}

func (s *sockets) close() error {
	return errors.Join(s.tcp.Close(), s.udp.Close())
}

// listen binds ip:port, or a free port where port is 0.
func listen(ip netip.Addr, port int) (*sockets, error) {
	var err error
	for range bindTries {
		var s *sockets
		if s, err = listenOnce(ip, port); err == nil {
			return s, nil
		}
		if port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, err
}

func listenOnce(ip netip.Addr, port int) (*sockets, error) {
	// "tcp" with 0.0.0.0 would listen on IPv6 as well; who says 0.0.0.0 means it.
	family := "6"
	switch {
	case ip.Is4():
		family = "4"
	case ip.IsUnspecified():
		family = ""
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp"+family, netip.AddrPortFrom(ip, uint16(port)).String())
	if err != nil {
		return nil, fmt.Errorf("listen for streams: %w", err)
	}
	tcp := l.(*net.TCPListener)
	port = tcp.Addr().(*net.TCPAddr).Port
	bound := netip.AddrPortFrom(ip, uint16(port))
	p, err := lc.ListenPacket(context.Background(), "udp"+family, bound.String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for packets: %w", err), tcp.Close())
	}
	udp := p.(*net.UDPConn)
	if err := udp.SetReadBuffer(packetBuffer); err != nil {
		return nil, errors.Join(fmt.Errorf("enlarge the packet buffer: %w", err), udp.Close(), tcp.Close())
	}
	return &sockets{tcp: tcp, udp: udp, bound: bound}, nil
}

// bindTimeout bounds finding the address of a bind option that is a name.
const bindTimeout = 5 * time.Second

// bind opens the sockets that o.Bind asks for, or fails with an *OptionError.
func (o Options) bind(find lookup) (*sockets, error) {
	host, port, err := splitHostPort(o.Bind)
	if err != nil {
		return nil, o.bindError("it is not HOST:PORT", "give an address of this host, such as 0.0.0.0:7946", err)
	}
	ip, err := o.bindIP(host, find)
	if err != nil {
		return nil, err
	}
	if o.confined() && !ip.IsLoopback() {
		return nil, o.bindError("there is no key, and gossip without one stays on loopback",
			"give all agents the same --key-file, or --insecure where nobody else gets through", nil)
	}
	if port >= 0 {
		s, err := listen(ip, port)
		if err != nil {
			return nil, o.bindError("it cannot be listened on", "choose an address of this host and a free port", err)
		}
		return s, nil
	}
	s, err := listen(ip, DefaultPort)
	if errors.Is(err, syscall.EADDRINUSE) {
		if s, err = listen(ip, 0); err == nil {
			o.Log.Info("the default gossip port is in use, took a free one", "default", DefaultPort, "port", s.bound.Port())
		}
	}
	if err != nil {
		return nil, o.bindError("it cannot be listened on", "choose an address of this host", err)
	}
	return s, nil
}

func (o Options) bindIP(host string, find lookup) (netip.Addr, error) {
	if host == "" {
		if o.confined() && o.Bind == "" {
			return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
		}
		return netip.IPv4Unspecified(), nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), bindTimeout)
	defer cancel()
	ips, err := find(ctx, host)
	if err != nil {
		return netip.Addr{}, o.bindError("it has no address", "give an address of this host", err)
	}
	return ips[0], nil
}

func (o Options) bindError(why, try string, err error) error {
	return &OptionError{Option: "gossip-bind", Value: o.Bind, Why: why, Try: try, Err: err}
}

// lookup finds the addresses of a name, IPv4 first, at least one.
type lookup func(ctx context.Context, host string) ([]netip.Addr, error)

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var v4, v6 []netip.Addr
	for _, ip := range all {
		if ip = ip.Unmap(); ip.Is4() {
			v4 = append(v4, ip)
		} else {
			v6 = append(v6, ip)
		}
	}
	if v4 = append(v4, v6...); len(v4) == 0 {
		return nil, fmt.Errorf("%q has no address", host)
	}
	return v4, nil
}

// resolve returns the addresses of HOST[:PORT], with port where it has none.
func resolve(ctx context.Context, find lookup, addr string, port int) ([]netip.AddrPort, error) {
	host, p, err := splitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", strconv.Quote(addr), err)
	}
	if p < 0 {
		p = port
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(p))}, nil
	}
	ips, err := find(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("find the address of %s: %w", host, err)
	}
	out := make([]netip.AddrPort, 0, len(ips))
	for _, ip := range ips {
		out = append(out, netip.AddrPortFrom(ip, uint16(p)))
	}
	return out, nil
}
