package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// label stands before every packet and stream, and is authenticated with them.
// It keeps other programs that use memberlist out, whose members would otherwise
// mix with ours as soon as one address is shared. It is the same for all
// clusters: which one a member belongs to is in its meta, because one observer,
// one dashboard and one set of seeds may serve several, and an agent whose
// cluster is mistyped should be seen with it, not miss without a word.
const label = "haagent"

// protocol is memberlist's version that all agents speak.
const protocol = memberlist.ProtocolVersion2Compatible

// session is one life of a memberlist: from its start at one advertised address
// until the end, or until that address is another one.
type session struct {
	g      *Gossip
	calls  *callbacks
	trans  *transport
	list   *memberlist.Memberlist
	reader *tableReader
	hint   <-chan struct{} // somebody may be suspect now
	doubt  chan struct{}   // one slot: somebody is to be asked
	moved  chan struct{}   // closed where the advertised address is no longer right

	taking sync.Mutex // what is learned reaches the roster in the order in which it was learned
}

func (g *Gossip) newSession(b *bridge) (*session, error) {
	g.mu.Lock()
	addr := g.addr
	g.mu.Unlock()
	s := &session{
		g:     g,
		calls: newCallbacks(func() []byte { return *g.meta.Load() }),
		trans: newTransport(g.socks, addr, g.opt.confined()),
		hint:  b.suspect,
		doubt: make(chan struct{}, 1),
		moved: make(chan struct{}),
	}
	conf, err := s.config(b)
	if err != nil {
		return nil, errors.Join(err, s.trans.Shutdown())
	}
	if s.list, err = memberlist.Create(conf); err != nil {
		return nil, errors.Join(fmt.Errorf("start memberlist: %w", err), s.trans.Shutdown())
	}
	if s.reader, err = newTableReader(s.trans, conf); err != nil {
		return nil, errors.Join(err, s.list.Shutdown())
	}
	return s, nil
}

func (s *session) config(b *bridge) (*memberlist.Config, error) {
	opt := s.g.opt
	c := memberlist.DefaultLANConfig()
	c.Name = opt.Self.Node
	c.Label = label
	c.Transport = s.trans
	c.BindPort = DefaultPort // only taken for members that say no port
	c.ProtocolVersion = protocol
	c.LogOutput = b
	c.Delegate, c.Events, c.Conflict, c.Merge, c.Alive = s.calls, s.calls, s.calls, s.calls, s.calls
	c.Keyring = s.g.keys
	c.GossipVerifyIncoming, c.GossipVerifyOutgoing = true, true
	c.EnableCompression = false // metas are small; it costs more than it saves
	c.ProbeInterval, c.ProbeTimeout = opt.Timing.ProbeInterval, opt.Timing.ProbeTimeout
	c.SuspicionMult = opt.Timing.SuspicionMult
	c.SuspicionMaxTimeoutMult = 3 // where nobody confirms a death it is believed after that much longer
	c.AwarenessMaxMultiplier = 4
	c.GossipInterval = opt.Timing.GossipInterval
	c.PushPullInterval = opt.Timing.PushPullInterval
	c.TCPTimeout = opt.Timing.TCPTimeout
	c.DeadNodeReclaimTime = opt.Timing.Reclaim
	return c, nil
}

// run takes part until ctx ends, with nil, or the address changes, with
// errMoved.
func (s *session) run(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	parts.Go(func() { s.watch(inner) })
	parts.Go(func() { s.announce(inner) })
	parts.Go(func() { s.join(inner) })
	parts.Go(func() { s.clear(inner) })
	err := errMoved
	select {
	case <-ctx.Done():
		err = nil
	case <-s.moved:
	}
	cancel()
	s.trans.hangUp() // joins may wait for a stream
	parts.Wait()
	if leave := s.list.Leave(s.g.opt.Timing.Leave); leave != nil {
		s.g.log.Debug("not all members were told of the end", "err", leave)
	}
	if e := errors.Join(s.list.Shutdown(), s.reader.close()); e != nil {
		return fmt.Errorf("end memberlist: %w", e)
	}
	return err
}

// announceTimeout bounds waiting for a changed meta to be on its way. It is sent
// on after that as well.
const announceTimeout = 200 * time.Millisecond

// announce tells the others what has changed of this agent.
func (s *session) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.g.metaChanged:
			if err := s.list.UpdateNode(announceTimeout); err != nil {
				s.g.log.Debug("the changed meta is still on its way", "err", err)
			}
		}
	}
}

const (
	// After a reading there is none for readGap and ten times as long as it took,
	// so that a ring in turmoil costs each of its members a small part of one core.
	readGap      = 20 * time.Millisecond
	readGapMax   = 2 * time.Second
	readIdleEach = 10 * time.Millisecond
)

// watch takes every change, and reads the table at least every Refresh, more
// often while somebody is in doubt: nobody calls when a member becomes suspect,
// or is cleared of that.
func (s *session) watch(ctx context.Context) {
	idle := time.NewTimer(0)
	defer idle.Stop()
	for {
		var began time.Time
		hinted := false
		select {
		case <-ctx.Done():
			return
		case <-s.calls.changed:
			began = time.Now()
			s.hear()
		case <-s.hint:
			began, hinted = time.Now(), true
			s.look()
		case <-idle.C:
			began = time.Now()
			s.look()
		}
		if !pause(ctx, min(readGap+10*time.Since(began), readGapMax)) {
			return
		}
		wait := s.g.opt.Timing.Refresh + time.Duration(s.g.size())*readIdleEach
		if hinted || s.g.doubtful() { // a hint comes right before what it says
			wait /= 4
		}
		idle.Reset(wait)
	}
}

// hear takes what memberlist has told, and reads the table only where that does
// not say it all: a ring of n that comes up at once would otherwise cost each of
// its members n readings of up to n entries.
func (s *session) hear() {
	s.taking.Lock()
	defer s.taking.Unlock()
	news, unclear := s.calls.take()
	if unclear {
		s.read()
		return
	}
	s.g.take(s.calls, func(now time.Time) []change { return s.g.roster.update(news, now) })
	s.settled()
}

// look reads the table and takes what it says.
func (s *session) look() {
	s.taking.Lock()
	defer s.taking.Unlock()
	s.calls.take() // all of it is in the table by now
	s.read()
}

// read does look's work, with taking held.
func (s *session) read() {
	table, err := s.reader.read()
	if err != nil {
		s.g.log.Debug("the members could not be read", "err", err) // Refresh tries again
		return
	}
	s.g.take(s.calls, func(now time.Time) []change { return s.g.roster.apply(table, now) })
	s.settled()
}

// settled wakes who asks members themselves, where there is somebody to ask.
func (s *session) settled() {
	if s.g.doubtful() {
		trySend(s.doubt)
	}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// take brings the roster up to date by what is called under g's lock, wakes the
// listeners and logs.
func (g *Gossip) take(calls *callbacks, update func(now time.Time) []change) {
	now := time.Now()
	g.mu.Lock()
	changes := update(now)
	if len(changes) > 0 {
		g.sorted = nil
	}
	for range cap(calls.claims) {
		select {
		case c := <-calls.claims:
			g.claims.add(c, now)
			continue
		default:
		}
		break
	}
	confirmed, over := g.claims.settle(now, func(node string) bool {
		return node == g.self.Node || g.roster.members[node].Status == Alive
	})
	g.mu.Unlock()
	if len(changes)+len(confirmed)+len(over) > 0 {
		g.listeners.wake()
	}
	g.logChanges(changes)
	for _, c := range confirmed {
		g.log.Warn("two live members claim one name; give one of them another --node",
			"node", c.node, "held", c.held, "claimed", c.wanted)
	}
	for _, c := range over {
		g.log.Info("a name is no longer claimed by two members", "node", c.node, "held", c.held, "claimed", c.wanted)
	}
}

// manyChanges in one reading are logged in one line.
const manyChanges = 8

func (g *Gossip) logChanges(changes []change) {
	counts := make(map[string]int)
	var listed []change
	for _, c := range changes {
		switch {
		case c.before.Node == "" && gone(c.after.Status):
			// It was gone before this agent came.
		case c.after.Status == Suspect, c.before.Status == Suspect && c.after.Status == Alive:
			g.log.Debug("member "+c.after.Status, "node", c.after.Node, "addr", c.after.Addr)
		default:
			counts[c.after.Status]++
			listed = append(listed, c)
		}
	}
	if len(listed) > manyChanges {
		g.log.Info("members changed", Alive, counts[Alive], Left, counts[Left], Dead, counts[Dead])
		return
	}
	for _, c := range listed {
		g.log.Info("member "+c.after.Status, "node", c.after.Node, "addr", c.after.Addr, "role", c.after.Role,
			"cluster", c.after.Cluster, "brokerName", c.after.BrokerName, "epoch", c.after.Epoch)
	}
}

// size returns how many members are known, gone ones included.
func (g *Gossip) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.roster.members) + 1
}

// alone reports whether nobody else is alive or suspect.
func (g *Gossip) alone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.roster.alone()
}

// others returns where the others are that are alive or suspect.
func (g *Gossip) others() map[netip.AddrPort]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.roster.here()
}
