//go:build linux

package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// mixedLoad is some of every kind of message, over several segments of 1 MiB.
func mixedLoad() []brokertest.SendSpec {
	return []brokertest.SendSpec{
		{Kind: brokertest.Delayed, Topic: "delayed", Count: 10},
		{Kind: brokertest.Plain, Topic: "plain", Count: 600, BodySize: 3000, Threads: 2},
		{Kind: brokertest.Tagged, Topic: "tagged", Count: 20, Tags: "red"},
		{Kind: brokertest.Keyed, Topic: "keyed", Count: 20, Props: map[string]string{"shop": "north", "blank": "x y=z"}},
		{Kind: brokertest.Transactional, Topic: "transactional", Count: 12, RollbackEvery: 3},
		{Kind: brokertest.Compressed, Topic: "compressed", Count: 30},
		{Kind: brokertest.Batch, Topic: "batch", Count: 50, BatchSize: 8},
		{Kind: brokertest.LongTopic, Topic: "long-", Count: 8},
	}
}

// TestPair_ReplicatesAndFailsOver runs the shortest real set-up: a broker, an agent
// beside it, and two slaves elsewhere that know nothing but a key and one address.
// While producers send everything that producers can, over segment after segment,
// both replicas become equal to the source. Then the broker dies, and another one
// boots on a replica.
func TestPair_ReplicatesAndFailsOver(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		p := startBrokerOf(t, v)
		p.makeKey()
		l := &load{sent: p.driver.Send(t, brokertest.SendSpec{Topic: "load", Count: 20})}
		stop := p.driver.StartSending(t, brokertest.SendSpec{Topic: "load", Rate: 300, BodySize: 2000, Threads: 2})
		p.startAgents()
		began := time.Now()
		for _, spec := range mixedLoad() {
			l.sent = append(l.sent, p.driver.Send(t, spec)...)
		}
		p.driver.CommitOffsets(t, "early", "plain", map[int]int64{0: 4, 2: 7})
		hold(t, either(3*time.Second, 30*time.Second)-time.Since(began))
		l.sent = append(l.sent, stop()...)
		mostlyOK(t, l.sent)
		l.pulled = pullTopics(t, p.driver, "", l.sent) // waits for the delayed and transactional ones
		p.driver.CommitOffsets(t, "late", "plain", latePositions)

		checkEqual(t, p)
		waitFor(t, "the broker to write the positions", func() (string, bool) {
			text := strings.Join(strings.Fields(string(mustRead(t, p.broker.Dir(), "config", "consumerOffset.json"))), "")
			return text, strings.Contains(text, `"plain@late":{0:5,1:6,2:7,3:8}`)
		})
		for _, s := range p.slaves {
			checkSameConfig(t, p.broker, s)
		}
		p.broker.Kill()
		checkFailover(t, p, l)
	})
}

// load is what a broker has taken, and what it served then.
type load struct {
	sent   []brokertest.Sent
	pulled map[string][]brokertest.Message
}

// latePositions are those of group late on topic plain.
var latePositions = map[int]int64{0: 5, 1: 6, 2: 7, 3: 8}

// mostlyOK fails the test unless nearly all sends were stored. A machine with too
// many brokers misses one now and then.
func mostlyOK(t *testing.T, sent []brokertest.Sent) {
	t.Helper()
	if n := brokertest.Statuses(sent)[brokertest.StatusOK]; n < len(sent)*98/100 {
		t.Fatalf("sends are %v, the first bad one %s", brokertest.Statuses(sent), firstBad(sent))
	}
}

// checkFailover is the drill: the broker has died, one replica is promoted and a
// broker boots on it, with an agent of its own. The other slave follows the new
// master by itself; the old one, which was not told, serves and acks nothing.
func checkFailover(t *testing.T, p *pair, l *load) {
	t.Helper()
	heir, left := p.slaves[0], p.slaves[1]
	waitFor(t, "equal replicas", func() (string, bool) {
		a, b := heir.status().Offsets, left.status().Offsets
		return fmt.Sprintf("%+v, %+v", a, b), a.Verified == b.Verified
	})
	d, b := checkHeir(t, p, heir, p.broker.Dir(), l)
	next := p.startMaster(heir.dir, "m2", p.ring.host(), "--broker", b.Addr(), "--join", p.gossip(p.host))
	p.master.waitCode(state.SplitBrain, "stale_epoch")
	for _, a := range []control.WaitAnswer{p.master.now(1, time.Second), p.master.wait(control.WaitRequest{Offset: 0, Acks: 1, Timeout: time.Second})} {
		if a.Result == acks.PutOK {
			t.Errorf("the old master acks: %+v", a)
		}
	}
	left.waitStatus("the new master", func(s control.Status) bool {
		return s.State == state.Streaming && s.Source.Node == "m2"
	})
	after := d.Send(t, brokertest.SendSpec{Topic: "after", Count: 100, BodySize: 3000})
	mostlyOK(t, after)
	if got := next.now(1, patience); got.Result != acks.PutOK {
		t.Errorf("the new master says %+v", got)
	}
	end := left.caughtUp(b)
	if got := verifySame(t, b.Dir(), left.dir); got < end {
		t.Errorf("identical up to %d of %d", got, end)
	}
	checkSameConfig(t, b, left)
	if n := len(p.master.status().Replicas); n != 0 {
		t.Errorf("the old master has %d replicas", n)
	}
	if long() {
		b.Kill()
		l.sent = append(l.sent, after...)
		d, b = checkHeir(t, p, left, heir.dir, l)
	}
	checkContinues(t, d, b, "plain")
}

// checkHeir promotes a replica of source and boots a broker on it, which has
// everything.
func checkHeir(t *testing.T, p *pair, heir *haagent, source string, l *load) (*brokertest.Driver, *brokertest.Broker) {
	t.Helper()
	end := heir.promote()
	if got := verifySame(t, source, heir.dir); got != end {
		t.Errorf("identical up to %d, promised %d", got, end)
	}
	checkBootContract(t, heir.dir)
	d, b := boot(t, p.version, p.ns, heir.dir, wire.MiB)
	checkServed(t, d, b, l.sent, end)
	for topic, want := range l.pulled {
		same(t, topic, brokertest.DiffMessages(want, d.PullFrom(t, b.Addr(), topic, len(want))))
	}
	for group, want := range map[string]map[int]int64{"early": {0: 4, 2: 7}, "late": latePositions} {
		got := d.GroupOffsetsFrom(t, b.Addr(), group, "plain")
		maps.DeleteFunc(got, func(_ int, offset int64) bool { return offset == 0 }) // what 4.x says of a queue without a position
		if !maps.Equal(got, want) {
			t.Errorf("positions of %s are %v, committed %v", group, got, want)
		}
	}
	return d, b
}

// checkEqual waits until all replicas end where the broker does, and holds every
// byte against the broker's.
func checkEqual(t *testing.T, p *pair) {
	t.Helper()
	waitFor(t, "a log that rests", func() (string, bool) {
		end := p.caughtUp()
		if answer := p.master.now(len(p.slaves), patience); answer.Result != acks.PutOK {
			t.Fatalf("wait says %+v", answer)
		}
		for _, s := range p.slaves {
			if got := verifySame(t, p.broker.Dir(), s.dir); got < end {
				t.Fatalf("%s: identical up to %d of %d", s.dir, got, end)
			}
		}
		now := brokerEnd(t, p.broker)
		return now.String(), now == end
	})
}
