package stock_test

import (
	"errors"
	"net"
	"sync"
)

// pipeListener is a listener whose connections are in memory, so that their
// time can be virtual and nothing is buffered on the way.
type pipeListener struct {
	conns  chan net.Conn
	errs   chan error // what Accept returns first
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), errs: make(chan error, 10), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case err := <-l.errs:
		return nil, err
	default:
	}
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.errs:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = nil
	})
	return err
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

// dial waits until the other end is accepted.
func (l *pipeListener) dial() net.Conn {
	here, there := net.Pipe()
	l.conns <- there
	return here
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

var errAccept = errors.New("too many open files")
