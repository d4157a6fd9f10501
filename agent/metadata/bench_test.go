package metadata

import "testing"

func BenchmarkComplete(b *testing.B) {
	c := topics(1, 10_000)
	b.SetBytes(int64(len(c)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Complete(c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOffer is what a quiet source costs every interval.
func BenchmarkOffer(b *testing.B) {
	c := newClock()
	i := open(b, b.TempDir(), c.options())
	f := mustFile(b, "topics.json", topics(1, 10_000))
	offered(b, i, c.snapshot(0, f))
	installed(b, i, 0, "topics.json")
	b.SetBytes(int64(len(f.Content)))
	b.ReportAllocs()
	for b.Loop() {
		offered(b, i, c.snapshot(0, f))
		installed(b, i, 0)
	}
}
