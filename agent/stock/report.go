package stock

import (
	"context"
	"fmt"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// report tells the source how far the replica is: at once when that moves, and
// at least every heartbeat. It runs apart from reading and writing, so that a
// busy disk cannot make the source drop the link.
func (st *stream) report(ctx context.Context) error {
	moved, stop := st.store.Listen()
	defer stop()
	tick := time.NewTicker(st.f.timing.Heartbeat)
	defer tick.Stop()
	last, allowed := wire.NoOffset, st.allowed
	frame := make([]byte, 0, ha.ReportSize)
	for {
		due := false
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
		case <-allowed:
			allowed = nil
		case <-tick.C:
			due = true
		}
		now := st.reportable()
		if now <= last && !due {
			continue
		}
		last = max(last, now)
		if err := st.conn.SetWriteDeadline(time.Now().Add(st.f.timing.Heartbeat)); err != nil {
			return fmt.Errorf("report to %s: %w", st.addr, err)
		}
		frame = ha.AppendReport(frame[:0], last)
		if _, err := st.conn.Write(frame); err != nil {
			return fmt.Errorf("report %d to %s: %w", last, st.addr, err)
		}
		st.watch.Acked(last)
		tick.Reset(st.f.timing.Heartbeat)
	}
}

// reportable is what may be acknowledged now. Until everything that is held has
// been compared with this source, that is no more than the request said.
func (st *stream) reportable() wire.PhyOffset {
	acked := max(st.store.Ends().Acked, 0)
	if !st.compared.Load() {
		acked = min(acked, st.plan.request)
	}
	return acked
}
