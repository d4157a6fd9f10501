package discovery

import (
	"net/netip"
	"slices"
	"time"
)

// claims tells names that two live members claim from members that have moved.
//
// When a member dies and comes back at another address, its name is met twice
// until its death is known: that is no conflict. So a name counts as claimed
// twice once the claim has been renewed for longer than a death takes to be
// known, while the holder of the name is still taken for alive; and no longer
// than the claim goes on being renewed. When its holder dies or leaves, whoever
// claimed the name is its heir, to be asked to come in once more.
//
// It has no lock and no clock.
type claims struct {
	grace time.Duration // a death is known after that
	names map[string]*dispute
	heirs map[netip.AddrPort]time.Time // since when
}

type dispute struct {
	claim
	first, last time.Time
	confirmed   bool
}

// maxDisputes bounds the names in dispute.
const maxDisputes = 256

func newClaims(grace time.Duration) *claims {
	return &claims{grace: grace, names: make(map[string]*dispute), heirs: make(map[netip.AddrPort]time.Time)}
}

// add takes one more claim, met at now.
func (c *claims) add(cl claim, now time.Time) {
	d := c.names[cl.node]
	if d == nil {
		if len(c.names) >= maxDisputes {
			return
		}
		d = &dispute{first: now}
		c.names[cl.node] = d
	}
	d.claim, d.last = cl, now
}

// settle drops what is over and confirms what has lasted. lives reports whether
// a name's holder is alive.
func (c *claims) settle(now time.Time, lives func(node string) bool) (confirmed, over []claim) {
	for name, d := range c.names {
		switch {
		case !lives(name) || now.Sub(d.last) > 6*c.grace:
			delete(c.names, name)
			if len(c.heirs) < maxDisputes && !lives(name) {
				c.heirs[d.wanted] = now
			}
			if d.confirmed {
				over = append(over, d.claim)
			}
		case !d.confirmed && d.last.Sub(d.first) >= c.grace:
			d.confirmed = true
			confirmed = append(confirmed, d.claim)
		}
	}
	return confirmed, over
}

// confirmed returns the names that two live members claim, sorted.
func (c *claims) confirmed() []string {
	var out []string
	for name, d := range c.names {
		if d.confirmed {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// wanted reports whether somebody claims name, confirmed or not.
func (c *claims) wanted(name string) bool { return c.names[name] != nil }

// due takes out and returns the heirs of at least that age.
func (c *claims) due(now time.Time, age time.Duration) []netip.AddrPort {
	var out []netip.AddrPort
	for a, since := range c.heirs {
		if now.Sub(since) >= age {
			out = append(out, a)
			delete(c.heirs, a)
		}
	}
	return out
}
