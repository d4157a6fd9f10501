package wire

import "strconv"

// PhyOffset is an absolute position in a commit log, in bytes from the very
// first byte the broker ever wrote. It keeps growing when old segments are
// deleted, so it is never a position inside a file. Valid values are >= 0;
// NoOffset stands for "not known".
type PhyOffset int64

// NoOffset is the PhyOffset of something that is not known (yet).
const NoOffset PhyOffset = -1

// Add returns the offset n bytes further on.
func (o PhyOffset) Add(n ByteSize) PhyOffset { return o + PhyOffset(n) }

// Sub returns the distance from p to o; it is negative where p lies behind o.
func (o PhyOffset) Sub(p PhyOffset) ByteSize { return ByteSize(o - p) }

// SegmentBase returns the start of the segment of the given size that holds o.
// It panics if size is not positive, which is a programming error: sizes are
// checked where they enter the process.
func (o PhyOffset) SegmentBase(size ByteSize) PhyOffset { return o - o%PhyOffset(size) }

// String returns the decimal digits of o, as brokers print offsets.
func (o PhyOffset) String() string { return strconv.FormatInt(int64(o), 10) }

// ByteSize is a number of bytes: a length, a size or a distance.
type ByteSize int64

// The binary multiples in which segment sizes and limits are written.
const (
	KiB ByteSize = 1 << 10
	MiB ByteSize = 1 << 20
	GiB ByteSize = 1 << 30
)

// String returns the exact size with the largest binary unit that divides it
// ("1GiB", "1536KiB", "17B"), so that it can be given back as a flag.
func (n ByteSize) String() string {
	for _, u := range []struct {
		size ByteSize
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(int64(n/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(n), 10) + "B"
}
