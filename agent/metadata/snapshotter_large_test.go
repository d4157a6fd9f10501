package metadata

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/haagent/haagent/wire"
)

// manyTopics is a topics.json of about 20 MB.
func manyTopics(version int) []byte {
	const entry = "\n\t\t\"%TOPIC\":{\n\t\t\t\"attributes\":{\"message.type\":\"NORMAL\",\"padding\":\"........................................................................................................................................................................\"}," +
		"\n\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n\t\t\t\"readQueueNums\":8,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"%TOPIC\",\n\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":8\n\t\t}"
	b := fmt.Appendf(nil, "{\n\t\"dataVersion\":{\n\t\t\"counter\":%d,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":%d\n\t},\n\t\"topicConfigTable\":{", version, 1_700_000_000_000+version)
	b = slices.Grow(b, 50_000*(len(entry)+20))
	for i := range 50_000 {
		if i > 0 {
			b = append(b, ',')
		}
		before, rest, _ := bytes.Cut([]byte(entry), []byte("%TOPIC"))
		middle, after, _ := bytes.Cut(rest, []byte("%TOPIC"))
		for _, part := range [][]byte{before, strconv.AppendInt([]byte("topic-"), int64(i), 10), middle, strconv.AppendInt([]byte("topic-"), int64(i), 10), after} {
			b = append(b, part...)
		}
	}
	return append(b, "\n\t}\n}"...)
}

// putMany writes a version of it, and keeps nothing but its size and hash.
func putMany(t *testing.T, dir string, version int) (wire.ByteSize, Hash) {
	t.Helper()
	b := manyTopics(version)
	if err := os.WriteFile(filepath.Join(dir, "config", "topics.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return wire.ByteSize(len(b)), hashed(b)
}

// inUse is what is reachable.
func inUse() wire.ByteSize {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return wire.ByteSize(m.HeapAlloc)
}

// 50,000 topics that change all the time: the table arrives whole, what it costs
// in memory does not grow with the number of changes, and no other file is sent.
func TestPair_LargeTableThatChanges_Fault56(t *testing.T) {
	p := newPair(t, SnapshotterOptions{})
	written(t, p.src, "consumerOffset.json", offsets(1))
	written(t, p.src, "subscriptionGroup.json", []byte("{}"))
	var out Outbox
	var in Inbox
	before := inUse()
	var size, first wire.ByteSize
	const versions = 3
	for v := 1; v <= versions; v++ {
		var hash Hash
		size, hash = putMany(t, p.src, v)
		if err := p.bring(&out, &in, taken(t, p.s)); err != nil {
			t.Fatal(err)
		}
		have, _, err := hashOf(p.i.disk.config(), "topics.json")
		if err != nil || have != hash {
			t.Fatalf("version %d did not arrive: %v", v, err)
		}
		used := inUse() - before
		if v == 1 {
			first = used
		}
		// The snapshot of the source and that of the connection hold it once each.
		if used > 3*size || used > first+size/2 {
			t.Fatalf("after version %d %v are in use for a table of %v, after the first %v", v, used, size, first)
		}
	}
	if size < 20_000_000 {
		t.Errorf("the table has %v", size)
	}
	sent, _ := p.traffic()
	if sent["topics.json"] != versions*size || sent["consumerOffset.json"] != wire.ByteSize(len(offsets(1))) || sent["subscriptionGroup.json"] != 2 {
		t.Errorf("sent %v", sent)
	}
	// Snapshots that only confirm do not allocate another table.
	total := allocated()
	for range 5 {
		if err := p.bring(&out, &in, taken(t, p.s)); err != nil {
			t.Fatal(err)
		}
	}
	if n := allocated() - total; n > size/2 {
		t.Errorf("five confirmations allocate %v", n)
	}
	if again, _ := p.traffic(); again["topics.json"] != sent["topics.json"] {
		t.Errorf("sent again: %v", again)
	}
}

// All at full speed, on real clocks: three brokers' ways of writing, hints, and a
// reader on the replica.
func TestPair_FullSpeed_Faults44And48(t *testing.T) {
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, SnapshotterOptions{Interval: 20 * time.Millisecond, Debounce: time.Millisecond, Read: ReadOptions{Pause: time.Millisecond}})
			size := func(v int) int { return 10 + v%7 }
			p.start(t)
			r := &reader{dir: p.rep, name: "topics.json", version: topicsVersion(size)}
			stop, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- r.follow(time.Millisecond, stop) }()
			const versions = 100
			for v := 1; v <= versions; v++ {
				if err := p.write("topics.json", topics(v, size(v)), style, 0); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			waitFor(ctx, t, p, topics(versions, size(versions)))
			close(stop)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// waitFor waits until the replica's topics are want.
func waitFor(ctx context.Context, t *testing.T, p *pair, want []byte) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for content(t, p.rep, "topics.json") != string(want) {
		select {
		case <-ctx.Done():
			t.Fatalf("the last version did not arrive: %+v", p.s.Status())
		case <-tick.C:
		}
	}
}
