package link

import (
	"context"
	"time"

	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// behind reports whether the replica is catching up, and so bound by the rate for
// that.
func (p *logPeer) behind(ends source.Ends) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.arrived || ends.Confirmed.Sub(max(p.marks.Memory, ends.Min, 0)) > inSync
}

// spend books n bytes that were sent, and returns for how long the log is held
// back. Heartbeats are no part of that: the sender goes on with them meanwhile.
func (s *sender) spend(n wire.ByteSize, behind bool) time.Duration {
	wait := s.peer.server.opt.Limits.Spend(n, behind)
	if wait > 0 {
		s.due = time.Now().Add(wait)
	}
	return wait
}

// held reports whether the limits hold the log back now.
func (s *sender) held() bool {
	if s.due.IsZero() {
		return false
	}
	if time.Now().Before(s.due) {
		return true
	}
	s.due = time.Time{}
	return false
}

// rest books n bytes that came, and reads no more for as long as the limits say:
// the source is held back by flow control. Reports go on meanwhile.
func (st *stream) rest(ctx context.Context, n wire.ByteSize) error {
	wait := st.f.opt.Limits.Spend(n, st.state != state.Streaming)
	if wait > 0 && !retry.Sleep(ctx, wait) {
		return context.Cause(ctx)
	}
	return nil
}
