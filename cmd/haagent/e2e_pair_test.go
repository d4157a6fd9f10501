//go:build linux

package main

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
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

// TestPair_Replicates runs the shortest real set-up: a broker, an agent beside
// it, and two slaves elsewhere that know nothing but a key and one address. While
// producers send everything that producers can, over segment after segment, both
// replicas become equal to the source, and stay so; a broker boots on either.
func TestPair_Replicates(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		p := startBrokerOf(t, v)
		p.makeKey()
		sent := p.driver.Send(t, brokertest.SendSpec{Topic: "load", Count: 20})
		stop := p.driver.StartSending(t, brokertest.SendSpec{Topic: "load", Rate: 300, BodySize: 2000, Threads: 2})
		p.startAgents()
		loaded := time.Now()
		for _, spec := range mixedLoad() {
			sent = append(sent, p.driver.Send(t, spec)...)
		}
		p.driver.CommitOffsets(t, "early", "plain", map[int]int64{0: 4, 2: 7})
		hold(t, either(3*time.Second, 30*time.Second)-time.Since(loaded))
		sent = append(sent, stop()...)
		if n := brokertest.Statuses(sent)[brokertest.StatusOK]; n != len(sent) {
			t.Fatalf("sends are %v, the first bad one %s", brokertest.Statuses(sent), firstBad(sent))
		}
		before := pullTopics(t, p.driver, "", sent) // waits for the delayed and transactional ones
		positions := map[int]int64{0: 5, 1: 6, 2: 7, 3: 8}
		p.driver.CommitOffsets(t, "late", "plain", positions)

		checkEqual(t, p)
		waitFor(t, "the broker to write the positions", func() (string, bool) {
			text := strings.Join(strings.Fields(string(mustRead(t, p.broker.Dir(), "config", "consumerOffset.json"))), "")
			return text, strings.Contains(text, `"plain@late":{0:5,1:6,2:7,3:8}`)
		})
		for _, s := range p.slaves {
			checkSameConfig(t, p.broker, s)
		}
		p.broker.Kill()
		p.master.term()
		for _, heir := range p.slaves {
			end := heir.promote()
			if got := verifySame(t, p.broker.Dir(), heir.dir); got != end {
				t.Errorf("identical up to %d, promised %d", got, end)
			}
			if heir == p.slaves[1] && !long() {
				stdout, stderr, code := haagentCommand(t, "verify", heir.dir)
				if code != exitOK {
					t.Errorf("verify ended with %d: %s%s", code, stdout, stderr)
				}
				continue
			}
			checkBootContract(t, heir.dir)
			d, b := boot(t, v, p.ns, heir.dir, wire.MiB)
			checkServed(t, d, b, sent, end)
			for topic, want := range before {
				same(t, topic, brokertest.DiffMessages(want, d.PullFrom(t, b.Addr(), topic, len(want))))
			}
			for group, want := range map[string]map[int]int64{"early": {0: 4, 2: 7}, "late": positions} {
				got := d.GroupOffsetsFrom(t, b.Addr(), group, "plain")
				maps.DeleteFunc(got, func(_ int, offset int64) bool { return offset == 0 }) // what 4.x says of a queue without a position
				if !maps.Equal(got, want) {
					t.Errorf("positions of %s are %v, committed %v", group, got, want)
				}
			}
			checkContinues(t, d, b, "plain")
			b.Kill()
		}
	})
}

// checkEqual waits until all replicas end where the broker does, and holds every
// byte against the broker's. No record was copied twice.
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

// TestPair_Waits: what wait answers is what the replicas have, at once.
func TestPair_Waits(t *testing.T) {
	t.Parallel() // most of the time is waiting
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		t.Parallel()
		p := startBrokerOf(t, v)
		p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})
		p.startAgents()
		checkWaitsAfterSends(t, p)
		checkWaitsWithoutSlaves(t, p)
		checkSyncMasterAlone(t, p)
	})
}

// checkWaitsAfterSends: what a producer was told is stored is also what wait
// --now waits for, the only message of an idle broker as well.
func checkWaitsAfterSends(t *testing.T, p *pair) {
	t.Helper()
	var longest time.Duration
	for i := range 50 {
		sent := p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})[0]
		if i%10 == 9 {
			stdout, stderr, code := haagentCommand(t, "wait", "--http", p.master.http, "--now", "--acks", "2", "--timeout", "30s")
			if code != exitOK || stdout != "PUT_OK\n" {
				t.Fatalf("wait %d ended with %d: %s%s", i, code, stdout, stderr)
			}
			continue
		}
		asked := time.Now()
		answer := p.master.now(2, 30*time.Second)
		longest = max(longest, time.Since(asked))
		if answer.Result != acks.PutOK || answer.Offset <= sent.PhyOffset || answer.Acked < answer.Offset {
			t.Fatalf("wait %d after a message at %d: %+v", i, sent.PhyOffset, answer)
		}
		for _, s := range p.slaves {
			if got := s.status().Offsets.Verified; got < answer.Offset {
				t.Fatalf("%s has verified %d of %d that were acked", s.dir, got, answer.Offset)
			}
		}
	}
	t.Logf("the longest wait took %v", longest)
}

// checkWaitsWithoutSlaves takes one slave after the other away.
func checkWaitsWithoutSlaves(t *testing.T, p *pair) {
	t.Helper()
	const short = 300 * time.Millisecond
	a, b := p.slaves[0], p.slaves[1]
	late := func(replicas int) {
		t.Helper()
		p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})
		if got := p.master.now(replicas, short); got.Result != acks.FlushSlaveTimeout || got.ElapsedSeconds < short.Seconds() || got.ElapsedSeconds > 5 {
			t.Errorf("wait for %d of the slaves that are left: %+v", replicas, got)
		}
	}
	a.stop()
	late(2)
	if got := p.master.now(1, 30*time.Second); got.Result != acks.PutOK {
		t.Errorf("the other slave has it: %+v", got)
	}
	a.cont()
	if got := p.master.now(2, 30*time.Second); got.Result != acks.PutOK {
		t.Errorf("both slaves are back: %+v", got)
	}
	a.term()
	late(2)
	b.term()
	p.driver.Send(t, brokertest.SendSpec{Topic: "waits"})
	p.master.waitStatus("no replica", func(s control.Status) bool { return len(s.Replicas) == 0 })
	stdout, stderr, code := haagentCommand(t, "wait", "--dir", p.broker.Dir(), "--now", "--timeout", "1m", "--json")
	if code != exitNoSlave || !strings.Contains(stdout, `"SLAVE_NOT_AVAILABLE"`) {
		t.Errorf("nobody is in reach, and wait ended with %d: %s%s", code, stdout, stderr)
	}
	if got := p.master.now(1, time.Minute); got.Result != acks.SlaveNotAvailable || got.ElapsedSeconds > 1 {
		t.Errorf("nobody is in reach: %+v", got)
	}
	for i, s := range p.slaves {
		p.slaves[i] = p.startSlave(s.dir, slaveNodes[i], p.host)
	}
	p.streaming()
}

// checkSyncMasterAlone: an agent beside a broker must not be taken for its slave.
// Producers of a synchronous master are told that there is none, although two
// replicas have every message.
func checkSyncMasterAlone(t *testing.T, p *pair) {
	t.Helper()
	p.broker.Set("brokerRole", "SYNC_MASTER")
	p.broker.Set("inSyncReplicas", "2") // counts the master; 4.x does not know it
	p.broker.Restart(t)
	waitAnswer(t, p.driver, aloneStatus(p.version)) // until the client has found it again
	for range 4 {
		now := p.driver.Send(t, brokertest.SendSpec{Topic: "sync", Count: 2, Threads: 2})
		if brokertest.Statuses(now)[aloneStatus(p.version)] != len(now) {
			t.Errorf("sends to a synchronous master without slaves are %v: %s", brokertest.Statuses(now), now[0].Err)
		}
		if got := p.master.now(2, 30*time.Second); got.Result != acks.PutOK {
			t.Errorf("two replicas follow: %+v", got)
		}
	}
}
