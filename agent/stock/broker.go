package stock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/haagent/haagent/wire/remoting"
)

// BrokerOptions say how to talk to a broker's remoting port. The zero value
// dials TCP, signs nothing and waits 5 s.
type BrokerOptions struct {
	// Credentials sign every request where they are set.
	Credentials remoting.Credentials
	// TLS, where not nil, is spoken on the connection.
	TLS *BrokerTLS
	// Timeout bounds one request, dialling included; 5 s where 0. A context may
	// end it earlier.
	Timeout time.Duration
	// Dial opens connections; a net.Dialer where nil.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

const defaultBrokerTimeout = 5 * time.Second

// Broker asks an unmodified broker at its remoting port (listenPort). It keeps
// one connection, dialled when first needed, and sends one request at a time;
// after a failure the next request dials anew. All methods are safe for
// concurrent use. It runs no goroutine between requests.
type Broker struct {
	addr string
	opt  BrokerOptions
	turn chan struct{} // held by the request that uses the connection

	// The holder of turn owns these two.
	opaque  int32 // numbers the requests
	hangUps int   // connections in a row that ended before an answer

	mu     sync.Mutex // guards what follows
	conn   net.Conn   // nil: dial first
	conns  int        // how many there were so far
	local  bool       // the last of them stays on this host
	closed bool
}

// NewBroker returns a client of the broker at addr (host:port). It dials
// nothing yet.
func NewBroker(addr string, opt BrokerOptions) *Broker {
	if opt.Timeout == 0 {
		opt.Timeout = defaultBrokerTimeout
	}
	if opt.Dial == nil {
		opt.Dial = new(net.Dialer).DialContext
	}
	return &Broker{addr: addr, opt: opt, turn: make(chan struct{}, 1)}
}

// Addr returns the address that NewBroker was given.
func (b *Broker) Addr() string { return b.addr }

// Close closes the connection. A request under way and all later ones fail with
// net.ErrClosed.
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.conn == nil {
		return nil
	}
	err := b.conn.Close()
	b.conn = nil
	if err != nil {
		return fmt.Errorf("close connection to broker %s: %w", b.addr, err)
	}
	return nil
}

// Raw sends one request and returns the answer. ext and body may be nil. An
// answer of at most 64 MiB is read. A request on a connection that turns out to
// be dead is sent a second time on a new one, so only requests that may be
// repeated, as all that read are, belong here.
//
// Brokers of 4.5 leave a request that they do not know unanswered; later ones
// refuse it, which matches ErrNotSupported.
//
// An answer that is not SUCCESS is a *ResponseError, bytes that are no answer
// match remoting.ErrFrame or remoting.ErrTooLarge; what stands between us and a
// broker that speaks TLS, or demands it, is a *state.Problem; everything else is
// about the connection or the context.
//
// A request without body is sent with 8 to 15 zero bytes as body: brokers ignore
// them, and a master's HA port, asked by mistake, takes the last 8 bytes of what
// it reads as an acknowledgement and so gets one of 0, not one far beyond its
// end.
func (b *Broker) Raw(ctx context.Context, code remoting.RequestCode, ext map[string]string, body []byte) (remoting.Command, error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, b.opt.Timeout)
	defer cancel()
	answer, err := b.ask(ctx, code, ext, body)
	if err != nil {
		if parent.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v: %w", b.opt.Timeout, err)
		}
		return remoting.Command{}, fmt.Errorf("ask broker %s for %v: %w", b.addr, code, err)
	}
	return answer, nil
}

func (b *Broker) ask(ctx context.Context, code remoting.RequestCode, ext map[string]string, body []byte) (remoting.Command, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return remoting.Command{}, context.Cause(ctx)
	}
	b.opaque++
	frame, err := b.encode(remoting.NewRequest(code, ext, body))
	if err != nil {
		return remoting.Command{}, err
	}
	answer, err := b.deliver(ctx, frame)
	if err != nil {
		return remoting.Command{}, err
	}
	if answer.Answer() != remoting.Success {
		return remoting.Command{}, &ResponseError{Request: code, Code: answer.Answer(), Remark: answer.Remark}
	}
	return answer, nil
}

// deliver sends a request and returns the answer. One that found a dead connection
// is sent again: the broker closes connections that were idle for 2 minutes.
func (b *Broker) deliver(ctx context.Context, frame []byte) (remoting.Command, error) {
	conn, used, err := b.connect(ctx)
	if err != nil {
		b.hangUps = 0
		return remoting.Command{}, err
	}
	answer, err := b.exchange(ctx, conn, frame)
	if used && errors.Is(err, errUnanswered) && ctx.Err() == nil {
		if conn, _, err = b.connect(ctx); err != nil {
			return remoting.Command{}, err
		}
		answer, err = b.exchange(ctx, conn, frame)
	}
	if !errors.Is(err, errUnanswered) || !hungUp(err) {
		b.hangUps = 0
	} else if b.hangUps++; b.hangUps > 1 { // one may be a broker that goes down
		err = b.hungUpProblem(err)
	}
	if b.opt.TLS == nil && alertFrame(err) {
		err = b.hungUpProblem(err)
	}
	return answer, err
}

// encode numbers, guards and signs a request.
func (b *Broker) encode(req remoting.Command) ([]byte, error) {
	req.Opaque = b.opaque
	return guarded(req, b.opt.Credentials)
}

// guarded signs a request and makes a frame of it that does no harm on a HA port.
func guarded(req remoting.Command, cred remoting.Credentials) ([]byte, error) {
	const word = 8
	bare := len(req.Body) == 0
	if bare {
		req.Body = make([]byte, word)
	}
	for {
		signed := req
		if cred.Valid() {
			signed = cred.Sign(req)
		}
		frame, err := remoting.Encode(signed)
		if err != nil || !bare || len(frame)%word == 0 {
			return frame, err
		}
		// The length of a signature does not depend on the body, so that one
		// step is enough.
		req.Body = make([]byte, len(req.Body)+word-len(frame)%word)
	}
}

// connect returns the connection, and whether a request was answered on it
// before.
func (b *Broker) connect(ctx context.Context) (conn net.Conn, used bool, err error) {
	b.mu.Lock()
	conn, closed := b.conn, b.closed
	b.mu.Unlock()
	if closed {
		return nil, false, net.ErrClosed
	}
	if conn != nil {
		return conn, true, nil
	}
	if b.opt.TLS != nil {
		conn, err = b.dialTLS(ctx)
	} else {
		conn, err = b.opt.Dial(ctx, "tcp", b.addr)
	}
	if err != nil {
		return nil, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false, errors.Join(net.ErrClosed, conn.Close())
	}
	b.conn = conn
	b.conns, b.local = b.conns+1, staysHere(conn)
	return conn, false, nil
}

// dialled returns how many connections there were so far, and whether the last of
// them stays on this host. The same number before and after a request says that
// it was answered by who answered the ones before.
func (b *Broker) dialled() (conns int, local bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.conns, b.local
}

// staysHere reports whether both ends of a connection are of this host: then
// they have the same address.
func staysHere(conn net.Conn) bool {
	own, ok1 := conn.LocalAddr().(*net.TCPAddr)
	peer, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	return ok1 && ok2 && (own.IP.Equal(peer.IP) || peer.IP.IsLoopback())
}

// errUnanswered marks an exchange that failed before a byte of the answer came.
var errUnanswered = errors.New("connection ended before an answer")

// exchange sends a request and waits for its answer. Whatever goes wrong closes
// the connection, because what comes next on it belongs to nobody.
func (b *Broker) exchange(ctx context.Context, conn net.Conn, frame []byte) (remoting.Command, error) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		if err := conn.SetDeadline(time.Unix(1, 0)); err != nil {
			return // only a closed connection refuses, and that interrupts as well
		}
	})
	answer, err := b.roundTrip(conn, frame)
	if !stop() {
		<-interrupted
		if err == nil { // answered in the last moment; the connection is spoilt
			return answer, b.drop(conn, nil)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // set by us
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return remoting.Command{}, b.drop(conn, err)
	}
	return answer, nil
}

func (b *Broker) roundTrip(conn net.Conn, frame []byte) (remoting.Command, error) {
	if _, err := conn.Write(frame); err != nil {
		return remoting.Command{}, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	r := &countingReader{r: conn}
	for {
		answer, err := remoting.ReadCommand(r, remoting.MaxFrame)
		var garbage *remoting.FrameError
		switch {
		case errors.As(err, &garbage):
			return remoting.Command{}, &garbageError{garbage}
		case err != nil && r.n == 0:
			return remoting.Command{}, fmt.Errorf("%w: %w", errUnanswered, err)
		case err != nil:
			return remoting.Command{}, err
		case !answer.Response():
			continue // brokers may ask their clients; nothing here answers
		case answer.Opaque != b.opaque:
			return remoting.Command{}, fmt.Errorf("%w: answer to request %d instead of %d", remoting.ErrFrame, answer.Opaque, b.opaque)
		}
		return answer, nil
	}
}

// drop closes conn and forgets it, and returns err with what closing said.
func (b *Broker) drop(conn net.Conn, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != conn { // Close was faster
		return errors.Join(net.ErrClosed, err)
	}
	b.conn = nil
	if closeErr := conn.Close(); closeErr != nil && err == nil {
		return fmt.Errorf("close connection: %w", closeErr)
	}
	return err
}

// countingReader counts what came out of r.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}
