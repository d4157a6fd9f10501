package brokertest

import (
	"testing"
	"time"
)

// TestServes_EveryKind sends each kind of message to a real broker and reads it back.
func TestQuick(t *testing.T) {
	ForEach(t, func(t *testing.T, v Version) {
		ns := StartNameServer(t, v)
		t.Log(time.Now().Format("05.000"), "ns")
		b := StartBroker(t, BrokerOptions{Version: v, NameServer: ns.Addr})
		t.Log(time.Now().Format("05.000"), "broker")
		d := StartDriver(t, v, ns.Addr)
		t.Log(time.Now().Format("05.000"), "driver")
		sent := d.Send(t, SendSpec{Topic: "plain", Count: 500, Threads: 4})
		t.Log("sent", Statuses(sent), sent[0].Err)
		for _, line := range Diff(sent, d.PullAll(t, "plain")) {
			t.Error(line)
		}
		t.Log(time.Now().Format("05.000"), "pulled")
		b.Kill()
		b.Restart(t)
		t.Log(time.Now().Format("05.000"), "restarted")
		for _, line := range Diff(sent, d.PullN(t, "plain", 500)) {
			t.Error(line)
		}
		b.Stop()
		t.Log(time.Now().Format("05.000"), "stopped")
	})
}
