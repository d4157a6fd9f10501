package commitlog_test

import (
	"errors"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// A last record that is only partly there ends the log before it, and nothing
// else, however it is torn and whatever order its parts were stored in.
func TestScanner_TornTail(t *testing.T) {
	orders := [][]string{
		forge.Parts(),
		{forge.PartProperties, forge.PartTopic, forge.PartBody, forge.PartHeader, forge.PartSize},
		{forge.PartHeader, forge.PartProperties, forge.PartSize, forge.PartTopic, forge.PartBody},
		{forge.PartSize, forge.PartBody, forge.PartHeader, forge.PartProperties, forge.PartTopic},
	}
	for _, order := range orders {
		w := newWriter(t, forge.Options{SegmentSize: testSize})
		r := newRand(6)
		var appended int64
		for range 100 {
			before := w.End()
			m := forge.RandomMessage(r, forge.Variety{})
			m.Body, m.Properties = []byte("a body"), "KEYS\x01key\x02"
			_, err := w.AppendSlowly(m, func(part string) {
				if before.SegmentBase(testSize) != w.End().SegmentBase(testSize) {
					before = w.End() // rolled
				}
				got := scan(t, w.CommitLogDir(), testSize, before)
				if !errors.Is(got.err, commitlog.ErrNotYet) || got.end < before {
					t.Fatalf("%v: after %s: %v at %d", order, part, got.err, got.end)
				}
			}, order...)
			if err != nil {
				t.Fatal(err)
			}
			appended++
			scan(t, w.CommitLogDir(), testSize, 0).mustEndAt(t, w.End(), appended)
		}
	}
}

func TestScanner_TornAtEveryByte(t *testing.T) {
	w := newWriter(t, forge.Options{SegmentSize: testSize})
	mustAppend(t, w, forge.Message{Topic: "whole", Body: []byte("body")})
	at := w.End()
	record := forge.AppendMessage(nil, forge.Message{Topic: "torn", Body: []byte("the body"), Properties: "k\x01v\x02"}, at)
	path := segmentPath(w.CommitLogDir(), 0)
	for n := range record {
		patch(t, path, int64(at), append(record[:n:n], make([]byte, len(record)-n)...))
		got := scan(t, w.CommitLogDir(), testSize, 0)
		switch end := got.end; {
		case !errors.Is(got.err, commitlog.ErrNotYet):
			t.Fatalf("%d of %d bytes: %v", n, len(record), got.err)
		case end == at && n >= 4 && got.torn == nil:
			t.Fatalf("%d of %d bytes: a clean end", n, len(record))
		case end != at && n < len(record)-len("k\x01v\x02"):
			// Zero properties of the right length are nothing that Parse can know.
			t.Fatalf("%d of %d bytes are taken for a record", n, len(record))
		}
	}
}

// A scan that goes on after ErrNotYet finds what a scan from the start finds.
func TestScanner_LiveAndReplayAgree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: 16 * wire.KiB, Garbage: newRand(8)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.Abandon(); err != nil {
				t.Error(err)
			}
		}()
		s, err := commitlog.NewScanner(w.CommitLogDir(), 16*wire.KiB, 0)
		if err != nil {
			t.Fatal(err)
		}
		r := newRand(rapid.Uint64().Draw(rt, "seed"))
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			for range rapid.IntRange(0, 5).Draw(rt, "appended") {
				if _, err := w.Append(forge.RandomMessage(r, forge.Variety{V2: true, IPv6: true})); err != nil {
					t.Fatal(err)
				}
			}
			for range rapid.IntRange(0, 8).Draw(rt, "read") {
				s.Next()
			}
		}
		for s.Next() {
		}
		replay := scan(t, w.CommitLogDir(), 16*wire.KiB, 0)
		if s.Offset() != replay.end || s.Records() != replay.records || replay.end != w.End() || !errors.Is(s.Err(), commitlog.ErrNotYet) {
			rt.Fatalf("live %d records to %d (%v), replay %d to %d, written to %d",
				s.Records(), s.Offset(), s.Err(), replay.records, replay.end, w.End())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
