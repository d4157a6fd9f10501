package discovery

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// maxMembers bounds the ring, and so what somebody with a key can make every
// agent remember.
const maxMembers = 1024

// callbacks are what memberlist calls, most of it under its own lock: so none of
// them waits, and none calls memberlist. They leave a wake-up and a copy of the
// member, one for each name, or a claim in a queue that drops what does not fit;
// claims come again.
type callbacks struct {
	meta    func() []byte // at most MaxMeta bytes
	changed chan struct{} // one slot: the table has changed
	claims  chan claim

	mu      sync.Mutex // held for map operations only
	known   map[string]struct{}
	news    map[string]memberlist.Node // copies of those that joined or changed, not yet taken
	unclear bool                       // what happened cannot be told without the table
}

// A claim is a live node's name that was met at another address.
type claim struct {
	node         string
	held, wanted netip.AddrPort
}

func newCallbacks(meta func() []byte) *callbacks {
	return &callbacks{
		meta:    meta,
		changed: make(chan struct{}, 1),
		claims:  make(chan claim, 64),
		known:   make(map[string]struct{}),
		news:    make(map[string]memberlist.Node),
	}
}

// take returns what was told since it was last called, and whether the table
// must be read to know the rest: who goes is told without a word of whether it
// died or left.
func (c *callbacks) take() (news []memberlist.Node, unclear bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.news {
		news = append(news, n)
	}
	clear(c.news)
	unclear, c.unclear = c.unclear, false
	return news, unclear
}

// NodeMeta returns what this agent says of itself. It is checked to fit when it
// is set; memberlist panics where it does not.
func (c *callbacks) NodeMeta(limit int) []byte {
	if m := c.meta(); len(m) <= limit {
		return m
	}
	return nil
}

// NotifyMsg gets messages of users; there are none.
func (c *callbacks) NotifyMsg([]byte) {}

// GetBroadcasts returns messages of users; there are none.
func (c *callbacks) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing: the meta says it all.
func (c *callbacks) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what members of other programs may send.
func (c *callbacks) MergeRemoteState([]byte, bool) {}

// NotifyJoin is called under memberlist's lock.
func (c *callbacks) NotifyJoin(n *memberlist.Node) {
	c.mu.Lock()
	c.known[n.Name] = struct{}{}
	c.news[n.Name] = copyNode(n)
	c.mu.Unlock()
	trySend(c.changed)
}

// NotifyLeave is called under memberlist's lock.
func (c *callbacks) NotifyLeave(n *memberlist.Node) {
	c.mu.Lock()
	delete(c.known, n.Name)
	delete(c.news, n.Name)
	c.unclear = true
	c.mu.Unlock()
	trySend(c.changed)
}

// NotifyUpdate is called under memberlist's lock.
func (c *callbacks) NotifyUpdate(n *memberlist.Node) {
	c.mu.Lock()
	c.news[n.Name] = copyNode(n)
	c.mu.Unlock()
	trySend(c.changed)
}

// NotifyConflict is called under memberlist's lock, when a name that lives at
// one address is met at another.
func (c *callbacks) NotifyConflict(existing, other *memberlist.Node) {
	select {
	case c.claims <- claim{node: existing.Name, held: nodeAddr(existing), wanted: nodeAddr(other)}:
		trySend(c.changed)
	default:
	}
}

// NotifyMerge turns away this process's own reader of the table.
func (c *callbacks) NotifyMerge(peers []*memberlist.Node) error {
	for _, p := range peers {
		if p.Name == readerName {
			return errReader
		}
	}
	return nil
}

// NotifyAlive is called under memberlist's lock for every node that is said to
// be alive. It refuses what would break the table for others.
func (c *callbacks) NotifyAlive(n *memberlist.Node) error {
	if err := checkNode(n.Name); err != nil {
		return fmt.Errorf("its name: %w", err)
	}
	addr := nodeAddr(n)
	if !addr.IsValid() || addr.Addr().IsUnspecified() || addr.Addr().IsMulticast() || addr.Port() == 0 {
		return errors.New("nobody can reach it at its address")
	}
	if len(n.Meta) > MaxMeta {
		return fmt.Errorf("its meta has %d bytes, %d are the limit", len(n.Meta), MaxMeta)
	}
	// One member that claims another protocol makes memberlist refuse every
	// exchange of tables, with everybody.
	if n.PMin > protocol || n.PMax < protocol || n.PCur != protocol || n.DMin != 0 || n.DMax != 0 || n.DCur != 0 {
		return fmt.Errorf("it speaks protocol %d of %d to %d, not %d", n.PCur, n.PMin, n.PMax, protocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[n.Name]; !ok && len(c.known) >= maxMembers {
		return fmt.Errorf("there are %d members already", maxMembers)
	}
	return nil
}

// copyNode copies what memberlist goes on to change.
func copyNode(n *memberlist.Node) memberlist.Node {
	out := *n
	out.Addr, out.Meta = slices.Clone(n.Addr), slices.Clone(n.Meta)
	return out
}

// nodeAddr returns where a node advertises itself; not valid for garbage.
func nodeAddr(n *memberlist.Node) netip.AddrPort {
	ip, ok := netip.AddrFromSlice(n.Addr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap(), n.Port)
}

// trySend leaves a wake-up in a one-slot channel.
func trySend(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
