package stock_test

import (
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
)

// Replicas that stand still while they keep their connections are no slaves to the
// broker once it has waited for them as long as it does for a slave, and are again
// as soon as they move.
func TestRelay_ReplicasThatStandStillAreNoSlaves(t *testing.T) {
	for _, c := range []struct {
		inSync  int
		lacking string
	}{{0, brokertest.StatusNoSlave}, {2, brokertest.StatusFlushSlave}} {
		m := newCountingMaster(t, c.inSync, 2, "slaveTimeout", "200")
		table := newReplicas(t, m)
		leave := table.follow("a")
		table.join("b")
		r := relay(t, m, table, 2)
		for range 3 {
			table.ack("b", m.writer.End())
			r.awaitLinks(t, m, max(c.inSync-1, 1), m.writer.End())
			if got := m.put(shortly); got != brokertest.StatusFlushSlave {
				t.Errorf("inSyncReplicas %d: %s, and one of two has it", c.inSync, got)
			}
			eventually(t, "no connection", func() bool { return len(m.links()) == 0 })
			if got := m.put(shortly); got != c.lacking {
				t.Errorf("inSyncReplicas %d: %s, want %s", c.inSync, got, c.lacking)
			}
			eventually(t, "the reason", func() bool {
				st := r.Status()
				return !st.Connected && strings.Contains(st.Reason, "have acked nothing beyond")
			})
		}
		if n := len(m.asked()); n > 4*max(c.inSync-1, 1) {
			t.Errorf("inSyncReplicas %d: %d requests for three rounds", c.inSync, n)
		}
		leave()
	}
}
