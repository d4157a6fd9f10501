package forge_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

const testSize = 16 * wire.KiB

func open(t testing.TB, o forge.Options) *forge.Writer {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = testSize
	}
	w, err := forge.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Abandon(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func appendRandom(t testing.TB, w *forge.Writer, n int, seed uint64) {
	t.Helper()
	r := newRand(seed)
	for range n {
		want := w.End()
		end, err := w.Append(forge.RandomMessage(r, forge.Variety{V2: true, IPv6: true, Transactions: true}))
		if err != nil {
			t.Fatal(err)
		}
		if end != w.End() || end <= want {
			t.Fatalf("from %d to %d, End is %d", want, end, w.End())
		}
	}
}

// count scans the store and returns the number of its records.
func count(t testing.TB, w *forge.Writer, size wire.ByteSize) int64 {
	t.Helper()
	s, err := commitlog.NewScanner(w.CommitLogDir(), size, wire.NoOffset)
	if err != nil {
		t.Fatal(err)
	}
	for s.Next() {
	}
	if !errors.Is(s.Err(), commitlog.ErrNotYet) || s.Offset() != w.End() || s.Torn() != nil {
		t.Fatalf("scan ended at %d, the log at %d: %v, torn %v", s.Offset(), w.End(), s.Err(), s.Torn())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Records()
}

func exists(t testing.TB, path ...string) bool {
	t.Helper()
	_, err := os.Lstat(filepath.Join(path...))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func TestWriter_KeepsSegmentsAhead(t *testing.T) {
	for _, test := range []struct{ ahead, want int }{{0, 1}, {1, 1}, {2, 2}, {-1, 0}} {
		w := open(t, forge.Options{Ahead: test.ahead})
		for range 5 {
			segs, err := commitlog.List(w.CommitLogDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := commitlog.CheckSegments(segs, testSize); err != nil {
				t.Fatal(err)
			}
			if ahead := segs[len(segs)-1].Base.Sub(w.End().SegmentBase(testSize)) / testSize; int(ahead) != test.want {
				t.Errorf("Ahead %d: %d segments ahead", test.ahead, ahead)
			}
			if err := w.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWriter_GoesOnWhereItStopped(t *testing.T) {
	dir := t.TempDir()
	var n int64
	for round := range 6 {
		w := open(t, forge.Options{Dir: dir, Start: 5 * wire.PhyOffset(testSize), Garbage: newRand(7), Running: true})
		if got := count(t, w, testSize); got != n {
			t.Fatalf("round %d: %d records, want %d", round, got, n)
		}
		appendRandom(t, w, 25, uint64(round))
		n += 25
		if round == 3 {
			for range 2 {
				if _, err := w.DropOldest(); err != nil {
					t.Fatal(err)
				}
			}
			n = count(t, w, testSize)
		}
		end := w.Close
		if round%2 == 1 {
			end = w.Abandon
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
}

// Queue offsets go on without repeat or gap, over a restart too; halves and
// rollbacks take none.
func TestFault63_QueueOffsetsGoOn(t *testing.T) {
	dir := t.TempDir()
	message := func(queue int32, sysFlag int32) forge.Message {
		return forge.Message{Topic: "t", QueueID: queue, QueueOffset: forge.NextQueueOffset, SysFlag: sysFlag}
	}
	for range 3 {
		w := open(t, forge.Options{Dir: dir})
		for range 2 {
			for _, m := range []forge.Message{
				message(0, 0), message(1, 0), message(0, commitlog.FlagTransactionPrepared),
				message(0, commitlog.FlagTransactionCommit), message(0, commitlog.FlagTransactionRollback),
			} {
				if _, err := w.Append(m); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := commitlog.NewScanner(filepath.Join(dir, "commitlog"), testSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	next := map[int32]int64{}
	for s.Next() {
		r := s.Record()
		switch r.SysFlag & commitlog.FlagTransactionMask {
		case commitlog.FlagTransactionPrepared, commitlog.FlagTransactionRollback:
			if r.QueueOffset != 0 {
				t.Errorf("queue offset %d of a half", r.QueueOffset)
			}
		default:
			if r.QueueOffset != next[r.QueueID] {
				t.Errorf("queue %d: offset %d, want %d", r.QueueID, r.QueueOffset, next[r.QueueID])
			}
			next[r.QueueID]++
		}
	}
	if next[0] != 12 || next[1] != 6 {
		t.Errorf("queues end at %v: %v", next, s.Err())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A record leaves exactly the room of a BLANK, or the segment ends before it.
func TestWriter_RollsAsBrokersDo(t *testing.T) {
	for extra, rolls := range map[int]bool{-1: false, 0: false, 1: true, 7: true, 8: true} {
		w := open(t, forge.Options{})
		empty := forge.Message{Topic: "t"}
		if _, err := w.Append(empty); err != nil {
			t.Fatal(err)
		}
		left := int(testSize - 2*empty.Size() - commitlog.BlankSize)
		m := forge.Message{Topic: "t", Body: make([]byte, left+extra)}
		if _, err := w.Append(m); err != nil {
			t.Fatal(err)
		}
		if rolled := w.End() > wire.PhyOffset(testSize); rolled != rolls {
			t.Errorf("%d bytes more than fit: rolled %t", extra, rolled)
		}
		if _, err := w.Append(empty); err != nil {
			t.Fatal(err)
		}
		if n := count(t, w, testSize); n != 3 {
			t.Errorf("%d records", n)
		}
	}
}

func TestWriter_GarbageBehindTheBlank(t *testing.T) {
	w := open(t, forge.Options{Garbage: newRand(1)})
	if err := w.Roll(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(w.CommitLogDir(), commitlog.Name(0)))
	if err != nil {
		t.Fatal(err)
	}
	zeros := 0
	for _, c := range b[commitlog.BlankSize:] {
		if c == 0 {
			zeros++
		}
	}
	if zeros > len(b)/50 {
		t.Errorf("%d of %d bytes are zero", zeros, len(b))
	}
	appendRandom(t, w, 3, 1)
	count(t, w, testSize)
}

func TestWriter_Refuses(t *testing.T) {
	w := open(t, forge.Options{})
	if _, err := w.Append(forge.Message{Body: make([]byte, testSize)}); !errors.Is(err, forge.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := w.Append(forge.Message{Magic: 1}); err == nil {
		t.Error("a wrong magic was written")
	}
	if _, err := w.AppendSlowly(forge.Message{}, func(string) {}, "size"); err == nil {
		t.Error("one part was taken for all")
	}
	if _, err := w.AppendSlowly(forge.Message{}, func(string) {}, "size", "size", "body", "topic", "properties"); err == nil {
		t.Error("a part was named twice")
	}
	for name, o := range map[string]forge.Options{
		"no directory": {}, "negative start": {Dir: t.TempDir(), Start: -1, SegmentSize: testSize},
		"start inside a segment": {Dir: t.TempDir(), Start: 1, SegmentSize: testSize}, "negative size": {Dir: t.TempDir(), SegmentSize: -1},
		"tiny segments": {Dir: t.TempDir(), SegmentSize: 50}, "huge segments": {Dir: t.TempDir(), SegmentSize: math.MaxInt32 + 1},
	} {
		if _, err := forge.Open(o); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestWriter_AfterClose(t *testing.T) {
	w := open(t, forge.Options{})
	for range 2 {
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, appendErr := w.Append(forge.Message{})
	_, dropErr := w.DropOldest()
	for _, err := range []error{appendErr, dropErr, w.Roll(), w.Sync()} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestFault57_OnlyTheOldestIsDropped(t *testing.T) {
	w := open(t, forge.Options{})
	appendRandom(t, w, 60, 2)
	for w.Min() < w.End().SegmentBase(testSize) {
		before := w.Min()
		after, err := w.DropOldest()
		if err != nil || after != before.Add(testSize) || after != w.Min() {
			t.Fatalf("from %d to %d: %v", before, after, err)
		}
		count(t, w, testSize)
	}
	if _, err := w.DropOldest(); !errors.Is(err, forge.ErrLastSegment) {
		t.Errorf("the segment that is written: %v", err)
	}
	appendRandom(t, w, 1, 3)
}

// The parts become visible one after the other, and nothing else with them.
func TestWriter_AppendSlowly(t *testing.T) {
	for _, magic := range []uint32{commitlog.MagicV1, commitlog.MagicV2} {
		w := open(t, forge.Options{})
		m := forge.Message{Magic: magic, Topic: "topic", Body: []byte("body"), Properties: "k\x01v\x02"}
		record := forge.AppendMessage(nil, m, 0)
		path := filepath.Join(w.CommitLogDir(), commitlog.Name(0))
		order := []string{forge.PartTopic, forge.PartSize, forge.PartProperties, forge.PartHeader, forge.PartBody}
		var steps []string
		visible := 0
		end, err := w.AppendSlowly(m, func(part string) {
			steps = append(steps, part)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			now := 0
			for i, c := range b[:len(record)] {
				if c != 0 && c != record[i] {
					t.Fatalf("after %s: byte %d is %x, want %x or 0", part, i, c, record[i])
				}
				if c != 0 {
					now++
				}
			}
			if now <= visible {
				t.Errorf("nothing more is visible after %s", part)
			}
			if visible = now; w.End() != 0 {
				t.Error("End moved before the record was whole")
			}
		}, order...)
		if err != nil || end != wire.PhyOffset(len(record)) || end != w.End() {
			t.Fatalf("end %d, %v", end, err)
		}
		if len(steps) != 4 || steps[0] != forge.PartTopic || steps[3] != forge.PartHeader {
			t.Errorf("steps %v", steps)
		}
		count(t, w, testSize)
	}
}

func BenchmarkWriter_Append(b *testing.B) {
	w := open(b, forge.Options{SegmentSize: 64 * wire.MiB})
	m := forge.Message{Topic: "BenchmarkTopic", Body: make([]byte, 1024), QueueOffset: forge.NextQueueOffset}
	b.SetBytes(int64(m.Size()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Append(m); err != nil {
			b.Fatal(err)
		}
		if w.Min() < w.End().SegmentBase(64*wire.MiB) {
			if _, err := w.DropOldest(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
