package stock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/stock"
)

// What replicas have acked while the broker was down says nothing about what it has
// written in the place of that by the time that it is first seen: the files are
// looked at before anything is reported, and replicas count when they join anew.
func TestRelay_I3_AcksFromBeforeTheBrokerWasKnownAreRechecked(t *testing.T) {
	for _, inSync := range []int{0, 2} {
		m := newCountingMaster(t, inSync, 1)
		m.append(100, 100)
		end := m.writer.End()
		table := acks.NewTable()
		defer table.Close()
		stale := table.Join("a", acks.Memory) // of a log that ended here too, and is not this one
		stale.Report(acks.Marks{Memory: end, Disk: end})
		looks := 0
		r := &relayed{broker: &cutter{}, log: newLogBook()}
		r.Relay = stock.NewRelay(stock.RelayOptions{Acks: table, N: 1, Log: r.log.logger(), Recheck: func(context.Context) (bool, error) {
			if looks++; looks == 1 {
				return false, errors.New("not done in time")
			}
			return looks > 2, nil // by then it is known that the log is another one
		}})
		r.authority = listenTo(t, m.fakeMaster, func(opt *stock.AuthorityOptions) { opt.Relay = r.Relay })
		eventually(t, "the doubt", func() bool { p := r.Status().Problem; return p != nil && p.Code == "relay_acks_stale" })
		if got := m.put(shortly); got == brokertest.StatusOK {
			t.Errorf("inSyncReplicas %d: %s", inSync, got)
		}
		if asked := m.asked(); len(asked) > 0 {
			t.Errorf("inSyncReplicas %d: requests %v", inSync, asked)
		}
		now := m.writer.End()
		m.mu.Lock()
		m.held["a"] = now // it has compared, and has all of it
		m.mu.Unlock()
		fresh := table.Join("a", acks.Memory)
		fresh.Report(acks.Marks{Memory: now, Disk: now})
		r.awaitLinks(t, m, max(inSync-1, 1), now)
		eventually(t, "no doubt", func() bool { st := r.Status(); return st.Connected && st.Problem == nil })
	}
}
