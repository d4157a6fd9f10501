package brokertest

import (
	"net"
	"path/filepath"
	"strconv"
	"testing"
)

// TestPorts_ReservedAndFree holds many blocks at once: no port twice, all in
// range, all free, and given back at the end.
func TestPorts_ReservedAndFree(t *testing.T) {
	seen := make(map[int]bool)
	var held []*portBlock
	for range 50 {
		p, err := reservePorts()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, p)
		if p.listen()-2 != p.base || p.ha() != p.listen()+1 {
			t.Errorf("block %d has listen port %d and HA port %d", p.base, p.listen(), p.ha())
		}
		for port := p.base; port < p.base+blockSize; port++ {
			if seen[port] || port < firstPort || port > lastPort {
				t.Errorf("port %d is given out twice, or outside the range", port)
			}
			seen[port] = true
		}
	}
	for _, p := range held {
		if again, err := tryBlock(lockDir(p), p.base); err != nil || again != nil {
			t.Errorf("a held block was given out: %v, %v", again, err)
		}
		if err := p.release(); err != nil {
			t.Error(err)
		}
	}
	again, err := tryBlock(lockDir(held[0]), held[0].base)
	if err != nil || again == nil {
		t.Fatalf("a released block is not given out: %v", err)
	}
	if err := again.release(); err != nil {
		t.Error(err)
	}
}

// TestPorts_BusyBlockIsLeftAlone listens on one port of a block.
func TestPorts_BusyBlockIsLeftAlone(t *testing.T) {
	p, err := reservePorts()
	if err != nil {
		t.Fatal(err)
	}
	dir := lockDir(p)
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p.base+1))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.release(); err != nil {
		t.Fatal(err)
	}
	if got, err := tryBlock(dir, p.base); got != nil || err != nil {
		t.Errorf("a block with a busy port was given out: %v, %v", got, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// lockDir is the directory that a block's lock lies in.
func lockDir(p *portBlock) string { return filepath.Dir(p.lock.Name()) }
