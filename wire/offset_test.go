package wire_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
)

func TestPhyOffset_Arithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := wire.ByteSize(rapid.Int64Range(1, 1<<40).Draw(t, "size"))
		o := wire.PhyOffset(rapid.Int64Range(0, 1<<60).Draw(t, "offset"))
		base := o.SegmentBase(size)
		if in := o.Sub(base); in < 0 || in >= size {
			t.Fatalf("%d lies %d into the segment at %d of %d", o, in, base, size)
		}
		if base%wire.PhyOffset(size) != 0 || base.Add(o.Sub(base)) != o {
			t.Fatalf("segment of %d is at %d", o, base)
		}
	})
}

func TestByteSize_String(t *testing.T) {
	for n, want := range map[wire.ByteSize]string{
		0: "0B", 17: "17B", wire.KiB: "1KiB", 1536: "1536B", 1536 * wire.KiB: "1536KiB",
		wire.MiB: "1MiB", wire.GiB: "1GiB", 3 * wire.GiB / 2: "1536MiB", -1: "-1B", -wire.KiB: "-1KiB",
	} {
		if got := n.String(); got != want {
			t.Errorf("%d is written %q, not %q", int64(n), got, want)
		}
	}
	if got := wire.NoOffset.String(); got != "-1" {
		t.Errorf("NoOffset is written %q", got)
	}
}
