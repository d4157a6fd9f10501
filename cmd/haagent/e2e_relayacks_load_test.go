//go:build linux

package main

import (
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
)

// TestRelayAcks_LargeMessagesAmongSmallOnes: 16 producers, one of which sends
// messages of 1 MiB, and replicas of both kinds: nobody is told anything but
// SEND_OK. Then the broker dies under load, and each replica has all of it.
func TestRelayAcks_LargeMessagesAmongSmallOnes(t *testing.T) {
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		const mib = 1 << 20
		r := newRelayed(t, v, nil)
		r.startRelay(2)
		r.refused("before there are replicas") // an empty log is acked by nobody
		memory, disk := r.add("memory"), r.add("disk")
		memory.reported()
		disk.reported()
		r.connected(true)
		for range 3 { // what a JVM does for the first time takes long
			r.driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 200, Threads: 16})
		}

		small := r.driver.StartSending(t, brokertest.SendSpec{Topic: "orders", BodySize: 512, Threads: 15, Rate: 300})
		large := r.driver.StartSending(t, brokertest.SendSpec{Topic: "orders", BodySize: mib, Threads: 1, Rate: 2})
		hold(t, either(20*time.Second, 5*time.Minute))
		all := append(small(), large()...)
		var slowest time.Duration
		for _, s := range all {
			if slowest = max(slowest, s.Latency()); s.Status != brokertest.StatusOK {
				t.Errorf("%d bytes: %s %s after %s", s.BodySize, s.Status, s.Err, s.Latency())
			}
		}
		t.Logf("%d messages were SEND_OK, the slowest after %s", len(all), slowest)

		last := r.produce(16)
		r.await(last, 100, brokertest.StatusOK, time.Now())
		r.broker.Kill()
		sent := last.collect()
		memory.holds(sent)
		disk.holds(sent)
	})
}
