package discovery

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// smallRing is up to how many members, gone ones included, ask a suspect
// themselves. In larger rings others have asked it already, and a hundred that
// ask at once do not help it.
const smallRing = 16

// clear asks those whose place in the table is in doubt, by a stream.
//
// Suspects are asked whether they are well. memberlist tells them
// by packets, and hears their answer by packets; in a ring of two, where packets
// are lost and streams are not, one probe that fails would be one death. The
// first exchange tells the suspect of the suspicion, the second brings what it
// says to that.
//
// Heirs, who came while the holder of their name was not yet known to be dead,
// were refused and might not call again for long.
func (s *session) clear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.doubt:
		}
		var wg sync.WaitGroup
		for _, a := range append(s.g.suspects(), s.g.heirs()...) {
			wg.Go(func() { s.ask(ctx, a) })
		}
		wg.Wait()
		if !pause(ctx, s.g.opt.Timing.ProbeInterval/2) {
			return
		}
	}
}

// ask exchanges tables with a member that does not know yet what is said of it.
func (s *session) ask(ctx context.Context, a netip.AddrPort) {
	for range 2 {
		if ctx.Err() != nil {
			return
		}
		if _, err := s.list.Join([]string{a.String()}); err != nil {
			s.g.log.Debug("a suspect or heir does not answer", "err", plain(a, err))
			return
		}
	}
	s.look()
}

// suspects returns where members of a small ring are that are suspect.
func (g *Gossip) suspects() []netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.roster.members) >= smallRing {
		return nil
	}
	var out []netip.AddrPort
	for _, e := range g.roster.members {
		if e.Status == Suspect && e.at.IsValid() {
			out = append(out, e.at)
		}
	}
	return out
}

// heirs returns where those are who may have a dead member's name by now.
func (g *Gossip) heirs() []netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claims.due(time.Now(), g.opt.Timing.Reclaim)
}

// doubtful reports whether there is somebody to ask.
func (g *Gossip) doubtful() bool {
	if len(g.suspects()) > 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.claims.heirs) > 0
}
