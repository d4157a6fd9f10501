package packaging_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
)

// TestDocuments_LeadFromABrokerToAFailover plays docs/topologies.md and then
// docs/failover.md word for word, on machines with the package installed, while a
// producer writes down what it was told SEND_OK for.
func TestDocuments_LeadFromABrokerToAFailover(t *testing.T) {
	if !runApart(t) {
		return
	}
	versions := brokertest.Versions()
	w := newTown(t, versions[len(versions)-1])
	older, newer := packages(t, "1.0.0"), packages(t, "1.0.1")
	w.install(older, "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8")

	w.play("topologies.md", "")
	d := brokertest.StartDriver(t, w.version, "10.0.0.9:9876")
	d.CreateTopic(t, "orders", 4)
	sent := d.Send(t, brokertest.SendSpec{Topic: "orders", Count: 2000, Threads: 4})
	w.play("topologies.md", "## A replica of a broker that has no agent")
	w.play("topologies.md", "## An agent beside the broker")
	w.play("topologies.md", "## Producers that wait for replicas")
	w.startBroker(w.at["10.0.0.5"], "/etc/rocketmq/broker.conf")
	sent = append(sent, w.sendOK(d)...)
	w.play("topologies.md", "## A slave broker of RocketMQ")
	w.waitReplica("10.0.0.8")

	// An upgrade of every machine under load loses no message that was confirmed.
	stop := d.StartSending(t, brokertest.SendSpec{Topic: "orders", BodySize: 300, Threads: 4, Rate: 200})
	w.install(newer, "10.0.0.7", "10.0.0.5", "10.0.0.6", "10.0.0.8")
	sent = append(sent, w.sendOK(d)...)
	for _, host := range []string{"10.0.0.5", "10.0.0.6", "10.0.0.7"} {
		if got := w.at[host].run("haagent version; systemctl is-active haagent"); !strings.Contains(got, "1.0.1") {
			t.Errorf("%s runs %s", host, got)
		}
	}

	// The machine of the broker goes away under load.
	w.brokers["10.0.0.5"]()
	w.at["10.0.0.5"].run("kill -9 $(cat " + servicesDir + "/haagent.pid)")
	sent = append(sent, stop()...)
	w.playFailover()
	sent = append(sent, w.sendOK(d)...)
	ok := confirmed(sent)
	if missing := lost(ok, d.PullN(t, "orders", len(ok))); len(missing) > 0 {
		t.Errorf("of %d confirmed messages the promoted broker lacks %d: %v", len(ok), len(missing), missing[:min(len(missing), 5)])
	}
	t.Logf("%d messages were confirmed, of %d", len(ok), len(sent))
	if w.played < 50 {
		t.Errorf("%d commands and files were played: are the documents still read?", w.played)
	}
}

// playFailover plays the runbook up to the old master's return as a replica.
func (w *town) playFailover() {
	w.t.Helper()
	for _, heading := range []string{
		"## 1. Make sure that it is gone", "## 2. Choose the replica", "## 3. Promote it",
		"## 4. Start the broker, and the agent beside it", "## 5. Make the old master a replica",
	} {
		w.play("failover.md", heading)
	}
}

// sendOK sends until a producer is told SEND_OK by a broker that waits for
// replicas, and returns all that was sent.
func (w *town) sendOK(d *brokertest.Driver) []brokertest.Sent {
	w.t.Helper()
	var sent []brokertest.Sent
	waitFor(w.t, "SEND_OK", func() (string, bool) {
		now := d.Send(w.t, brokertest.SendSpec{Topic: "orders", Count: 8, Threads: 2})
		sent = append(sent, now...)
		n := brokertest.Statuses(now)
		return fmt.Sprint(n, now[0].Err), n[brokertest.StatusOK] == len(now)
	})
	return sent
}

// waitReplica waits until the master's agent says that a node has all.
func (w *town) waitReplica(node string) {
	w.t.Helper()
	waitFor(w.t, node+" among the replicas", func() (string, bool) {
		text := w.at["10.0.0.5"].run("haagent status --json")
		var s control.Status
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return err.Error(), false
		}
		for _, r := range s.Replicas {
			if r.Node == node && r.LagBytes == 0 && r.Acked == s.Offsets.Verified {
				return "", true
			}
		}
		return text, false
	})
}

// confirmed returns the messages whose producers were told SEND_OK.
func confirmed(sent []brokertest.Sent) []brokertest.Sent {
	return slices.DeleteFunc(slices.Clone(sent), func(s brokertest.Sent) bool { return s.Status != brokertest.StatusOK })
}

// lost returns what of the messages was not read, or with another body.
func lost(sent []brokertest.Sent, got []brokertest.Message) []string {
	bodies := map[string]string{}
	for _, m := range got {
		bodies[m.Keys] = m.BodySHA256
	}
	var missing []string
	for _, s := range sent {
		if bodies[s.Key] != s.BodySHA256 {
			missing = append(missing, fmt.Sprintf("%s at %d", s.Key, s.PhyOffset))
		}
	}
	return missing
}
