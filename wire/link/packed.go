package link

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/haagent/haagent/wire"
)

// PackedHeadSize is what AppendPacked writes before the data, in bytes.
const PackedHeadSize = HeaderSize + packedFixed

// Packed carries compressed bytes of the log, to a replica that has said that it
// takes them. This package does not look into the data.
type Packed struct {
	// At and Confirmed are as in Transfer.
	At, Confirmed wire.PhyOffset
	// Size is how many bytes of the log are in Data, from 2 to MaxTransfer, and
	// always more than Data has itself.
	Size wire.ByteSize
	// Sum is the CRC-32C of these bytes.
	Sum uint32
	// Data is one zstd frame.
	Data []byte
}

// Type returns TypePacked.
func (m *Packed) Type() Type { return TypePacked }

// Append appends the whole frame, data included; see Message.
func (m *Packed) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Packed) Check() error {
	if err := checkRange(TypePacked, m.At, m.Size, MaxTransfer); err != nil {
		return err
	}
	if n := wire.ByteSize(len(m.Data)); n < 1 || n >= m.Size {
		return refuse(TypePacked, ErrFrame, "%d bytes are packed into %d", m.Size, n)
	}
	return checkOffset(TypePacked, "confirmed", m.Confirmed, true)
}

func (m *Packed) appendPayload(dst []byte) []byte {
	dst = appendOffset(dst, m.At, m.Confirmed)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Size))
	dst = binary.BigEndian.AppendUint32(dst, m.Sum)
	return append(dst, m.Data...)
}

func (m *Packed) decode(c *cursor) {
	m.At, m.Confirmed, m.Size, m.Sum = c.offset(), c.offset(), wire.ByteSize(c.u32()), c.u32()
	m.Data = c.take(len(c.rest))
}

// AppendPacked appends a Packed whose fields are given apart. data may stand where
// it belongs already: PackedHeadSize bytes behind the start of dst, which has room
// for it. It panics for values that no frame can carry.
func AppendPacked(dst []byte, at, confirmed wire.PhyOffset, size wire.ByteSize, sum uint32, data []byte) []byte {
	m := Packed{At: at, Confirmed: confirmed, Size: size, Sum: sum, Data: data}
	if err := m.Check(); err != nil {
		panic(invalid(&m, err))
	}
	start := len(dst)
	return closeFrame(m.appendPayload(openFrame(dst, TypePacked)), start, nil)
}

// ParsePacked takes a Packed's payload apart, as Decode does, and allocates
// nothing; Data is part of payload.
func ParsePacked(payload []byte) (Packed, error) {
	if len(payload) <= packedFixed {
		return Packed{}, refuse(TypePacked, ErrFrame, "ends too early, after %d bytes", len(payload))
	}
	c := cursor{rest: payload}
	var m Packed
	m.decode(&c)
	if err := m.Check(); err != nil {
		return Packed{}, err
	}
	return m, nil
}

// Unpacked returns a *FrameError unless body is what m says of it.
func (m *Packed) Unpacked(body []byte) error {
	if wire.ByteSize(len(body)) != m.Size {
		return refuse(TypePacked, ErrFrame, "%d bytes are in it, %d were announced", len(body), m.Size)
	}
	if sum := Sum(body); sum != m.Sum {
		return refuse(TypePacked, ErrChecksum, "%08x computed over the %d bytes in it, %08x received", sum, len(body), m.Sum)
	}
	return nil
}

// Sum returns the CRC-32C of bytes of the log, as Packed carries it.
func Sum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

// BadPacked is the *FrameError for data that cannot be unpacked.
func BadPacked(err error) error { return refuse(TypePacked, ErrFrame, "%v", err) }
