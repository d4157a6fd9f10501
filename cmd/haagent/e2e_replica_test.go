//go:build linux

package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// bootCase is one way to fill a master.
type bootCase struct {
	segment wire.ByteSize
	kinds   []brokertest.SendSpec
	// segments is how many of them must be full before the replica is begun.
	segments int
}

// TestBootableReplica is the promise of the product: a replica begun on an empty
// directory while the master takes messages, and handed over after the master
// was killed in the middle of sends, boots under an unmodified broker and serves
// every message up to the promised end, with the positions of the consumers.
func TestBootableReplica(t *testing.T) {
	t.Parallel() // most of the time is waiting
	small := bootCase{segment: wire.MiB, segments: 5, kinds: []brokertest.SendSpec{
		{Kind: brokertest.Delayed, Topic: "delayed", Count: 10},
		{Kind: brokertest.Plain, Topic: "plain", Count: 1600, BodySize: 3000, Threads: 4},
		{Kind: brokertest.Tagged, Topic: "tagged", Count: 20, Tags: "red"},
		{Kind: brokertest.Keyed, Topic: "keyed", Count: 20, Props: map[string]string{"shop": "north", "blank": "x y=z"}},
		{Kind: brokertest.Transactional, Topic: "transactional", Count: 12, RollbackEvery: 3},
		{Kind: brokertest.Compressed, Topic: "compressed", Count: 30},
		{Kind: brokertest.Batch, Topic: "batch", Count: 50, BatchSize: 8},
		{Kind: brokertest.LongTopic, Topic: "long-", Count: 8},
	}}
	big := bootCase{segment: 16 * wire.MiB, segments: 1, kinds: []brokertest.SendSpec{
		{Kind: brokertest.Plain, Topic: "plain", Count: 200, Threads: 2},
		{Kind: brokertest.Big4MiB, Topic: "big", Count: 5},
	}}
	versions := brokertest.Versions()
	for i, v := range versions {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			ns := brokertest.StartNameServer(t, v)
			checkBootable(t, v, ns, small)
		})
		if i != len(versions)-1 {
			continue
		}
		t.Run(string(v)+"-big", func(t *testing.T) {
			t.Parallel()
			if v != brokertest.V452 && v != brokertest.V514 { // their clients connect to no IPv6 address
				big.kinds = append(big.kinds, brokertest.SendSpec{Kind: brokertest.IPv6, Topic: "ipv6", Count: 8})
			}
			ns := brokertest.StartNameServer(t, v)
			checkBootable(t, v, ns, big)
		})
	}
}

func checkBootable(t *testing.T, v brokertest.Version, ns *brokertest.NameServer, c bootCase) {
	master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, SegmentSize: c.segment})
	d := brokertest.StartDriver(t, v, ns.Addr)
	var sent []brokertest.Sent
	for _, spec := range c.kinds {
		sent = append(sent, d.Send(t, spec)...)
	}
	if n := brokertest.Statuses(sent)[brokertest.StatusOK]; n != len(sent) {
		t.Fatalf("sends to the master are %v", brokertest.Statuses(sent))
	}
	if full := int(brokerEnd(t, master).SegmentBase(c.segment) / wire.PhyOffset(c.segment)); full < c.segments {
		t.Fatalf("the master has %d full segments, not %d", full, c.segments)
	}
	before := pullTopics(t, d, "", sent) // waits for the delayed and transactional ones
	d.CommitOffsets(t, "early", "plain", map[int]int64{0: 4, 2: 7})

	live := brokertest.SendSpec{Topic: "live", Rate: 200, Threads: 2}
	sent = append(sent, d.Send(t, brokertest.SendSpec{Topic: "live"})...) // creates the topic
	stop := d.StartSending(t, live)
	dir := filepath.Join(t.TempDir(), "replica") // missing
	agent := startAgent(t, dir, "--master", master.Addr())
	agent.waitState(state.Streaming)

	// What is committed last shows that all before it was replicated too: a
	// snapshot is taken whole.
	d.CommitOffsets(t, "late", "plain", map[int]int64{0: 5, 1: 6, 2: 7, 3: 8})
	positions := filepath.Join(dir, "config", "consumerOffset.json")
	waitFor(t, "the committed positions", func() (string, bool) {
		b, err := os.ReadFile(positions)
		if err != nil {
			return err.Error(), false
		}
		return string(b), bytes.Contains(b, []byte(`"plain@late":{0:5,1:6,2:7,3:8}`))
	})
	agent.waitStatus("messages sent while replicating", func(s control.Status) bool {
		return s.State == state.Streaming && s.Messages > int64(len(sent))+50
	})
	master.Kill()
	acked := agent.status().Offsets.Acked
	sent = append(sent, stop()...)
	end := agent.promote()
	if end < acked {
		t.Fatalf("promised up to %d, but %d was acked", end, acked)
	}
	if got := verifySame(t, master.Dir(), dir); got != end {
		t.Errorf("identical up to %d, promised %d", got, end)
	}
	checkBootContract(t, dir)

	d2, heir := boot(t, v, ns, dir, c.segment)
	checkServed(t, d2, heir, sent, end)
	for topic, want := range before {
		same(t, topic, brokertest.DiffMessages(want, d2.PullFrom(t, heir.Addr(), topic, len(want))))
	}
	for group, want := range map[string]map[int]int64{"early": {0: 4, 2: 7}, "late": {0: 5, 1: 6, 2: 7, 3: 8}} {
		got := d2.GroupOffsetsFrom(t, heir.Addr(), group, "plain")
		maps.DeleteFunc(got, func(_ int, offset int64) bool { return offset == 0 }) // what 4.x says of a queue without a position
		if !maps.Equal(got, want) {
			t.Errorf("positions of %s are %v, committed %v", group, got, want)
		}
	}
	checkContinues(t, d2, heir, "plain")
}

// boot starts an unmodified broker on a replica that was handed over.
func boot(t *testing.T, v brokertest.Version, ns *brokertest.NameServer, dir string, segment wire.ByteSize) (*brokertest.Driver, *brokertest.Broker) {
	t.Helper()
	heir := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: ns.Addr, Dir: dir, SegmentSize: segment})
	// A new client: the one before remembers the dead master for a while.
	return brokertest.StartDriver(t, v, ns.Addr), heir
}

// checkBootContract looks at what a broker needs to find at its boot.
func checkBootContract(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "abort")); err != nil {
		t.Errorf("brokers of 5.1 serve nothing from it: %v", err)
	}
	for _, name := range []string{"checkpoint", "consumequeue", "index"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s in the replica: a broker would believe it", name)
		}
	}
}

// pullTopics reads what a broker serves of the topics of what was sent.
func pullTopics(t *testing.T, d *brokertest.Driver, addr string, sent []brokertest.Sent) map[string][]brokertest.Message {
	t.Helper()
	kept := make(map[string]int)
	for _, s := range sent {
		if s.Stored() && !s.RolledBack {
			kept[s.Topic]++
		}
	}
	got := make(map[string][]brokertest.Message)
	for topic, n := range kept {
		got[topic] = d.PullFrom(t, addr, topic, n)
	}
	return got
}

// checkServed compares what was sent with what a broker serves that booted on a
// replica which ends at end. The end is a message boundary, so every message
// that begins below it must be there; what lies behind was never acknowledged.
func checkServed(t *testing.T, d *brokertest.Driver, heir *brokertest.Broker, sent []brokertest.Sent, end wire.PhyOffset) {
	t.Helper()
	sent = slices.Clone(sent)
	for i, s := range sent {
		if s.PhyOffset >= end {
			sent[i].Status = brokertest.StatusError
		}
	}
	byTopic := make(map[string][]brokertest.Sent)
	for _, s := range sent {
		byTopic[s.Topic] = append(byTopic[s.Topic], s)
	}
	for topic, got := range pullTopics(t, d, heir.Addr(), sent) {
		same(t, topic, brokertest.Diff(byTopic[topic], got))
	}
}

// checkContinues sends to a broker that booted on a replica: each queue goes on
// where the replica ended.
func checkContinues(t *testing.T, d *brokertest.Driver, heir *brokertest.Broker, topic string) {
	t.Helper()
	next := make(map[int]int64)
	for _, m := range d.PullFrom(t, heir.Addr(), topic, 1) {
		next[m.QueueID] = max(next[m.QueueID], m.QueueOffset+1)
	}
	for _, s := range d.Send(t, brokertest.SendSpec{Topic: topic, Count: 12}) {
		if s.Status != brokertest.StatusOK || s.QueueOffset != next[s.QueueID] {
			t.Errorf("a new message is %s at %d/%d, not at %d: %s", s.Status, s.QueueID, s.QueueOffset, next[s.QueueID], strings.TrimSpace(s.Err))
		}
		next[s.QueueID] = s.QueueOffset + 1
	}
}
