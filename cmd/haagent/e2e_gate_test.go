//go:build linux

package main

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// gate stands before an agent's gossip port, for packets and for streams. While it
// is dark it swallows both and tells nobody, as a network does that has lost its
// routes: connections stay open and nothing comes out of them.
type gate struct {
	addr, target string

	mu    sync.Mutex
	dark  bool
	light chan struct{} // closed while the gate passes everything
	lost  int           // packets
}

// startGate starts a gate that listens on addr until the test ends.
func startGate(t *testing.T, addr, target string) *gate {
	t.Helper()
	g := &gate{addr: addr, target: target, light: make(chan struct{})}
	close(g.light)
	streams, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	to, err := net.ResolveUDPAddr("udp", target)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { g.passPackets(packets, to) })
	running.Go(func() {
		for {
			conn, err := streams.Accept()
			if err != nil {
				return
			}
			running.Go(func() { g.passStream(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		closeConn(t, streams)
		closeConn(t, packets)
		running.Wait()
	})
	return g
}

// setDark swallows everything from now on, or passes it again.
func (g *gate) setDark(dark bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if dark == g.dark {
		return
	}
	if g.dark = dark; dark {
		g.light = make(chan struct{})
	} else {
		close(g.light)
	}
}

// lostPackets is how many packets were swallowed.
func (g *gate) lostPackets() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

func (g *gate) passing() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.light
}

func (g *gate) passPackets(conn net.PacketConn, to net.Addr) {
	buf := make([]byte, 64<<10)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		select {
		case <-g.passing():
			if _, err := conn.WriteTo(buf[:n], to); err != nil {
				return
			}
		default:
			g.mu.Lock()
			g.lost++
			g.mu.Unlock()
		}
	}
}

func (g *gate) passStream(ctx context.Context, in net.Conn) {
	defer in.Close()
	select {
	case <-ctx.Done():
		return
	case <-g.passing():
	}
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp", g.target)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() {
		in.Close()
		out.Close()
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { g.copy(ctx, out, in) })
	both.Go(func() { g.copy(ctx, in, out) })
	both.Wait()
}

// copy passes bytes on until either side ends, and holds them while it is dark.
func (g *gate) copy(ctx context.Context, to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-ctx.Done():
			return
		case <-g.passing():
		}
		if _, wrong := to.Write(buf[:n]); wrong != nil || err != nil {
			return
		}
	}
}

// TestGate: a dark gate passes neither packets nor streams, and a lit one both.
func TestGate(t *testing.T) {
	echo := startPeer(t, func(conn net.Conn) {
		if _, err := io.Copy(conn, conn); err != nil {
			return
		}
	})
	packets, err := net.ListenPacket("udp", echo)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(t, packets)
	r := newRing(t)
	g := startGate(t, r.gossip(r.host()), echo)
	stream, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(t, stream)
	packet, err := net.Dial("udp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(t, packet)
	for i, dark := range []bool{false, true, false} {
		g.setDark(dark)
		say := []byte{byte(i)}
		for _, conn := range []net.Conn{stream, packet} {
			if _, err := conn.Write(say); err != nil {
				t.Fatal(err)
			}
		}
		if dark {
			waitFor(t, "the packet to be lost", func() (string, bool) { return "", g.lostPackets() == 1 })
			continue
		}
		heard := make([]byte, 8)
		if n, _, err := packets.ReadFrom(heard); err != nil || n != 1 || heard[0] != say[0] {
			t.Errorf("round %d: the packet is %v: %v", i, heard[:n], err)
		}
		// What was said in the dark comes when it is light again.
		all := heard[:min(i, 1)+1]
		if _, err := io.ReadFull(stream, all); err != nil || all[len(all)-1] != say[0] {
			t.Errorf("round %d: the echo is %v: %v", i, all, err)
		}
	}
	if n := g.lostPackets(); n != 1 {
		t.Errorf("%d packets were lost, not 1", n)
	}
}
