package link

import "context"

// guest is a connection whose hello has come.
type guest struct{ end context.CancelCauseFunc }

// host lets Recheck end what works with the context it returns, until leave.
func (s *Server) host(ctx context.Context) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &guest{end: cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guests[g] = struct{}{}
	return ctx, func() {
		s.mu.Lock()
		delete(s.guests, g)
		s.mu.Unlock()
		cancel(nil)
	}
}

// Recheck asks Admit again, now. Where it refuses, no ack moves any more once
// Recheck has returned: all replicas are out of reach. Their connections, also
// those that are stuck in a transfer, are told so and end within a second or two.
// It waits for none of them, and may be called at any time by any goroutine, also
// before Run, but not by Admit.
func (s *Server) Recheck() {
	if s.err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.admit()
	if err == nil {
		return
	}
	for _, p := range s.peers { // acks before anything else
		p.row.Leave()
	}
	for g := range s.guests {
		g.end(err)
	}
}
