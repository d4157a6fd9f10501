package stock

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"time"

	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// RemotingHandler answers one request. The answer is made by req.Reply; for a
// one-way request it is dropped. ctx ends with the connection. Handlers are
// called from several goroutines, one request of a connection at a time.
type RemotingHandler func(ctx context.Context, from net.Addr, req remoting.Command) remoting.Command

// RemotingServerOptions say what a RemotingServer answers. Listener is required;
// the requests whose options are missing are answered as unknown ones.
type RemotingServerOptions struct {
	// Listener accepts the clients. Run closes it.
	Listener net.Listener
	// Config is answered as the broker's properties (request 26).
	Config map[string]string
	// Version is the broker's release in its own words, such as "V4_9_7" (the
	// default), and VersionNumber its ordinal in the broker's MQVersion, which every
	// answer carries; 407 where both are missing.
	Version       string
	VersionNumber int
	// Dir is the store root, whose config files are answered (requests 21, 43, 45,
	// 201, and 402 unless Version is 4.x). They may be rewritten meanwhile: only
	// whole ones are answered.
	Dir string
	// CommitLogDir and SegmentSize say where the log is (requests 28 and 33).
	CommitLogDir string
	SegmentSize  wire.ByteSize
	// End returns the end of the log, and wire.NoOffset where it is not known
	// yet. Min returns its first offset, wire.NoOffset where there is none; where
	// it is nil the segments are listed.
	Min, End func() wire.PhyOffset
	// Handlers are further requests. They win over the ones above; a nil handler
	// takes a request away.
	Handlers map[remoting.RequestCode]RemotingHandler
	// Hint is added to what is answered to requests that are not known.
	Hint string
	// MaxConns bounds the connections that are served at once; 256 where 0. One
	// that comes on top is closed at once. MaxRequest bounds a request's frame;
	// 1 MiB where 0. Of frames above 1 MiB two are read at once, so that their
	// memory does not grow with the connections.
	MaxConns   int
	MaxRequest wire.ByteSize
	// Idle is how long a client may keep a connection without a request; 2 min
	// where 0, as serverChannelMaxIdleTimeSeconds. Transfer is how long one frame
	// may take from its first byte to its last, in either direction; 15 s where 0.
	Idle, Transfer time.Duration
	// OnClose, where not nil, is called once for each connection with the reason
	// why it ended; nil where the server stops.
	OnClose func(remote net.Addr, err error)
}

const (
	defaultRemotingConns = 256
	defaultMaxRequest    = wire.MiB
	defaultRemotingIdle  = 2 * time.Minute
	defaultTransfer      = 15 * time.Second
	maxLargeRequests     = 2

	defaultBrokerVersion = "V4_9_7"
	defaultVersionNumber = 407
)

func (o RemotingServerOptions) withDefaults() (RemotingServerOptions, error) {
	switch {
	case o.Listener == nil:
		return o, errors.New("remoting server: Listener is required")
	case o.CommitLogDir != "" && (o.End == nil || o.SegmentSize <= 0):
		return o, errors.New("remoting server: CommitLogDir needs End and a positive SegmentSize")
	case o.MaxConns < 0 || o.MaxRequest < 0 || o.Idle < 0 || o.Transfer < 0:
		return o, errors.New("remoting server: an interval or a limit is negative")
	}
	if o.Version == "" {
		o.Version = defaultBrokerVersion
		if o.VersionNumber == 0 {
			o.VersionNumber = defaultVersionNumber
		}
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultRemotingConns
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = defaultMaxRequest
	}
	if o.Idle == 0 {
		o.Idle = defaultRemotingIdle
	}
	if o.Transfer == 0 {
		o.Transfer = defaultTransfer
	}
	return o, nil
}

// RemotingServer answers the requests by which slaves and operators ask a stock
// broker about itself. What it does not know it answers as a broker does, with
// REQUEST_CODE_NOT_SUPPORTED.
//
// Its memory is bounded by MaxConns times the larger of MaxRequest and the
// largest config file; a length that was only announced costs nothing.
type RemotingServer struct{ opt RemotingServerOptions }

// NewRemotingServer returns a server that does nothing before Run.
func NewRemotingServer(opt RemotingServerOptions) *RemotingServer { return &RemotingServer{opt: opt} }

// Run serves until ctx ends, then closes the listener and all connections,
// waits for them, and returns nil. It returns an error for options that make no
// sense and for a listener that fails for good.
func (s *RemotingServer) Run(ctx context.Context) error {
	opt, err := s.opt.withDefaults()
	if err != nil {
		return err
	}
	handlers := storeHandlers(opt)
	maps.Copy(handlers, opt.Handlers)
	large := make(chan struct{}, maxLargeRequests)
	a := serve.Acceptor{
		Listener: opt.Listener,
		Max:      opt.MaxConns,
		Serve: func(ctx context.Context, conn net.Conn) error {
			c := remotingConn{opt: opt, handlers: handlers, conn: conn, large: large}
			return serve.Together(ctx, conn, c.serve)
		},
		OnClose: opt.OnClose,
	}
	if err := a.Run(ctx); err != nil {
		return fmt.Errorf("remoting server on %v: %w", opt.Listener.Addr(), err)
	}
	return nil
}

// remotingConn is one client.
type remotingConn struct {
	opt      RemotingServerOptions
	handlers map[remoting.RequestCode]RemotingHandler
	conn     net.Conn
	large    chan struct{} // a slot for each request above defaultMaxRequest
}

// serve answers one request after the other until the connection ends.
func (c *remotingConn) serve(ctx context.Context) error {
	r := bufio.NewReader(c.conn)
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(c.opt.Idle)); err != nil {
			return err
		}
		if _, err := r.Peek(1); err != nil {
			return fmt.Errorf("wait for a request: %w", err)
		}
		if err := c.conn.SetReadDeadline(time.Now().Add(c.opt.Transfer)); err != nil {
			return err
		}
		req, err := c.read(ctx, r)
		if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		if req.Response() {
			continue // nothing was asked from here
		}
		answer := c.answer(ctx, req)
		if req.OneWay() {
			continue
		}
		if err := c.send(answer); err != nil {
			return fmt.Errorf("answer %v: %w", req.Request(), err)
		}
	}
}

// read reads one request, a large one when it is its turn.
func (c *remotingConn) read(ctx context.Context, r *bufio.Reader) (remoting.Command, error) {
	const word = 4
	head, err := r.Peek(word) // where it fails, ReadCommand does as well
	length := wire.ByteSize(0)
	if err == nil {
		length = wire.ByteSize(binary.BigEndian.Uint32(head))
	}
	if length > defaultMaxRequest && length <= c.opt.MaxRequest {
		select {
		case c.large <- struct{}{}:
			defer func() { <-c.large }()
		case <-ctx.Done():
			return remoting.Command{}, ctx.Err()
		}
	}
	return remoting.ReadCommand(r, c.opt.MaxRequest)
}

func (c *remotingConn) answer(ctx context.Context, req remoting.Command) remoting.Command {
	if handle := c.handlers[req.Request()]; handle != nil {
		return handle(ctx, c.conn.RemoteAddr(), req)
	}
	return req.Reply(remoting.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported%s", req.Code, c.opt.Hint))
}

func (c *remotingConn) send(answer remoting.Command) error {
	if c.opt.VersionNumber != 0 {
		answer.Version = c.opt.VersionNumber
	}
	frame, err := remoting.Encode(answer)
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.opt.Transfer)); err != nil {
		return err
	}
	_, err = c.conn.Write(frame)
	return err
}
