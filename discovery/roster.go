package discovery

import (
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// goneFor and maxGone bound how long, and how many, members that are dead or
	// have left stay listed.
	goneFor = time.Hour
	maxGone = 64
	// maxSeen bounds the addresses that are tried again when alone.
	maxSeen = 256
)

// roster is what this agent remembers of the others: those in memberlist's
// table, and for a while those that have gone from it. It has no lock, clock or
// log of its own.
type roster struct {
	self    string
	members map[string]Member
	seen    map[netip.AddrPort]time.Time // where members were last alive
}

func newRoster(self string) *roster {
	return &roster{self: self, members: make(map[string]Member), seen: make(map[netip.AddrPort]time.Time)}
}

// A change is one member before and after. Before has no Node where the member
// is new.
type change struct{ before, after Member }

// apply takes the table as it was read at now, and returns what has changed,
// sorted by name.
func (r *roster) apply(table []memberlist.Node, now time.Time) []change {
	var changes []change
	put := func(m Member) {
		before := r.members[m.Node]
		m.Since = now
		if before.Status == m.Status {
			m.Since = before.Since
		}
		if before.Node == "" || !sameButSince(before, m) {
			changes = append(changes, change{before, m})
		}
		r.members[m.Node] = m
	}
	found := make(map[string]bool, len(table))
	for i := range table {
		n := &table[i]
		if n.Name == r.self || n.Name == readerName {
			continue
		}
		found[n.Name] = true
		addr := nodeAddr(n)
		m := Member{Node: n.Name, Addr: addr.String(), Status: status(n.State)}
		_ = decodeMeta(n.Meta, &m) // whose meta cannot be read is listed without
		if !gone(m.Status) {
			r.seen[addr] = now
		}
		put(m)
	}
	for name, m := range r.members {
		// memberlist forgets the dead after a while; those that it forgot alive were
		// dead in between, unseen, or belong to a table of before.
		if !found[name] && !gone(m.Status) {
			m.Status = Dead
			put(m)
		}
	}
	r.prune(now)
	slices.SortFunc(changes, func(a, b change) int { return compareNodes(a.after, b.after) })
	return changes
}

// prune forgets those that went long ago, and what is too much.
func (r *roster) prune(now time.Time) {
	var old []Member
	for _, m := range r.members {
		if gone(m.Status) {
			old = append(old, m)
		}
	}
	slices.SortFunc(old, func(a, b Member) int { return b.Since.Compare(a.Since) })
	for i, m := range old {
		if i >= maxGone || now.Sub(m.Since) > goneFor {
			delete(r.members, m.Node)
		}
	}
	if len(r.seen) <= maxSeen {
		return
	}
	addrs := r.formerly()
	for _, a := range addrs[maxSeen:] {
		delete(r.seen, a)
	}
}

// formerly returns where members were ever alive, the latest first.
func (r *roster) formerly() []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(r.seen))
	for a := range r.seen {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b netip.AddrPort) int {
		if c := r.seen[b].Compare(r.seen[a]); c != 0 {
			return c
		}
		return a.Compare(b)
	})
	return out
}

// here returns where the others are that are alive or suspect.
func (r *roster) here() map[netip.AddrPort]bool {
	out := make(map[netip.AddrPort]bool)
	for _, m := range r.members {
		if a, err := netip.ParseAddrPort(m.Addr); err == nil && !gone(m.Status) {
			out[a] = true
		}
	}
	return out
}

// list returns copies of all, in no order.
func (r *roster) list() []Member {
	out := make([]Member, 0, len(r.members)+1)
	for _, m := range r.members {
		out = append(out, m)
	}
	return out
}

func status(s memberlist.NodeStateType) string {
	switch s {
	case memberlist.StateAlive:
		return Alive
	case memberlist.StateSuspect:
		return Suspect
	case memberlist.StateLeft:
		return Left
	}
	return Dead
}
