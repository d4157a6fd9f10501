package stock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// HAServerOptions say what a HAServer serves, and to whom it tells what its
// slaves report. Listener, CommitLogDir, SegmentSize and End are required.
//
// The functions are called from several goroutines at once and must not block:
// a slave's reports, and its frames, wait for them.
type HAServerOptions struct {
	// Listener accepts the slaves. Run closes it.
	Listener net.Listener
	// CommitLogDir holds the segments. It is only read, and may be in use: segments
	// may come and go.
	CommitLogDir string
	// SegmentSize is the length of every segment; a file of another length is not
	// served.
	SegmentSize wire.ByteSize
	// End returns the confirmed end of the log: nothing at or beyond it is ever
	// sent. wire.NoOffset says that it is not known yet.
	End func() wire.PhyOffset
	// Start, where not nil, returns where a slave begins that asks for 0, which
	// those do that have nothing; wire.NoOffset: not known yet. Nil: at the start of
	// the last segment, as with a stock master.
	Start func() wire.PhyOffset
	// Listen returns a channel that gets a value after End has moved, and a
	// function that ends it; it is called once for each slave. Where it is nil, End
	// is asked every 0.25 ms while data flows and at least every 10 ms while not.
	Listen func() (moved <-chan struct{}, stop func())
	// Batch is the largest body of a frame; ha.StockBatch where 0, at most
	// ha.MaxBody. Stock slaves take up to 4 MiB less a header.
	Batch wire.ByteSize
	// Limits bound the bytes of the log a second, of all slaves together; nil:
	// nothing does.
	Limits *pace.Limits
	// Heartbeat is how long a slave hears nothing before it is sent an empty
	// frame; 5 s where 0, as haSendHeartbeatInterval.
	Heartbeat time.Duration
	// Housekeeping is how long a slave may be silent before it is dropped; 20 s
	// where 0, as haHousekeepingInterval.
	Housekeeping time.Duration
	// Traffic counts what is sent; nil: nobody does.
	Traffic *meter.Traffic
	// MaxConns bounds the connections that are served at once; 256 where 0. One
	// that comes on top is closed at once.
	MaxConns int
	// Admit, where not nil, is called with the request of each slave before anything
	// is sent to it, and before OnReport. It may wait, as long as ctx lasts; its
	// error ends the connection.
	Admit func(ctx context.Context, remote net.Addr, request wire.PhyOffset) error
	// OnReport, where not nil, is called for each report of a slave: first for its
	// request, which proves nothing about what it holds, then for its
	// acknowledgements, which are never above what that connection was sent. Glued
	// reports are one, the last.
	OnReport func(remote net.Addr, off wire.PhyOffset, request bool)
	// OnClose, where not nil, is called once for each connection after its last
	// OnReport, with the reason why it ended; nil where the server stops.
	OnClose func(remote net.Addr, err error)
}

const (
	defaultHeartbeat    = 5 * time.Second
	defaultHousekeeping = 20 * time.Second
	defaultHAConns      = 256
)

var (
	// ErrAheadOfLog is the end of a connection whose slave acknowledged more than
	// there is: it follows another log, or its source lost its tail.
	ErrAheadOfLog = errors.New("slave reports more than there is")

	// ErrCutShort is the end of a connection where a segment lost bytes that were
	// confirmed.
	ErrCutShort = errors.New("segment was cut short while it was sent")
)

func (o HAServerOptions) withDefaults() (HAServerOptions, error) {
	switch {
	case o.Listener == nil || o.End == nil || o.CommitLogDir == "":
		return o, errors.New("HA server: Listener, CommitLogDir and End are required")
	case o.SegmentSize <= 0:
		return o, fmt.Errorf("HA server: segment size %d is not positive", o.SegmentSize)
	case o.Batch < 0 || o.Batch > ha.MaxBody:
		return o, fmt.Errorf("HA server: batch of %d bytes; 1 to %d are allowed", o.Batch, ha.MaxBody)
	case o.Heartbeat < 0 || o.Housekeeping < 0 || o.MaxConns < 0:
		return o, errors.New("HA server: an interval or a limit is negative")
	}
	if o.Batch == 0 {
		o.Batch = ha.StockBatch
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = defaultHeartbeat
	}
	if o.Housekeeping == 0 {
		o.Housekeeping = defaultHousekeeping
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultHAConns
	}
	if o.Admit == nil {
		o.Admit = func(context.Context, net.Addr, wire.PhyOffset) error { return nil }
	}
	if o.OnReport == nil {
		o.OnReport = func(net.Addr, wire.PhyOffset, bool) {}
	}
	return o, nil
}

// HAServer serves a commit log to stock slaves as a stock master does:
//
//   - A slave's first 8 bytes are its request. 0 asks for the start of the last
//     segment, or for what Start says; any other offset is served from exactly there. Below the first
//     segment and above the end there is nothing but heartbeats, until there is.
//   - Frames hold at most Batch bytes and never cross the end of a segment.
//   - After Heartbeat without a frame, an empty one tells the next offset.
//   - A slave that is silent for Housekeeping, or that acknowledges more than
//     there is, is dropped.
//
// A segment that is deleted while it is sent is sent to its end; one that is cut
// short ends the connection.
type HAServer struct{ opt HAServerOptions }

// NewHAServer returns a server that does nothing before Run.
func NewHAServer(opt HAServerOptions) *HAServer { return &HAServer{opt: opt} }

// Run serves until ctx ends, then closes the listener and all connections,
// waits for them, and returns nil. It returns an error for options that make no
// sense and for a listener that fails for good.
func (s *HAServer) Run(ctx context.Context) error {
	opt, err := s.opt.withDefaults()
	if err != nil {
		return err
	}
	a := serve.Acceptor{
		Listener: opt.Listener,
		Max:      opt.MaxConns,
		Serve: func(ctx context.Context, conn net.Conn) error {
			return serveHA(ctx, conn, opt)
		},
		OnClose: opt.OnClose,
	}
	if err := a.Run(ctx); err != nil {
		return fmt.Errorf("HA server on %v: %w", opt.Listener.Addr(), err)
	}
	return nil
}
