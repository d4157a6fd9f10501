//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// TestPair_Failover is the drill: the broker dies, one replica is promoted and a
// broker boots on it, with an agent of its own. The other slave follows the new
// master by itself; the old one, which was not told, serves and acks nothing.
func TestPair_Failover(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		p := startBrokerOf(t, v)
		p.makeKey()
		sent := p.driver.Send(t, brokertest.SendSpec{Topic: "drill", Count: 400, BodySize: 3000, Threads: 2})
		p.startAgents()
		held := p.caughtUp()
		p.broker.Kill()
		heir, left := p.slaves[0], p.slaves[1]
		if end := heir.promote(); end < held {
			t.Errorf("promised up to %d of %d", end, held)
		}
		d, b := boot(t, v, p.ns, heir.dir, wire.MiB)
		next := p.startMaster(heir.dir, "m2", p.ring.host(), "--broker", b.Addr(), "--join", p.host)

		p.master.waitCode(state.SplitBrain, "stale_epoch")
		for _, a := range []control.WaitAnswer{p.master.now(1, time.Second), p.master.wait(control.WaitRequest{Offset: 0, Acks: 1, Timeout: time.Second})} {
			if a.Result == acks.PutOK {
				t.Errorf("the old master acks: %+v", a)
			}
		}
		left.waitStatus("the new master", func(s control.Status) bool {
			return s.State == state.Streaming && s.Source.Node == "m2"
		})
		sent = append(sent, d.Send(t, brokertest.SendSpec{Topic: "drill", Count: 100, BodySize: 3000})...)
		if got := next.now(1, 30*time.Second); got.Result != acks.PutOK {
			t.Errorf("the new master says %+v", got)
		}
		end := left.caughtUp(b)
		if got := verifySame(t, b.Dir(), left.dir); got < end {
			t.Errorf("identical up to %d of %d", got, end)
		}
		if n := len(p.master.status().Replicas); n != 0 {
			t.Errorf("the old master has %d replicas", n)
		}
		same(t, "the new master", brokertest.Diff(sent, d.PullFrom(t, b.Addr(), "drill", len(sent))))
	})
}
