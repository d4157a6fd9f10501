package stock

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// AuthorityOptions say which broker to ask. Broker and CommitLogDir are required.
type AuthorityOptions struct {
	// Broker asks the remoting port of the broker that writes CommitLogDir. It may
	// be shared with others.
	Broker *Broker
	// CommitLogDir holds the segments.
	CommitLogDir string
	// HAAddr is the broker's HA port (host:port); what the broker says where empty.
	HAAddr string
	// Dial opens the connection to the HA port; a net.Dialer where nil.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Timing is that of a Follower, but MaxRetry is 750 ms where 0, so that a broker
	// that is back is found within a second.
	Timing Timing
	// Relay, where not nil, makes the Authority a slave of a SYNC_MASTER too, on
	// behalf of replicas that it cannot see. It belongs to one Authority.
	Relay *Relay
	// Log is told when what is known about the broker changes; nobody where nil.
	Log *slog.Logger
}

// AuthorityMode is how a broker's end is learned.
type AuthorityMode string

// The modes of an Authority.
const (
	// AuthorityHA: the broker tells over an HA connection as its log grows, and is
	// asked too while that is wanted.
	AuthorityHA AuthorityMode = "ha"
	// AuthorityAsked: it is asked only.
	AuthorityAsked AuthorityMode = "asked"
	// AuthorityNone: it is not known.
	AuthorityNone AuthorityMode = "none"
)

// AuthorityStatus is what is known about the broker. Names and version are those
// of the last time that it answered, and empty before that.
type AuthorityStatus struct {
	Addr                string // of the remoting port
	HAAddr              string
	Version             string // "V5_3_3"
	Cluster, BrokerName string
	BrokerID            int64
	Role                string // ASYNC_MASTER, SYNC_MASTER or SLAVE
	InSyncReplicas      int
	SegmentSize         wire.ByteSize // mappedFileSizeCommitLog
	Mode                AuthorityMode
	// Problem is what a person must look at; nil where all is well, and where the
	// broker is just not there.
	Problem *state.Problem
	// Err is why Mode is AuthorityNone; it is Problem where that is the reason.
	Err error
}

// Authority knows where the log of the local broker ends, in the broker's own
// words: everything below End is written, though a message may lie across it.
//
// It proves first that the broker is the one which writes CommitLogDir (see
// whose), and takes nothing from any other. The end is asked for every
// Timing.Survey, and while Want(true) holds at once and then every 1 to 50 ms. An
// ASYNC_MASTER also tells by itself: the Authority is its slave on the HA port,
// which throws all bodies away. That takes little of either side under load, but
// an idle broker looks for more to send every 100 ms only, so that the one last
// message is asked for as well. To any other broker it never connects there,
// because one that waits for its slaves would wait for this one.
//
//	          26, 33: are you ours?               every 2 s, and on a new connection
//	              │
//	              ├── 907 or 28: where is your end? ────── while wanted ───┐
//	              ▼                                                        ├─► End
//	ASYNC_MASTER: HA port: offset+size, offset+size, ... ─────────────────┘
//
// End is wire.NoOffset from the moment a connection ends until the broker has
// answered anew. It may be lower then: a broker that crashed has lost its tail.
type Authority struct {
	opt    AuthorityOptions
	timing Timing

	end    atomic.Int64  // PhyOffset
	wanted atomic.Bool   // a last record waits for being confirmed
	tells  atomic.Bool   // as Tells
	asking chan struct{} // one slot: Want(true) was called
	again  chan struct{} // one slot: look at the broker now

	mu        sync.Mutex // guards what follows, and writing end
	life      uint64     // what was learned in an earlier one counts no more
	listeners wake.Listeners
	status    AuthorityStatus
	config    *BrokerConfig // as status; nil before the broker has answered
}

// authorityMaxRetry is how long a broker that is back may go unseen, less jitter.
const authorityMaxRetry = 750 * time.Millisecond

// NewAuthority returns an Authority that knows nothing before Run.
func NewAuthority(opt AuthorityOptions) *Authority {
	if opt.Timing.MaxRetry == 0 {
		opt.Timing.MaxRetry = authorityMaxRetry
	}
	if opt.Dial == nil {
		opt.Dial = new(net.Dialer).DialContext
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authority{
		opt: opt, timing: opt.Timing.withDefaults(),
		asking: make(chan struct{}, 1), again: make(chan struct{}, 1),
		status: AuthorityStatus{Mode: AuthorityNone},
	}
	if opt.Broker != nil {
		a.status.Addr = opt.Broker.Addr()
	}
	a.end.Store(int64(wire.NoOffset))
	return a
}

// End returns the end of the broker's log as last told, wire.NoOffset where it
// is not known now.
func (a *Authority) End() wire.PhyOffset { return wire.PhyOffset(a.end.Load()) }

// Listen returns a channel that gets a value after every change of End (changes
// that come faster than they are taken are one), and a function that ends it.
func (a *Authority) Listen() (moved <-chan struct{}, stop func()) { return a.listeners.Listen() }

// Want says whether a last record waits for being confirmed, so that asking for
// the end is worth it. Each call with true makes the broker be asked at once. It
// never blocks.
func (a *Authority) Want(unconfirmed bool) {
	a.wanted.Store(unconfirmed)
	if unconfirmed {
		wake.Send(a.asking)
	}
}

// Tells says whether End moves as soon as a message was stored. A SYNC_MASTER
// sends at once to a slave that it waits for, which the Relay is while it is
// connected; an ASYNC_MASTER takes up to 100 ms.
func (a *Authority) Tells() bool { return a.tells.Load() }

// Status returns what is known about the broker.
func (a *Authority) Status() AuthorityStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// Config returns the configuration of the broker as it last told it, even where
// it cannot be used; false where it never has.
func (a *Authority) Config() (BrokerConfig, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.config == nil {
		return BrokerConfig{}, false
	}
	return *a.config, true
}

// Run keeps End true until ctx ends, and returns nil then. It returns an error
// for options that make no sense; whatever a broker does it tries again.
func (a *Authority) Run(ctx context.Context) error {
	if a.opt.Broker == nil || a.opt.CommitLogDir == "" {
		return errors.New("broker's own end: Broker and CommitLogDir are required")
	}
	loop := retry.Loop{First: a.timing.FirstRetry, Max: a.timing.MaxRetry, OnError: a.fail}
	return loop.Run(ctx, a.session)
}

// raise tells that the log ends at end or later, as learned in a life.
func (a *Authority) raise(life uint64, end wire.PhyOffset) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if life != a.life || end <= a.End() {
		return
	}
	a.end.Store(int64(end))
	a.listeners.Wake()
}

// forget begins a new life: the broker may have been another one all along.
func (a *Authority) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.life++
	if a.End() != wire.NoOffset {
		a.end.Store(int64(wire.NoOffset))
		a.listeners.Wake()
	}
}

// current returns the present life and the end that was told in it.
func (a *Authority) current() (life uint64, end wire.PhyOffset) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.life, a.End()
}
