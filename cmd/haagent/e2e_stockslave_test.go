//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/wire"
)

// TestStockSlave_FollowsThroughEverything: an unmodified slave broker that knows
// nothing but an observer holds the master's log, over segments and restarts of
// each side, and through a time in which nothing happens, on one connection; it
// gets topics, groups and the positions of consumers and of delays; and when the
// master broker is gone, and then its agent, clients of the observer read on.
func TestStockSlave_FollowsThroughEverything(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		n := newAnnex(t, v)
		sent := map[string][]brokertest.Sent{}
		send := func(topic string, count, size int) {
			t.Helper()
			got := n.driver.Send(t, brokertest.SendSpec{Topic: topic, Count: count, BodySize: size})
			if stored(got) < count/2 { // on a busy machine some sends take too long
				t.Fatalf("sends are %v, the first bad one %s", brokertest.Statuses(got), firstBad(got))
			}
			sent[topic] = append(sent[topic], got...)
		}
		send("orders", 200, 8<<10) // more than a segment: a new slave gets it all
		n.driver.Consume(t, "billing", "orders", 60)
		n.driver.CommitOffsets(t, "audit", "orders", map[int]int64{0: 4, 2: 7})
		delayed := n.driver.Send(t, brokertest.SendSpec{Kind: brokertest.Delayed, Topic: "later", Count: 20})
		n.startOwnMaster()
		n.startObserver()
		n.slave = n.startSlaveBroker(nil)
		n.equal()
		n.restarts(send)
		q := n.watchQuiet()
		n.driver.PullN(t, "later", stored(delayed)) // all are delivered, and the positions of delays moved on
		n.configArrived(map[string][]string{"topics.json": {"orders", "rolls", "later"}, "subscriptionGroup.json": {"billing", "audit"},
			"consumerOffset.json": {"orders@billing", "orders@audit"}, "delayOffset.json": {"1"}})
		q.hold(either(25*time.Second, 2*time.Minute))

		n.broker.Kill()
		sent["later"] = delayed
		n.readOn(sent, 60)
		n.master.kill()
		reader := brokertest.StartDriver(t, v, n.observed)
		same(t, "with the agent gone too", brokertest.Diff(sent["rolls"], reader.PullN(t, "rolls", stored(sent["rolls"]))))
	})
}

// stored counts the messages that a broker says it has.
func stored(sent []brokertest.Sent) (n int) {
	for _, s := range sent {
		if s.Stored() {
			n++
		}
	}
	return n
}

// restarts ends and starts each of the four, with something sent meanwhile.
func (n *annex) restarts(send func(topic string, count, size int)) {
	t := n.t
	send("rolls", 400, 8<<10) // over three segments
	n.equal()

	n.master.kill()
	send("rolls", 100, 8<<10)
	n.startOwnMaster()
	began := time.Now()
	n.equal()
	t.Logf("the master's agent was killed: level %v after its start", time.Since(began))

	n.broker.Stop()
	n.broker.Restart(t)
	send("rolls", 100, 8<<10)
	_, conn := n.equal()

	n.observer.kill()
	send("rolls", 20, 8<<10)
	if _, now := n.equal(); now != conn {
		t.Errorf("without its observer the slave came again: from %s, then %s", conn, now)
	}
	n.startObserver()

	n.slave.Stop()
	send("rolls", 100, 8<<10)
	began = time.Now()
	n.slave.Restart(t)
	n.equal()
	t.Logf("the slave was stopped: level %v after its start", time.Since(began))
}

// quietTime is a time in which nothing is sent: the slave has to keep its one
// connection, although both sides drop a peer that is silent for 20 s.
type quietTime struct {
	*annex
	began time.Time
	end   wire.PhyOffset // of the log
	conn  string         // the slave's
	lines []string       // that the slave had logged about its master
}

// watchQuiet begins a quiet time.
func (n *annex) watchQuiet() *quietTime {
	n.t.Helper()
	q := &quietTime{annex: n, lines: haLines(n.slave.Log()), began: time.Now()}
	q.end, q.conn = n.equal()
	return q
}

// hold goes on until the quiet time has lasted for d, and longer than the slave
// keeps a silent connection.
func (q *quietTime) hold(d time.Duration) {
	t := q.t
	t.Helper()
	q.end = max(q.end, brokerEnd(t, q.broker)) // delayed messages may have been delivered
	for first := true; first || time.Since(q.began) < d; first = false {
		hold(t, time.Second)
		s := q.master.status()
		if row, ok := stockRow(s); !ok || row.Addr != q.conn || row.Acked != q.end {
			t.Fatalf("after %v of quiet the slave is %+v; it had acked %d on %s", time.Since(q.began), s.Replicas, q.end, q.conn)
		}
	}
	if now := haLines(q.slave.Log()); len(now) != len(q.lines) {
		t.Errorf("the slave logged in quiet: %q", now[len(q.lines):])
	}
	t.Logf("one connection, %s, through %v of quiet", q.conn, time.Since(q.began).Round(time.Second))
}

// haLines are the lines about troubles with its master in a slave's log.
func haLines(log string) (lines []string) {
	for line := range strings.Lines(log) {
		for _, word := range []string{"processReadEvent", "housekeeping", "closeMaster", "close connection", "connect to master", "not equal the max phy", "reportSlaveMaxOffset"} {
			if strings.Contains(line, word) {
				lines = append(lines, line)
				break
			}
		}
	}
	return lines
}

// readOn reads everything as clients do that know the observer alone, while the
// master broker is down. Group billing goes on behind what it had consumed.
func (n *annex) readOn(sent map[string][]brokertest.Sent, consumed int) {
	t := n.t
	t.Helper()
	if all := listed(t, n.observed); strings.Contains(all, n.broker.Addr()) || !strings.Contains(all, n.slave.Addr()) {
		t.Errorf("the observer lists %s", all)
	}
	reader := brokertest.StartDriver(t, n.version, n.observed)
	for topic, want := range sent {
		same(t, topic+" from the slave", brokertest.Diff(want, reader.PullN(t, topic, stored(want))))
	}
	left := stored(sent["orders"]) - consumed
	if got := reader.Consume(t, "billing", "orders", left); len(got) != left {
		t.Errorf("the group goes on with %d messages, want the %d that it had not consumed", len(got), left)
	}
	if got := reader.GroupOffsets(t, "audit", "orders"); got[0] != 4 || got[2] != 7 {
		t.Errorf("positions of audit are %v", got)
	}
	if got := reader.Send(t, brokertest.SendSpec{Topic: "orders", TimeoutMs: 3000}); got[0].Status != brokertest.StatusError {
		t.Errorf("a message was sent through the observer: %+v", got[0])
	}
}
