package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/serve"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// ServerOptions say what a Server serves, and to whom. All but SegmentSize,
// Config, Admit and the tunables are required.
type ServerOptions struct {
	Listener net.Listener // Run closes it
	Security *Security
	Self     Identity
	Epoch    func() int64
	Source   *source.Source
	Acks     *acks.Table
	// SegmentSize is told while the log is empty and has none; nil, or 0: not
	// known, and then nobody can begin.
	SegmentSize func() wire.ByteSize
	// Config has the config files; nil: none are served.
	Config *metadata.Snapshotter
	// Admit returns why nobody may follow now, such as another master with a
	// higher epoch; nil where all is well. It is asked at each hello, start, report
	// and heartbeat, so it must be cheap, and it calls no method of the Server.
	// Whoever knows that its answer has changed calls Recheck.
	Admit func() *state.Problem
	// Traffic counts what is sent; nil: nobody does.
	Traffic *meter.Traffic
	// Limits bound the bytes of the log a second, of all replicas together; nil:
	// nothing does.
	Limits *pace.Limits
	// Compress says how the log is sent to replicas that take it compressed; "" is
	// CompressOff.
	Compress Compress
	// Batch is the longest body of a transfer; 256 KiB where 0.
	Batch wire.ByteSize
	// MaxConns bounds the connections at once; 256 where 0.
	MaxConns int
	Timing   Timing
	Log      *slog.Logger
}

const (
	defaultBatch    = 256 * wire.KiB
	defaultMaxConns = 256
)

func (o ServerOptions) withDefaults() (ServerOptions, error) {
	if o.Listener == nil || o.Security == nil || o.Epoch == nil || o.Source == nil || o.Acks == nil {
		return o, errors.New("link server: Listener, Security, Epoch, Source and Acks are required")
	}
	if o.Batch < 0 || o.Batch > wirelink.MaxTransfer {
		return o, fmt.Errorf("link server: batch of %d bytes; 1 to %d are allowed", o.Batch, wirelink.MaxTransfer)
	}
	if o.Batch == 0 {
		o.Batch = defaultBatch
	}
	if o.MaxConns <= 0 {
		o.MaxConns = defaultMaxConns
	}
	if o.SegmentSize == nil {
		o.SegmentSize = func() wire.ByteSize { return 0 }
	}
	if o.Admit == nil {
		o.Admit = func() *state.Problem { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Timing = o.Timing.withDefaults()
	return o, nil
}

// Server lets replicas follow the log of a broker.
type Server struct {
	opt ServerOptions
	err error // of the options

	mu     sync.Mutex
	hellos uint64              // counts hellos; guarded by mu
	peers  map[string]*logPeer // by node: the newest log connection of each; guarded by mu
	guests map[*guest]struct{} // whose hello has come, on both channels; guarded by mu
}

// NewServer returns a Server that does nothing before Run.
func NewServer(opt ServerOptions) *Server {
	s := &Server{peers: map[string]*logPeer{}, guests: map[*guest]struct{}{}}
	s.opt, s.err = opt.withDefaults()
	return s
}

// Run serves until ctx ends, then says goodbye to all replicas, waits for their
// connections and returns nil. It returns an error for options that make no
// sense and for a listener that fails for good.
func (s *Server) Run(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	a := serve.Acceptor{Listener: s.opt.Listener, Max: s.opt.MaxConns, Serve: s.serve, OnClose: s.closed}
	if err := a.Run(ctx); err != nil {
		return fmt.Errorf("link server on %v: %w", s.opt.Listener.Addr(), err)
	}
	return nil
}

// closed logs why a connection ended. Strangers may knock as often as they like:
// they are for the debug log.
func (s *Server) closed(remote net.Addr, err error) {
	if damaged(err) {
		s.opt.Traffic.Damage()
	}
	var known *peerError
	if errors.As(err, &known) {
		say := s.opt.Log.Debug
		if known.channel == wirelink.ChannelLog {
			say = s.opt.Log.Info
		}
		say("replica left", "node", known.node, "channel", known.channel.String(), "addr", remote, "cause", known.err)
		return
	}
	if err != nil {
		s.opt.Log.Debug("link connection ended", "addr", remote, "cause", err)
	}
}

// peerError is the end of a connection whose peer is known.
type peerError struct {
	node    string
	channel wirelink.Channel
	err     error
}

func (e *peerError) Error() string { return fmt.Sprintf("%s of %s: %v", e.channel, e.node, e.err) }
func (e *peerError) Unwrap() error { return e.err }

// serve works on one connection to its end.
func (s *Server) serve(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	session, err := s.opt.Security.Accept(ctx, conn)
	if err != nil {
		return err
	}
	hello, err := session.ReadHello(ctx)
	if err != nil {
		return err
	}
	refuse := s.look(ctx)
	ctx, leave := s.host(ctx) // before Admit is asked, so that no Recheck is missed
	defer leave()
	if refuse == nil {
		refuse = s.judge(hello)
	}
	if refuse != nil {
		return errors.Join(refuse, session.Refuse(refuse.code, refuse.text))
	}
	turn := s.nextTurn()
	incarnation := s.opt.Source.Incarnation() // before anything is compared
	welcome, equal := s.welcome(hello)
	if err := session.SendWelcome(ctx, welcome); err != nil {
		return err
	}
	s.opt.Log.Debug("replica connected", "node", hello.Node, "channel", hello.Channel.String(), "addr", conn.RemoteAddr(), "verified", hello.Verified)
	if hello.Channel == wirelink.ChannelMetadata {
		err = newConfigPeer(s, session).run(ctx)
	} else {
		err = newLogPeer(s, session, hello, turn, incarnation, equal).run(ctx)
	}
	return &peerError{node: hello.Node, channel: hello.Channel, err: err}
}

// refusal is why a replica is not served.
type refusal struct {
	code wirelink.Code
	text string
}

func (r *refusal) Error() string { return r.code.String() + ": " + r.text }

// lookTime is how long a fresh look at the log may take. It is less than a
// replica waits for the answer to its hello.
const lookTime = 2 * time.Second

// look takes a fresh look at the log, so that a source which has only just begun
// to read it does not say that it is empty.
func (s *Server) look(ctx context.Context) *refusal {
	within, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if _, looked := s.opt.Source.Now(within); !looked {
		return &refusal{wirelink.CodeNotMaster, "the log is being looked for; ask again"}
	}
	return nil
}

// judge returns why this replica may not follow, nil where it may.
func (s *Server) judge(h *wirelink.Hello) *refusal {
	own := s.opt.Self
	size := s.segmentSize()
	switch {
	case h.Cluster != "" && h.Cluster != own.Cluster:
		return &refusal{wirelink.CodeWrongCluster, fmt.Sprintf("this is cluster %q, not %q", own.Cluster, h.Cluster)}
	case h.BrokerName != "" && h.BrokerName != own.BrokerName:
		return &refusal{wirelink.CodeWrongBroker, fmt.Sprintf("this is broker %q, not %q", own.BrokerName, h.BrokerName)}
	case h.Node == own.Node:
		return &refusal{wirelink.CodeWrongBroker, fmt.Sprintf("%q is the name of this node itself; give each agent a --node of its own", h.Node)}
	case h.Epoch > s.opt.Epoch():
		return &refusal{wirelink.CodeStaleEpoch, fmt.Sprintf("this master has epoch %d, the replica has followed %d", s.opt.Epoch(), h.Epoch)}
	case size == 0:
		return &refusal{wirelink.CodeNotMaster, "the log is empty and nobody has said its segment size; ask again"}
	case h.SegmentSize != 0 && h.SegmentSize != size:
		return &refusal{wirelink.CodeSegmentSize, fmt.Sprintf("segments have %d bytes here, not %d", int64(size), int64(h.SegmentSize))}
	}
	if p := s.opt.Admit(); p != nil {
		return &refusal{wirelink.CodeNotMaster, wirelink.Text(p.Reason)}
	}
	return nil
}

// admit is Admit for a connection that is served.
func (s *Server) admit() error {
	if p := s.opt.Admit(); p != nil {
		return &goodbye{wirelink.CodeNotMaster, p.Reason}
	}
	return nil
}

func (s *Server) segmentSize() wire.ByteSize {
	if size := s.opt.Source.SegmentSize(); size != 0 {
		return size
	}
	return s.opt.SegmentSize()
}

// welcome answers a hello. equal is the end of what was proven to be equal, up
// to the replica's verified end; NoOffset where nothing was.
func (s *Server) welcome(h *wirelink.Hello) (w *wirelink.Welcome, equal wire.PhyOffset) {
	ends := s.opt.Source.Ends()
	w = &wirelink.Welcome{SegmentSize: s.segmentSize(), Min: ends.Min, Confirmed: ends.Confirmed, Visible: ends.Visible, Epoch: s.opt.Epoch(),
		Cluster: s.opt.Self.Cluster, BrokerName: s.opt.Self.BrokerName, Node: s.opt.Self.Node, Version: s.opt.Self.Version}
	if n := min(ends.Confirmed.Sub(ends.Min), headSize); ends.Min >= 0 && n > 0 {
		if sum, err := s.opt.Source.Digest(ends.Min, n); err == nil {
			w.Head = wirelink.Digest{At: ends.Min, Size: n, Sum: sum}
		}
	}
	w.Verdicts = make([]wirelink.Verdict, len(h.Digests))
	end := source.Unknown // of the digests that end where the replica does
	for i, d := range h.Digests {
		v := s.opt.Source.Compare(d.At, d.Size, d.Sum)
		w.Verdicts[i] = verdict(v)
		if d.At.Add(d.Size) == h.Verified {
			end = max(end, v) // one that differs outweighs all
		}
	}
	if end == source.Equal {
		return w, h.Verified
	}
	return w, wire.NoOffset
}

func verdict(v source.Verdict) wirelink.Verdict {
	switch v {
	case source.Equal:
		return wirelink.Equal
	case source.Differs:
		return wirelink.Differs
	}
	return wirelink.Unknown
}

// nextTurn numbers the hellos. A replica makes a connection only when it has
// given up the one before, so of two the one with the later hello lives,
// whichever starts later.
func (s *Server) nextTurn() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hellos++
	return s.hellos
}

// enter makes p the connection of its node, here and in the ack table at once;
// the one before is ended (I4).
func (s *Server) enter(p *logPeer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.admit(); err != nil { // while mu is held: Recheck comes before, or finds p
		return err
	}
	old := s.peers[p.hello.Node]
	if old != nil && old.turn > p.turn {
		return superseded()
	}
	p.row = s.opt.Acks.Join(p.hello.Node, level(p.hello.Ack))
	s.peers[p.hello.Node] = p
	if old != nil {
		old.supersede() // behind the new one's row: the node is never out of reach
	}
	return nil
}

func (s *Server) leave(p *logPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[p.hello.Node] == p {
		delete(s.peers, p.hello.Node)
	}
}

// Replica is one follower, for the status.
type Replica struct {
	Node, Addr        string
	State             state.State
	Ack               acks.Level
	Verified, Flushed wire.PhyOffset
	Acked             wire.PhyOffset
	Lag               wire.ByteSize // behind the confirmed end
	Behind            time.Duration // how long ago it last had everything; 0 where it has
}

// Replicas returns the replicas that follow now, sorted by node.
func (s *Server) Replicas() []Replica {
	s.mu.Lock()
	peers := make([]*logPeer, 0, len(s.peers))
	for _, p := range s.peers {
		peers = append(peers, p)
	}
	s.mu.Unlock()
	out := make([]Replica, len(peers))
	now := time.Now()
	for i, p := range peers {
		out[i] = p.status(now)
	}
	slices.SortFunc(out, func(a, b Replica) int { return cmp.Compare(a.Node, b.Node) })
	return out
}
