//go:build linux

package main

import (
	"os"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
)

// longVariable asks for the long runs of tests that get better with time.
const longVariable = "HAAGENT_LONG"

// cutEvery is the time between two cuts of the link.
const cutEvery = 3 * time.Second

// TestMasterRestartedAndLinkCut cuts the link every 3 s, chops the stream into
// pieces of 7 bytes for a while and kills the master, while it takes messages.
// The relay holds every report against what the master has shown (I3); in the
// end both logs are the same (I2), and the agent got there by itself.
func TestMasterRestartedAndLinkCut(t *testing.T) {
	t.Parallel() // most of the time is waiting
	rounds := 6
	if os.Getenv(longVariable) != "" {
		rounds = 40
	}
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		ns := brokertest.StartNameServer(t, v)
		master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr})
		d := brokertest.StartDriver(t, v, ns.Addr)
		r := startRelay(t, master.HAAddr())
		d.Send(t, brokertest.SendSpec{Topic: "cut", Count: 50})
		dir := t.TempDir()
		agent := startAgent(t, dir, "--master", master.Addr(), "--master-ha", r.addr)
		agent.waitState(state.Streaming)
		stop := d.StartSending(t, brokertest.SendSpec{Topic: "cut", BodySize: 1500, Rate: 300, Threads: 2})

		tick := time.NewTicker(cutEvery)
		defer tick.Stop()
		for i := range rounds {
			r.setDribble(i%4 == 1)
			if i%10 == 3 {
				master.Kill()
				master.Restart(t)
			}
			<-tick.C
			before := agent.status().Offsets.Verified
			r.cut()
			agent.waitStatus("growth after a cut", func(s control.Status) bool { return s.Offsets.Verified > before })
		}
		r.setDribble(false)
		sent := stop()
		end := agent.caughtUp(master)
		r.check(t)
		if links, reports := r.counts(); links < rounds || reports < rounds {
			t.Errorf("only %d connections and %d reports in %d rounds", links, reports, rounds)
		}
		if brokertest.Statuses(sent)[brokertest.StatusOK] < 100*rounds {
			t.Errorf("too little was sent to prove anything: %v", brokertest.Statuses(sent))
		}
		agent.term()
		if got := verifySame(t, master.Dir(), dir); got != end {
			t.Errorf("identical up to %d, the master ends at %d", got, end)
		}
		checkBootContract(t, dir)
	})
}
