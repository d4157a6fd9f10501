package discovery

import (
	"context"
	"net/netip"
	"sync"
)

// smallRing is up to how many members, gone ones included, ask a suspect
// themselves. In larger rings others have asked it already, and a hundred that
// ask at once do not help it.
const smallRing = 16

// clear asks suspects whether they are well, by a stream. memberlist tells them
// by packets, and hears their answer by packets; in a ring of two, where packets
// are lost and streams are not, one probe that fails would be one death. The
// first exchange tells the suspect of the suspicion, the second brings what it
// says to that.
func (s *session) clear(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.doubt:
		}
		var wg sync.WaitGroup
		for _, a := range s.g.suspects() {
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
			s.g.log.Debug("a suspect does not answer", "err", plain(a, err))
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
	for _, m := range g.roster.members {
		if a, err := netip.ParseAddrPort(m.Addr); err == nil && m.Status == Suspect {
			out = append(out, a)
		}
	}
	return out
}
