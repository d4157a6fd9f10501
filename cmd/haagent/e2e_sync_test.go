//go:build linux

package main

import (
	"fmt"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// TestSyncMaster lets the producers of a synchronous master say what an
// acknowledgement of the agent is worth. Each round begins with the answer that
// they get without the agent, since on 5.x a master that was set up wrongly says
// SEND_OK to everybody (fault 27).
func TestSyncMaster(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		ns := brokertest.StartNameServer(t, v)
		master := brokertest.StartBroker(t, brokertest.BrokerOptions{
			Version: v, NameServer: ns.Addr, Role: "SYNC_MASTER", SegmentSize: 16 * wire.MiB,
			Properties: map[string]string{"inSyncReplicas": "2"}, // counts the master; 4.x does not know it
		})
		d := brokertest.StartDriver(t, v, ns.Addr)
		dir := t.TempDir()
		var sent []brokertest.Sent
		sent = append(sent, waitAnswer(t, d, aloneStatus(v))...)
		for _, ack := range []string{"memory", "disk"} {
			agent := startAgent(t, dir, "--master", master.Addr(), "--ack", ack)
			agent.waitState(state.Streaming)
			sent = append(sent, waitAnswer(t, d, brokertest.StatusOK)...)
			sent = append(sent, checkMixedSizes(t, d)...)
			agent.kill()
			sent = append(sent, waitAnswer(t, d, aloneStatus(v))...)
		}
		agent := startAgent(t, dir, "--master", master.Addr())
		agent.caughtUp(master)
		same(t, "the master", brokertest.Diff(sent, d.PullN(t, "sync", len(sent))))
		end := agent.promote()
		master.Kill()
		if got := verifySame(t, master.Dir(), dir); got != end {
			t.Errorf("identical up to %d, promised %d", got, end)
		}
	})
}

// aloneStatus is what a synchronous master without a slave answers.
func aloneStatus(v brokertest.Version) string {
	if v.Major() >= 5 {
		return brokertest.StatusFlushSlave
	}
	return brokertest.StatusNoSlave
}

// waitAnswer sends until producers get the answer, which may take a moment after
// the agent has come or gone.
func waitAnswer(t *testing.T, d *brokertest.Driver, want string) []brokertest.Sent {
	t.Helper()
	var sent []brokertest.Sent
	waitFor(t, "the answer "+want, func() (string, bool) {
		now := d.Send(t, brokertest.SendSpec{Topic: "sync", Count: 2, Threads: 2})
		sent = append(sent, now...)
		return fmt.Sprint(brokertest.Statuses(now), now[0].Err), brokertest.Statuses(now)[want] == len(now)
	})
	return sent
}

// checkMixedSizes sends 20 messages of 1 MiB among 2,000 small ones: a large
// message must not make those behind it miss their time (fault 33).
func checkMixedSizes(t *testing.T, d *brokertest.Driver) []brokertest.Sent {
	t.Helper()
	const small, large = 2000, 20
	stop := d.StartSending(t, brokertest.SendSpec{Topic: "sync", BodySize: 200, Threads: 2})
	sent := d.Send(t, brokertest.SendSpec{Topic: "sync", BodySize: int(wire.MiB), Count: large, Threads: 2})
	sent = append(sent, stop()...)
	if left := large + small - len(sent); left > 0 {
		sent = append(sent, d.Send(t, brokertest.SendSpec{Topic: "sync", BodySize: 200, Count: left, Threads: 4})...)
	}
	if n := brokertest.Statuses(sent); n[brokertest.StatusOK] != len(sent) {
		t.Errorf("Fault33_MixedSizes: %d sends are %v, the first bad one %s", len(sent), n, firstBad(sent))
	}
	return sent
}

func firstBad(sent []brokertest.Sent) string {
	for _, s := range sent {
		if s.Status != brokertest.StatusOK {
			return fmt.Sprintf("%s of %d bytes at %d after %v: %s", s.Status, s.BodySize, s.PhyOffset, s.Latency(), s.Err)
		}
	}
	return "none"
}
