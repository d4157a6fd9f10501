// Package serve accepts connections, bounds their number, and runs the parts of
// one connection to their common end.
package serve

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/retry"
)

// ErrTooManyConns is the end of a connection that came when Max were served.
var ErrTooManyConns = errors.New("too many connections")

// Acceptor accepts connections, bounds their number and owns their goroutines.
type Acceptor struct {
	Listener net.Listener // Run closes it
	Max      int          // connections at once; one that comes on top is closed at once
	// Serve works on one connection until it ends or ctx ends, and closes it.
	Serve func(ctx context.Context, conn net.Conn) error
	// OnClose, where not nil, is called once for each connection with the reason
	// why it ended; nil where the server stops.
	OnClose func(remote net.Addr, err error)
}

// The pauses after an accept that failed for a while, such as for want of file
// descriptors.
const (
	firstAcceptPause = 5 * time.Millisecond
	maxAcceptPause   = time.Second
)

// Run accepts until ctx ends and returns nil once all is closed and over. An
// error means that the listener is of no use any more.
func (a *Acceptor) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return Closed(a.Listener.Close())
	})
	group.Go(func() error { return a.accept(ctx) })
	return group.Wait()
}

// accept accepts until ctx ends, which closes the listener.
func (a *Acceptor) accept(ctx context.Context) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	// Connections also end where the listener fails.
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, a.Max)
	pause := firstAcceptPause
	for {
		conn, err := a.Listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				return Closed(conn.Close())
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			if !retry.Sleep(ctx, pause) {
				return nil
			}
			pause = min(2*pause, maxAcceptPause)
			continue
		}
		pause = firstAcceptPause
		select {
		case slots <- struct{}{}:
			conns.Go(func() {
				defer func() { <-slots }()
				a.one(live, conn)
			})
		default:
			a.closed(conn, errors.Join(ErrTooManyConns, Closed(conn.Close())))
		}
	}
}

// one serves a connection to its end.
func (a *Acceptor) one(ctx context.Context, conn net.Conn) {
	err := a.Serve(ctx, conn)
	if ctx.Err() != nil {
		err = nil
	}
	a.closed(conn, err)
}

func (a *Acceptor) closed(conn net.Conn, err error) {
	if a.OnClose != nil {
		a.OnClose(conn.RemoteAddr(), err)
	}
}

// Together runs the parts of a connection. The first that returns an error, or
// the end of ctx, closes the connection, which ends the others. The error of the
// first is returned when all are over.
func Together(ctx context.Context, conn net.Conn, parts ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return Closed(conn.Close())
	})
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// Closed drops the error of closing what was closed before.
func Closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// PatientReader reads from a connection that may be silent for at most the
// given time before each read.
type PatientReader struct {
	Conn    net.Conn
	Silence time.Duration
}

// Read implements io.Reader.
func (r PatientReader) Read(b []byte) (int, error) {
	if err := r.Conn.SetReadDeadline(time.Now().Add(r.Silence)); err != nil {
		return 0, err
	}
	return r.Conn.Read(b)
}
