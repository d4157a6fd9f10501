package link

import (
	"encoding/binary"

	"github.com/haagent/haagent/wire"
)

// Transfer carries bytes of the log. Streams use AppendTransfer and
// ParseTransfer, which copy and allocate nothing.
type Transfer struct {
	// At is the offset of the body's first byte.
	At wire.PhyOffset
	// Confirmed is the end of what is complete; NoOffset where nothing is. What
	// lies above it is provisional.
	Confirmed wire.PhyOffset
	// Body has 1 to MaxTransfer bytes.
	Body []byte
}

// Type returns TypeTransfer.
func (m *Transfer) Type() Type { return TypeTransfer }

// Append appends the whole frame, body included; see Message.
func (m *Transfer) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Transfer) Check() error { return checkTransfer(m.At, m.Confirmed, len(m.Body)) }

func (m *Transfer) appendPayload(dst []byte) []byte {
	return append(appendOffset(dst, m.At, m.Confirmed), m.Body...)
}

func (m *Transfer) decode(c *cursor) {
	m.At, m.Confirmed = c.offset(), c.offset()
	m.Body = c.take(len(c.rest))
}

func checkTransfer(at, confirmed wire.PhyOffset, size int) error {
	if err := checkRange(TypeTransfer, at, wire.ByteSize(size), MaxTransfer); err != nil {
		return err
	}
	return checkOffset(TypeTransfer, "confirmed", confirmed, true)
}

// AppendTransfer appends the TransferHeadSize bytes that stand before a body:
// the header and the two offsets, with the checksum over the body as well. The
// body itself is not appended, because it is sent from where it lies. It panics
// for values that no frame can carry.
func AppendTransfer(dst []byte, at, confirmed wire.PhyOffset, body []byte) []byte {
	if err := checkTransfer(at, confirmed, len(body)); err != nil {
		panic(invalid(&Transfer{}, err))
	}
	start := len(dst)
	dst = openFrame(dst, TypeTransfer)
	dst = binary.BigEndian.AppendUint64(dst, uint64(at))
	dst = binary.BigEndian.AppendUint64(dst, uint64(confirmed))
	return closeFrame(dst, start, body)
}

// ParseTransfer takes a Transfer's payload apart; body is part of payload. It
// returns a *FrameError for a payload that no Transfer has.
func ParseTransfer(payload []byte) (at, confirmed wire.PhyOffset, body []byte, err error) {
	if len(payload) <= transferFixed {
		return 0, 0, nil, refuse(TypeTransfer, ErrFrame, "ends too early, after %d bytes", len(payload))
	}
	at = wire.PhyOffset(int64(binary.BigEndian.Uint64(payload)))
	confirmed = wire.PhyOffset(int64(binary.BigEndian.Uint64(payload[8:])))
	body = payload[transferFixed:]
	if err := checkTransfer(at, confirmed, len(body)); err != nil {
		return 0, 0, nil, err
	}
	return at, confirmed, body, nil
}
