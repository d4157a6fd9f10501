package discovery

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// steps of a dispute: what is met when, and whether the holder lives then.
type step struct {
	at        time.Duration
	met       bool
	dead      bool
	confirmed bool // afterwards
	over      bool // by this step
}

func TestClaims_OnlyWhatLastsIsConfirmed(t *testing.T) {
	t.Parallel()
	const grace = 5 * time.Second
	table := map[string][]step{
		"met once":                    {{met: true}, {at: grace}, {at: 2 * grace}},
		"met until the grace is over": {{met: true}, {at: grace - 1, met: true}, {at: grace, met: true, confirmed: true}},
		"the holder dies in time":     {{met: true}, {at: grace / 2, met: true}, {at: grace - 1, dead: true}, {at: 2 * grace}},
		"the holder dies later": {
			{met: true}, {at: grace, met: true, confirmed: true}, {at: 2 * grace, confirmed: true}, {at: 3 * grace, dead: true, over: true},
		},
		"it is no longer renewed": {
			{met: true}, {at: grace, met: true, confirmed: true}, {at: 7 * grace, confirmed: true}, {at: 7*grace + 1, over: true},
		},
		"it is renewed for long": {
			{met: true}, {at: grace, met: true, confirmed: true}, {at: 6 * grace, met: true, confirmed: true}, {at: 12 * grace, confirmed: true},
		},
	}
	for name, steps := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Unix(1_000_000, 0)
			c := newClaims(grace)
			cl := claim{node: "n", wanted: netip.MustParseAddrPort("10.0.0.1:1")}
			reported := 0
			for i, s := range steps {
				now := began.Add(s.at)
				if s.met {
					c.add(cl, now)
				}
				confirmed, over := c.settle(now, func(string) bool { return !s.dead })
				reported += len(confirmed)
				if got := slices.Contains(c.confirmed(), "n"); got != s.confirmed {
					t.Errorf("step %d: confirmed is %v", i, got)
				}
				if got := len(over) == 1; got != s.over {
					t.Errorf("step %d: over is %v", i, got)
				}
				if c.wanted("other") {
					t.Errorf("step %d: a name that nobody claims is claimed", i)
				}
			}
			if reported > 1 {
				t.Errorf("it was reported %d times", reported)
			}
		})
	}
}

// Whoever claimed the name of one that died is its heir, once, when it is time.
func TestClaims_WhoClaimedADeadNameIsItsHeir(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	c := newClaims(time.Second)
	wanted := netip.MustParseAddrPort("10.0.0.1:1")
	c.add(claim{node: "n", wanted: wanted}, now)
	if !c.wanted("n") {
		t.Error("it is not claimed")
	}
	c.settle(now, func(string) bool { return false })
	if c.wanted("n") {
		t.Error("it is claimed after its holder's death")
	}
	if got := c.due(now.Add(499*time.Millisecond), 500*time.Millisecond); len(got) != 0 {
		t.Errorf("heirs before it is time: %v", got)
	}
	if got := c.due(now.Add(500*time.Millisecond), 500*time.Millisecond); !slices.Equal(got, []netip.AddrPort{wanted}) {
		t.Errorf("heirs %v", got)
	}
	if got := c.due(now.Add(time.Hour), 0); len(got) != 0 {
		t.Errorf("heirs a second time: %v", got)
	}
}

// However many names are claimed, what is remembered is bounded.
func TestClaims_AreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	c := newClaims(time.Second)
	for round := range 3 {
		for i := range 2 * maxDisputes {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(round), byte(i >> 8), byte(i)}), 1)
			c.add(claim{node: fmt.Sprintf("n%d", i), wanted: addr}, now)
		}
		if len(c.names) != maxDisputes {
			t.Errorf("%d names, %d are the limit", len(c.names), maxDisputes)
		}
		c.settle(now, func(string) bool { return false })
		if len(c.heirs) > maxDisputes {
			t.Errorf("%d heirs, %d are the limit", len(c.heirs), maxDisputes)
		}
	}
}
