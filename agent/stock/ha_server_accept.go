package stock

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// acceptor accepts connections, bounds their number and owns their goroutines.
type acceptor struct {
	listener net.Listener
	max      int
	// serve works on one connection until it ends or ctx ends, and closes it.
	serve   func(ctx context.Context, conn net.Conn) error
	onClose func(remote net.Addr, err error)
}

// The pauses after an accept that failed for a while, such as for want of file
// descriptors.
const (
	firstAcceptPause = 5 * time.Millisecond
	maxAcceptPause   = time.Second
)

// run accepts until ctx ends and returns nil once all is closed and over. An
// error means that the listener is of no use any more.
func (a *acceptor) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return closed(a.listener.Close())
	})
	group.Go(func() error { return a.accept(ctx) })
	return group.Wait()
}

// accept accepts until ctx ends, which closes the listener.
func (a *acceptor) accept(ctx context.Context) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	// Connections also end where the listener fails.
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, a.max)
	pause := firstAcceptPause
	for {
		conn, err := a.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				return closed(conn.Close())
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			if !sleep(ctx, pause) {
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
			a.closed(conn, errors.Join(ErrTooManyConns, closed(conn.Close())))
		}
	}
}

// one serves a connection to its end.
func (a *acceptor) one(ctx context.Context, conn net.Conn) {
	err := a.serve(ctx, conn)
	if ctx.Err() != nil {
		err = nil
	}
	a.closed(conn, err)
}

func (a *acceptor) closed(conn net.Conn, err error) {
	if a.onClose != nil {
		a.onClose(conn.RemoteAddr(), err)
	}
}

// together runs the parts of a connection. The first that returns an error, or
// the end of ctx, closes the connection, which ends the others. The error of the
// first is returned when all are over.
func together(ctx context.Context, conn net.Conn, parts ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		<-ctx.Done()
		return closed(conn.Close())
	})
	for _, part := range parts {
		group.Go(func() error { return part(ctx) })
	}
	return group.Wait()
}

// closed drops the error of closing what was closed before.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// sleep waits for d and reports whether ctx lived that long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// patientReader reads from a connection that may be silent for at most the
// given time before each read.
type patientReader struct {
	conn    net.Conn
	silence time.Duration
}

// Read implements io.Reader.
func (r patientReader) Read(b []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(r.silence)); err != nil {
		return 0, err
	}
	return r.conn.Read(b)
}
