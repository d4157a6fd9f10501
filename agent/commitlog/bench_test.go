package commitlog_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

func BenchmarkParse(b *testing.B) {
	for _, size := range []int{0, 128, 1 << 10, 16 << 10, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			record := forge.AppendMessage(nil, forge.Message{
				Topic: "BenchmarkTopic", Body: make([]byte, size), Properties: "KEYS\x01some-key\x02UNIQ_KEY\x01AC11000200002A9F0000\x02",
			}, 0)
			var rec commitlog.Record
			b.SetBytes(int64(len(record)))
			b.ReportAllocs()
			for b.Loop() {
				if err := commitlog.Parse(record, 0, testEnd, &rec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScanner(b *testing.B) {
	w := newWriter(b, forge.Options{SegmentSize: 64 * wire.MiB})
	for w.End() < wire.PhyOffset(192*wire.MiB) {
		mustAppend(b, w, forge.Message{Topic: "BenchmarkTopic", Body: make([]byte, 1024)})
	}
	b.SetBytes(int64(w.End()))
	b.ReportAllocs()
	for b.Loop() {
		s, err := commitlog.NewScanner(w.CommitLogDir(), 64*wire.MiB, 0)
		if err != nil {
			b.Fatal(err)
		}
		for s.Next() {
		}
		if !errors.Is(s.Err(), commitlog.ErrNotYet) || s.Offset() != w.End() {
			b.Fatal(s.Err(), s.Offset())
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
