package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// maxStreams bounds the streams that are served at once; those on top are
	// closed unread. Each holds a goroutine for at most Timing.TCPTimeout.
	maxStreams = 128
	// maxPacket is more than a UDP packet can hold.
	maxPacket = 1 << 16
	// readPause is waited after a socket failed to accept or receive.
	readPause = 50 * time.Millisecond
)

var (
	errTransportClosed = errors.New("gossip has ended")
	errNotLoopback     = errors.New("there is no key, and gossip without one stays on loopback")
)

// transport carries memberlist's packets and streams over sockets that outlive
// it. memberlist's own one cannot be told to give up a dial, takes any number of
// streams, and a buffer of 64 KiB for every packet.
type transport struct {
	socks     *sockets
	advertise netip.AddrPort
	confined  bool // nobody beyond loopback is contacted

	packets chan *memberlist.Packet
	streams chan net.Conn
	closed  chan struct{}
	readers sync.WaitGroup

	mu      sync.Mutex // guards the following
	ended   bool
	ends    map[*stream]struct{} // every open stream, to be closed with the transport
	inbound int
	dials   map[*context.CancelFunc]struct{}
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

func newTransport(s *sockets, advertise netip.AddrPort, confined bool) *transport {
	t := &transport{
		socks: s, advertise: advertise, confined: confined,
		packets: make(chan *memberlist.Packet),
		streams: make(chan net.Conn),
		closed:  make(chan struct{}),
		ends:    make(map[*stream]struct{}),
		dials:   make(map[*context.CancelFunc]struct{}),
	}
	t.readers.Go(t.accept)
	t.readers.Go(t.receive)
	return t
}

// FinalAdvertiseAddr returns the address that was chosen long before.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *transport) StreamCh() <-chan net.Conn           { return t.streams }

// WriteTo sends one packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := t.peer(addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.socks.udp.WriteToUDPAddrPort(b, to)
	return time.Now(), err
}

// WriteToAddress sends one packet; names are not used.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// DialTimeout opens a stream. It is given up when the transport is shut down.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := t.peer(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return nil, errTransportClosed
	}
	t.dials[&cancel] = struct{}{}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.dials, &cancel)
	}()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	// memberlist writes the label before it sets a deadline.
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t.track(conn, false)
}

// DialAddressTimeout opens a stream; names are not used.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// peer parses what memberlist calls an address, and refuses those that must not
// be contacted.
func (t *transport) peer(addr string) (netip.AddrPort, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return to, fmt.Errorf("gossip peer: %w", err)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if t.confined && !to.Addr().IsLoopback() {
		return to, fmt.Errorf("gossip peer %v: %w", to, errNotLoopback)
	}
	return to, nil
}

// open makes a stream from this process to itself, for tableReader.
func (t *transport) open(timeout time.Duration) (net.Conn, error) {
	near, far := net.Pipe()
	deadline := time.Now().Add(timeout)
	if err := errors.Join(near.SetDeadline(deadline), far.SetDeadline(deadline)); err != nil {
		return nil, errors.Join(err, near.Close(), far.Close())
	}
	far, err := t.track(far, false)
	if err != nil {
		return nil, errors.Join(err, near.Close())
	}
	select {
	case t.streams <- far:
		return near, nil
	case <-t.closed:
		return nil, errors.Join(errTransportClosed, near.Close(), far.Close())
	}
}

// Shutdown ends all reading and every stream, and waits for the readers. The
// sockets stay open.
func (t *transport) Shutdown() error {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		t.readers.Wait()
		return nil
	}
	t.ended = true
	close(t.closed)
	t.mu.Unlock()
	t.hangUp()

	// A deadline in the past wakes the readers without closing their sockets.
	past := time.Unix(1, 0)
	err := errors.Join(t.socks.tcp.SetDeadline(past), t.socks.udp.SetReadDeadline(past))
	t.readers.Wait()
	return errors.Join(err, t.socks.tcp.SetDeadline(time.Time{}), t.socks.udp.SetReadDeadline(time.Time{}))
}

// hangUp ends what may be waited for: dials under way and open streams.
func (t *transport) hangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cancel := range t.dials {
		(*cancel)()
	}
	for s := range t.ends {
		_ = s.Conn.Close() // its reader is told; there is nobody to tell of more
	}
}

func (t *transport) accept() {
	for {
		conn, err := t.socks.tcp.Accept()
		if err != nil {
			if t.pause() {
				continue
			}
			return
		}
		s, err := t.track(conn, true)
		if err != nil {
			continue
		}
		select {
		case t.streams <- s:
		case <-t.closed:
			_ = s.Close() // nobody has read from it
			return
		}
	}
}

func (t *transport) receive() {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := t.socks.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			if t.pause() {
				continue
			}
			return
		}
		if n == 0 {
			continue
		}
		p := &memberlist.Packet{
			Buf:       append(make([]byte, 0, n), buf[:n]...),
			From:      net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())),
			Timestamp: time.Now(),
		}
		select {
		case t.packets <- p:
		case <-t.closed:
			return
		}
	}
}

// pause waits after a failed read, and reports whether to go on.
func (t *transport) pause() bool {
	select {
	case <-t.closed:
		return false
	default:
	}
	timer := time.NewTimer(readPause)
	defer timer.Stop()
	select {
	case <-t.closed:
		return false
	case <-timer.C:
		return true
	}
}

// track takes conn among those that end with the transport. It closes conn
// where it fails.
func (t *transport) track(conn net.Conn, inbound bool) (*stream, error) {
	s := &stream{Conn: conn, of: t, inbound: inbound}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
		return nil, errors.Join(errTransportClosed, conn.Close())
	case inbound && t.inbound >= maxStreams:
		return nil, errors.Join(errors.New("too many streams"), conn.Close())
	case inbound:
		t.inbound++
	}
	t.ends[s] = struct{}{}
	return s, nil
}

// stream is a connection that its transport knows of.
type stream struct {
	net.Conn
	of      *transport
	inbound bool
}

// Close may be called more than once.
func (s *stream) Close() error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if _, open := s.of.ends[s]; open {
		delete(s.of.ends, s)
		if s.inbound {
			s.of.inbound--
		}
	}
	return s.Conn.Close()
}
