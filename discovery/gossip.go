package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// Gossip is this agent's membership in a ring. Its methods may be called from
// several goroutines at once; before Run there is nobody but itself.
type Gossip struct {
	opt   Options
	log   *slog.Logger
	socks *sockets
	adv   *advertiser
	find  lookup

	meta        atomic.Pointer[[]byte] // of self, encoded
	metaChanged chan struct{}          // one slot
	keys        *memberlist.Keyring    // nil: there are none
	seeds       atomic.Pointer[[]string]
	seedsChange chan struct{} // one slot
	listeners   listeners
	started     atomic.Bool
	trouble     atomic.Pointer[error] // see Trouble

	mu     sync.Mutex // guards the following
	self   Member
	addr   netip.AddrPort // advertised
	roster *roster
	claims *claims
	sorted []Member // what Members returns a copy of; nil after a change
}

// New checks the options and binds the sockets, which Run releases. What cannot
// be used is an *OptionError.
func New(opt Options) (*Gossip, error) {
	return newGossip(opt, lookupHost, localIPs)
}

// Check says what New would, and leaves the sockets free.
func Check(opt Options) error {
	g, err := New(opt)
	if err != nil {
		return err
	}
	return g.socks.close()
}

func newGossip(opt Options, find lookup, local func() ([]localIP, error)) (*Gossip, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	opt.Join, opt.Keys = slices.Clone(opt.Join), slices.Clone(opt.Keys)
	adv := &advertiser{option: opt.Advertise, find: find, local: local}
	if err := adv.check(); err != nil {
		return nil, err
	}
	meta, err := encodeMeta(opt.Self)
	if err != nil {
		return nil, err
	}
	socks, err := opt.bind(find)
	if err != nil {
		return nil, err
	}
	adv.bound = socks.bound
	c, err := adv.choose(context.Background())
	if err != nil {
		return nil, errors.Join(adv.fail("no address of this host is known", err), socks.close())
	}
	g := &Gossip{
		opt: opt, log: opt.Log, socks: socks, adv: adv, find: find,
		metaChanged: make(chan struct{}, 1),
		seedsChange: make(chan struct{}, 1),
		self:        opt.Self,
		roster:      newRoster(opt.Self.Node),
		claims:      newClaims(10 * opt.Timing.ProbeInterval),
	}
	g.meta.Store(&meta)
	g.seeds.Store(&opt.Join)
	if len(opt.Keys) > 0 {
		if g.keys, err = memberlist.NewKeyring(opt.Keys, opt.Keys[0]); err != nil {
			return nil, errors.Join(fmt.Errorf("take the keys: %w", err), socks.close())
		}
	}
	g.self.Status, g.self.Since = Alive, time.Now()
	g.advertiseAt(c)
	return g, nil
}

// advertiseAt takes the address that was chosen and says why.
func (g *Gossip) advertiseAt(c choice) {
	g.mu.Lock()
	g.addr = c.addr
	g.self.Addr = c.addr.String()
	g.sorted = nil
	g.mu.Unlock()
	attrs := []any{"advertise", c.addr, "why", c.why, "bind", g.socks.bound, "encrypted", len(g.opt.Keys) > 0}
	switch {
	case c.vague != nil:
		g.log.Warn("the address to advertise is not known yet, another one serves until it is",
			append(attrs, "wanted", g.opt.Advertise, "err", c.vague)...)
	case len(c.others) > 0:
		names := make([]string, 0, len(c.others))
		for _, o := range c.others {
			names = append(names, fmt.Sprintf("%v of %s", o.ip, o.iface))
		}
		g.log.Warn("this host has several addresses to advertise; choose with --gossip-advertise where others cannot reach this one",
			append(attrs, "others", names)...)
	default:
		g.log.Info("gossip address", attrs...)
	}
}

// Addr returns HOST:PORT under which others reach this agent.
func (g *Gossip) Addr() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.addr.String()
}

// Members returns this agent and all others, sorted by name. Those that are dead
// or have left are listed for an hour, the latest 64 of them.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sorted == nil {
		g.sorted = g.roster.list(g.self)
	}
	return slices.Clone(g.sorted)
}

// Conflicts returns the names that two live members claim, sorted. Neither of
// the two takes the other's place; give one of them another name.
func (g *Gossip) Conflicts() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claims.confirmed()
}

// Listen returns a channel that gets a value after Members or Conflicts have
// changed (changes that come faster than they are taken are one), and a function
// that ends it.
func (g *Gossip) Listen() (changed <-chan struct{}, stop func()) { return g.listeners.listen() }

// SetSelf changes what the others are told of this agent. Node, Addr, Status and
// Since stay as they are. It fails with an *OptionError, and changes nothing,
// where the meta would not fit. It does not wait for anybody to be told.
func (g *Gossip) SetSelf(edit func(*Member)) error {
	g.mu.Lock()
	before := g.self
	m := before
	edit(&m)
	m.Node, m.Addr, m.Status, m.Since = before.Node, before.Addr, before.Status, before.Since
	if m == before {
		g.mu.Unlock()
		return nil
	}
	meta, err := encodeMeta(m)
	if err != nil {
		g.mu.Unlock()
		return err
	}
	g.self = m
	g.sorted = nil
	g.meta.Store(&meta)
	g.mu.Unlock()
	trySend(g.metaChanged)
	g.listeners.wake()
	return nil
}

// errMoved ends a session whose advertised address is another now.
var errMoved = errors.New("the address to advertise has changed")

// Run takes part in the ring until ctx ends: it joins for ever, and says
// good-bye at the end. It returns within about 3 s of that, with the sockets
// closed. A Gossip runs once.
func (g *Gossip) Run(ctx context.Context) (err error) {
	if g.started.Swap(true) {
		return errors.New("gossip: a Gossip runs once")
	}
	defer func() { err = errors.Join(err, g.socks.close()) }()
	defer g.setStatus(Left)

	b := newBridge(g.log)
	var logging sync.WaitGroup
	defer logging.Wait()
	lines, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	logging.Go(func() { b.run(lines) })

	for ctx.Err() == nil {
		s, err := g.newSession(b)
		if err != nil {
			return fmt.Errorf("gossip on %v: %w", g.socks.bound, err)
		}
		if err := s.run(ctx); !errors.Is(err, errMoved) {
			return err
		}
		if c, err := g.adv.choose(ctx); err == nil {
			g.advertiseAt(c)
		}
	}
	return nil
}

func (g *Gossip) setStatus(s string) {
	g.mu.Lock()
	g.self.Status, g.self.Since = s, time.Now()
	g.sorted = nil
	g.mu.Unlock()
	g.listeners.wake()
}
