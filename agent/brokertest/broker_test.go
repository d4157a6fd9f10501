package brokertest

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/wire"
)

// wrong fails the test with the first lines of a Diff.
func wrong(t *testing.T, lines []string) {
	t.Helper()
	for i, line := range lines {
		if i == 10 {
			t.Errorf("and %d more", len(lines)-i)
			return
		}
		t.Error(line)
	}
}

// TestBroker goes through the life of one broker of each version: every kind of
// message, consumer groups, a crash, and what a synchronous master without a
// slave says.
func TestBroker(t *testing.T) {
	ForEach(t, func(t *testing.T, v Version) {
		t.Parallel() // most of the time is waiting
		ns := StartNameServer(t, v)
		b := StartBroker(t, BrokerOptions{Version: v, NameServer: ns.Addr, SegmentSize: 16 * wire.MiB})
		checkReady(t, b)
		d := StartDriver(t, v, ns.Addr)

		var sent []Sent
		for _, spec := range kinds(v) {
			t.Run(string(spec.Kind), func(t *testing.T) {
				sent = append(sent, checkKind(t, d, spec)...)
			})
		}
		six := d
		if v != V452 { // it knows no IPv6
			if v == V514 { // its client connects to no IPv6 address
				six = StartDriver(t, V533, ns.Addr)
			}
			t.Run("ipv6", func(t *testing.T) {
				sent = append(sent, checkKind(t, six, SendSpec{Kind: IPv6, Topic: "ipv6", Count: 8})...)
			})
		}
		t.Run("background", func(t *testing.T) { sent = append(sent, checkBackground(t, d)...) })
		t.Run("groups", func(t *testing.T) { checkGroups(t, d) })
		// Stopping comes first: a broker that is killed loses positions of the last
		// seconds, those in the delay queues too, and delivers again.
		t.Run("stop and restart", func(t *testing.T) {
			b.Stop()
			b.Restart(t)
			checkReady(t, b)
			checkTopics(t, d, sent)
			checkPositions(t, d)
		})
		t.Run("kill and restart", func(t *testing.T) {
			b.Kill()
			if b.Running() {
				t.Fatal("the killed broker runs")
			}
			b.Restart(t)
			checkTopics(t, d, sent)
			checkPositions(t, d)
		})
		if v != V452 {
			t.Run("Fault6_IPv6Hosts", func(t *testing.T) { checkHosts(t, b, six) })
		}
		t.Run("Fault27_NoSlave", func(t *testing.T) { checkNoSlave(t, v, b, d) })
		t.Run("slave", func(t *testing.T) { checkSlave(t, v, ns, b, d) })
	})
}

// checkReady asks a broker once about itself, which must be enough.
func checkReady(t *testing.T, b *Broker) {
	t.Helper()
	answer, err := request(t.Context(), b.dial, runtimeInfo, nil)
	if err != nil || !bytes.Contains(answer, []byte(`"commitLogMaxOffset"`)) {
		t.Errorf("a broker that serves answers %q, %v", answer, err)
	}
}

// kinds lists what to send to a broker of version v.
func kinds(v Version) []SendSpec {
	specs := []SendSpec{
		{Kind: Plain, Topic: "plain", Count: 200, Threads: 4},
		{Kind: Tagged, Topic: "tagged", Count: 20, Tags: "red"},
		{Kind: Keyed, Topic: "keyed", Count: 20, Props: map[string]string{"shop": "north", "empty-not": "x y=z"}},
		{Kind: Delayed, Topic: "delayed", Count: 10},
		{Kind: Transactional, Topic: "transactional", Count: 12, RollbackEvery: 3},
		{Kind: Compressed, Topic: "compressed", Count: 10},
		{Kind: Batch, Topic: "batch", Count: 50, BatchSize: 8},
		{Kind: LongTopic, Topic: "long-", Count: 8},
		{Kind: Big4MiB, Topic: "big", Count: 3},
	}
	if v.Major() >= 5 {
		specs = append(specs, SendSpec{Kind: Timed, Topic: "timed", Count: 5})
	}
	return specs
}

func checkKind(t *testing.T, d *Driver, spec SendSpec) []Sent {
	sent := d.Send(t, spec)
	if n := Statuses(sent)[StatusOK]; n != spec.Count {
		t.Fatalf("%d of %d sends are SEND_OK: %v, %s", n, spec.Count, Statuses(sent), sent[0].Err)
	}
	kept := 0
	for _, s := range sent {
		if s.Latency() <= 0 || s.MsgID == "" || s.OffsetMsgID == "" && s.Placed() {
			t.Errorf("incomplete entry: %+v", s)
		}
		if !s.RolledBack {
			kept++
		}
	}
	got := d.PullN(t, sent[0].Topic, kept)
	wrong(t, Diff(sent, got))
	for _, m := range got {
		if compressed := m.SysFlag&FlagCompressed != 0; compressed != (spec.Kind == Compressed) {
			t.Errorf("compressed is %v for %+v", compressed, m)
		}
		if born6 := m.SysFlag&FlagBornHostV6 != 0; born6 != (spec.Kind == IPv6) || born6 != strings.HasPrefix(m.BornHost, "/[") && born6 != strings.HasPrefix(m.BornHost, "/0:") {
			t.Errorf("born host %s with flags %#x", m.BornHost, m.SysFlag)
		}
	}
	return sent
}

func checkBackground(t *testing.T, d *Driver) []Sent {
	stop := d.StartSending(t, SendSpec{Topic: "background", Rate: 500, Threads: 2})
	d.PullN(t, "background", 50)
	sent := stop()
	if len(sent) < 50 {
		t.Errorf("%d entries for at least 50 messages", len(sent))
	}
	wrong(t, Diff(sent, d.PullAll(t, "background")))
	return sent
}

// checkGroups commits and consumes in topics of its own; checkPositions finds
// the same positions later.
func checkGroups(t *testing.T, d *Driver) {
	d.CreateTopic(t, "positions", 3)
	d.Send(t, SendSpec{Topic: "positions", Count: 30})
	d.CommitOffsets(t, "committed", "positions", map[int]int64{0: 4, 2: 7})
	sent := d.Send(t, SendSpec{Topic: "consumed", Count: 40})
	got := d.Consume(t, "consumers", "consumed", 15)
	got = append(got, d.Consume(t, "consumers", "consumed", 25)...)
	wrong(t, Diff(sent, got))
	checkPositions(t, d)
}

func checkPositions(t *testing.T, d *Driver) {
	got := d.GroupOffsets(t, "committed", "positions")
	if got[0] != 4 || got[2] != 7 || got[1] != 0 {
		t.Errorf("committed positions are %v", got)
	}
	var sum int64
	for offset := range maps.Values(d.GroupOffsets(t, "consumers", "consumed")) {
		sum += offset
	}
	if sum != 40 {
		t.Errorf("the positions after 40 messages are %v", d.GroupOffsets(t, "consumers", "consumed"))
	}
}

// checkTopics compares all that was sent with what the broker serves, topic by topic.
func checkTopics(t *testing.T, d *Driver, sent []Sent) {
	t.Helper()
	byTopic := make(map[string][]Sent)
	for _, s := range sent {
		byTopic[s.Topic] = append(byTopic[s.Topic], s)
	}
	for topic, sent := range byTopic {
		kept := slices.DeleteFunc(slices.Clone(sent), func(s Sent) bool { return s.RolledBack })
		wrong(t, Diff(sent, d.PullN(t, topic, len(kept))))
	}
}

// checkNoSlave is the negative control of every ack test: it shows that the
// broker does wait, and that the client waits long enough to see it (fault 38).
func checkNoSlave(t *testing.T, v Version, b *Broker, d *Driver) {
	b.Kill()
	b.Set("brokerRole", "SYNC_MASTER")
	b.Set("inSyncReplicas", "2")
	b.Restart(t)
	want := StatusNoSlave
	if v.Major() >= 5 {
		want = StatusFlushSlave
	}
	sent := d.Send(t, SendSpec{Topic: "unheard", Count: 2, Threads: 2})
	if n := Statuses(sent); n[want] != 2 {
		t.Errorf("without a slave sends are %v, not %s: %s", n, want, sent[0].Err)
	}
	wrong(t, Diff(sent, d.PullN(t, "unheard", 2)))
}

// checkSlave gives the synchronous master a stock slave: sends are SEND_OK now,
// and the slave serves what the master has.
func checkSlave(t *testing.T, v Version, ns *NameServer, b *Broker, d *Driver) {
	d.CreateTopic(t, "heard", 1)
	// A slave of 5.x copies its master's topics after a minute at the earliest.
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(b.Dir(), "config"))); err != nil {
		t.Fatal(err)
	}
	slave := StartBroker(t, BrokerOptions{
		Version: v, Dir: dir, NameServer: ns.Addr, Role: "SLAVE", MasterHA: b.HAAddr(), SegmentSize: 16 * wire.MiB,
	})
	deadline := time.Now().Add(patience)
	sent := d.Send(t, SendSpec{Topic: "heard"})
	for sent[len(sent)-1].Status != StatusOK {
		if time.Now().After(deadline) {
			t.Fatalf("sends with a slave are %v", Statuses(sent))
		}
		sent = append(sent, d.Send(t, SendSpec{Topic: "heard"})...)
	}
	wrong(t, Diff(sent, d.PullFrom(t, slave.Addr(), "heard", len(sent))))
	wrong(t, DiffMessages(d.PullAll(t, "plain"), d.PullFrom(t, slave.Addr(), "plain", 200)))
	if _, err := TryStartBroker(t, BrokerOptions{Version: v, Dir: dir, SegmentSize: 16 * wire.MiB}); err == nil {
		t.Error("two brokers run on one store")
	}
}

// checkHosts sends over both families to a broker that calls itself ::1, which
// makes the pairs of host flags that the others have not made (fault 6).
func checkHosts(t *testing.T, b *Broker, d *Driver) {
	b.Kill()
	b.Set("brokerIP1", "::1")
	b.Restart(t)
	for _, c := range []struct {
		topic, via string
		want       int
	}{
		{"hosts-by-route", "", FlagBornHostV6 | FlagStoreHostV6},
		{"hosts-6-6", "::1", FlagBornHostV6 | FlagStoreHostV6},
		{"hosts-4-6", "127.0.0.1", FlagStoreHostV6},
	} {
		d.CreateTopic(t, c.topic, 2)
		sent := d.Send(t, SendSpec{Topic: c.topic, Count: 4, Via: c.via})
		got := d.PullN(t, c.topic, 4)
		wrong(t, Diff(sent, got))
		for _, m := range got {
			if flags := m.SysFlag & (FlagBornHostV6 | FlagStoreHostV6); flags != c.want {
				t.Errorf("%s: the host flags are %#x of %+v", c.topic, flags, m)
			}
		}
	}
	b.Set("brokerIP1", "127.0.0.1") // from the next start on
}
