package discovery

import (
	"bytes"
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
	members map[string]entry
	seen    map[netip.AddrPort]time.Time // where members were last alive
}

// An entry is a member, and what it was made from.
type entry struct {
	Member
	at   netip.AddrPort // not valid for garbage
	meta []byte
}

func newRoster(self string) *roster {
	return &roster{self: self, members: make(map[string]entry), seen: make(map[netip.AddrPort]time.Time)}
}

// A change is one member before and after. Before has no Node where the member
// is new.
type change struct{ before, after Member }

// apply takes the table as it was read at now, and returns what has changed,
// sorted by name.
func (r *roster) apply(table []memberlist.Node, now time.Time) []change {
	var changes []change
	found := make(map[string]bool, len(table))
	for i := range table {
		n := &table[i]
		if n.Name == r.self || n.Name == readerName {
			continue
		}
		found[n.Name] = true
		changes = r.put(changes, n, status(n.State), now)
	}
	for name, e := range r.members {
		// memberlist forgets the dead after a while; those that it forgot alive were
		// dead in between, unseen, or belong to a table of before.
		if !found[name] && !gone(e.Status) {
			before := e.Member
			e.Status, e.Since = Dead, now
			r.members[name] = e
			changes = append(changes, change{before, e.Member})
		}
	}
	r.prune(now)
	return sortChanges(changes)
}

// update takes what was told since the table was last read: these members have
// joined or changed. One that is suspect stays so until the table says otherwise,
// because the news may be older than the suspicion.
func (r *roster) update(news []memberlist.Node, now time.Time) []change {
	var changes []change
	for i := range news {
		n := &news[i]
		switch {
		case n.Name == r.self:
		case r.members[n.Name].Status == Suspect:
			changes = r.put(changes, n, Suspect, now)
		default:
			changes = r.put(changes, n, Alive, now)
		}
	}
	r.prune(now)
	return sortChanges(changes)
}

func sortChanges(changes []change) []change {
	slices.SortFunc(changes, func(a, b change) int { return compareNodes(a.after, b.after) })
	return changes
}

// put takes one member, and appends to changes what is new of it.
func (r *roster) put(changes []change, n *memberlist.Node, status string, now time.Time) []change {
	at := nodeAddr(n)
	if !gone(status) {
		r.seen[at] = now
	}
	e, ok := r.members[n.Name]
	if ok && e.Status == status && e.at == at && bytes.Equal(e.meta, n.Meta) {
		return changes
	}
	m := Member{Node: n.Name, Addr: at.String(), Status: status, Since: now}
	_ = decodeMeta(n.Meta, &m) // whose meta cannot be read is listed without
	if e.Status == status {
		m.Since = e.Since
	}
	r.members[n.Name] = entry{Member: m, at: at, meta: n.Meta}
	if m == e.Member {
		return changes // only what cannot be read is another
	}
	return append(changes, change{e.Member, m})
}

// prune forgets those that went long ago, and what is too much.
func (r *roster) prune(now time.Time) {
	var old []Member
	for _, e := range r.members {
		if gone(e.Status) {
			old = append(old, e.Member)
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
	for _, e := range r.members {
		if !gone(e.Status) {
			out[e.at] = true
		}
	}
	return out
}

// alone reports whether nobody else is alive or suspect.
func (r *roster) alone() bool {
	for _, e := range r.members {
		if !gone(e.Status) {
			return false
		}
	}
	return true
}

// list returns copies of all, and of self, sorted by name.
func (r *roster) list(self Member) []Member {
	out := make([]Member, 0, len(r.members)+1)
	out = append(out, self)
	for _, e := range r.members {
		out = append(out, e.Member)
	}
	slices.SortFunc(out, compareNodes)
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
