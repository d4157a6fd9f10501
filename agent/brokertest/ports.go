package brokertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Ports are given out in blocks of four, from a range below the one that the
// system takes ports of outgoing connections from:
//
//	base    the broker's VIP port (listenPort - 2)
//	base+1  nothing
//	base+2  listenPort
//	base+3  the HA port (listenPort + 1)
const (
	firstPort = 20000
	lastPort  = 32767
	blockSize = 4
)

// A portBlock is a reserved run of free ports.
type portBlock struct {
	base int
	lock *os.File
}

func (p *portBlock) listen() int { return p.base + 2 }
func (p *portBlock) ha() int     { return p.base + 3 }

// reservePorts finds a block of which no port is in use and that no other test
// holds, and holds it by a lock that ends with this process at the latest.
func reservePorts() (*portBlock, error) {
	dir := filepath.Join(os.TempDir(), "haagent-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("reserve ports: %w", err)
	}
	const blocks = (lastPort + 1 - firstPort) / blockSize
	start := rand.IntN(blocks)
	for i := range blocks {
		p, err := tryBlock(dir, firstPort+(start+i)%blocks*blockSize)
		if err != nil {
			return nil, fmt.Errorf("reserve ports: %w", err)
		}
		if p != nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("reserve ports: no %d free ones in a row from %d to %d", blockSize, firstPort, lastPort)
}

// tryBlock reserves the block at base; nil where it is taken.
func tryBlock(dir string, base int) (*portBlock, error) {
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(base)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(lock, syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil && allFree(base) {
		return &portBlock{base: base, lock: lock}, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = nil
	}
	return nil, errors.Join(err, lock.Close())
}

// allFree reports whether every port of a block can be listened on right now.
func allFree(base int) bool {
	for port := base; port < base+blockSize; port++ {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil || l.Close() != nil {
			return false
		}
	}
	return true
}

// release gives the ports back.
func (p *portBlock) release() error { return p.lock.Close() }

// loopback writes a port as the address that tests connect to.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// FreeAddr returns an address on loopback that nobody listens on, and that no
// other test is given until this one has ended.
func FreeAddr(t testing.TB) string {
	t.Helper()
	ports, err := holdPorts(t)
	if err != nil {
		t.Fatal(err)
	}
	return loopback(ports.listen())
}
