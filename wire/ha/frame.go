package ha

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/haagent/haagent/wire"
)

const (
	// HeaderSize is the length of a frame's header in bytes.
	HeaderSize = 12

	// ReportSize is the length of a slave's report in bytes.
	ReportSize = 8

	// StockBatch is the largest body of a stock master that was not told
	// otherwise (haTransferBatchSize).
	StockBatch wire.ByteSize = 32 << 10

	// MaxBody is the largest body that this package lets pass by default.
	// haTransferBatchSize may be configured, so StockBatch is no bound; bodies
	// are consumed as a stream, so the limit does not protect memory but tells
	// a peer that speaks something else from a master.
	MaxBody wire.ByteSize = 16 << 20
)

// ErrFrame is matched by every error of this package about bytes that are not
// what the protocol allows. It means that the stream cannot be trusted any
// further; too few bytes are never an ErrFrame.
var ErrFrame = errors.New("not a valid HA stream")

// FrameError tells which values were refused and why. It matches ErrFrame.
type FrameError struct {
	// PhyOffset is the offset as received: a frame's or a report's.
	PhyOffset wire.PhyOffset
	// BodySize is the length as received; 0 for a report.
	BodySize wire.ByteSize
	// Reason is why the values cannot be right.
	Reason Reason
	// Limit is the largest body allowed; set with ReasonTooLarge only.
	Limit wire.ByteSize
}

// Reason is why a frame or a report was refused.
type Reason int

const (
	// ReasonNegativeOffset: the offset is below 0.
	ReasonNegativeOffset Reason = iota + 1
	// ReasonNegativeLength: the body's length is below 0.
	ReasonNegativeLength
	// ReasonTooLarge: the body is longer than the reader's limit.
	ReasonTooLarge
	// ReasonOverflow: the body would end beyond the largest offset there is.
	ReasonOverflow
)

// String returns the reason in words.
func (r Reason) String() string {
	switch r {
	case ReasonNegativeOffset:
		return "negative offset"
	case ReasonNegativeLength:
		return "negative body length"
	case ReasonTooLarge:
		return "body length above the limit"
	case ReasonOverflow:
		return "body ends beyond the largest offset"
	}
	return fmt.Sprintf("reason %d", int(r))
}

// Error names the reason and the values as received.
func (e *FrameError) Error() string {
	if e.Reason == ReasonTooLarge {
		return fmt.Sprintf("%v: %v of %d (offset %d, length %d)", ErrFrame, e.Reason, e.Limit, e.PhyOffset, e.BodySize)
	}
	return fmt.Sprintf("%v: %v (offset %d, length %d)", ErrFrame, e.Reason, e.PhyOffset, e.BodySize)
}

// Unwrap returns ErrFrame.
func (e *FrameError) Unwrap() error { return ErrFrame }

// Header opens a frame of the master.
type Header struct {
	// PhyOffset is the position in the log of the body's first byte, or, in a
	// heartbeat, of the next body's.
	PhyOffset wire.PhyOffset
	// BodySize is the number of bytes that follow; 0 in a heartbeat.
	BodySize wire.ByteSize
}

// Heartbeat reports whether the frame has no body.
func (h Header) Heartbeat() bool { return h.BodySize == 0 }

// End returns the position after the body's last byte.
func (h Header) End() wire.PhyOffset { return h.PhyOffset.Add(h.BodySize) }

// ParseHeader reads the header in the first HeaderSize bytes of b. It returns
// io.EOF if b is empty, io.ErrUnexpectedEOF if it is too short, and a
// *FrameError, which matches ErrFrame, if offset or length is negative, the
// length is above limit, or the body would end beyond the largest offset.
func ParseHeader(b []byte, limit wire.ByteSize) (Header, error) {
	if err := whole(b, HeaderSize); err != nil {
		return Header{}, err
	}
	h := Header{
		PhyOffset: wire.PhyOffset(int64(binary.BigEndian.Uint64(b))),
		BodySize:  wire.ByteSize(int32(binary.BigEndian.Uint32(b[8:]))),
	}
	if err := h.check(limit); err != nil {
		return Header{}, err
	}
	return h, nil
}

func (h Header) check(limit wire.ByteSize) error {
	refuse := func(r Reason) error {
		e := &FrameError{PhyOffset: h.PhyOffset, BodySize: h.BodySize, Reason: r}
		if r == ReasonTooLarge {
			e.Limit = limit
		}
		return e
	}
	switch {
	case h.PhyOffset < 0:
		return refuse(ReasonNegativeOffset)
	case h.BodySize < 0:
		return refuse(ReasonNegativeLength)
	case h.BodySize > limit:
		return refuse(ReasonTooLarge)
	case h.PhyOffset > math.MaxInt64-wire.PhyOffset(h.BodySize):
		return refuse(ReasonOverflow)
	}
	return nil
}

// AppendHeader appends the HeaderSize bytes of h to b. The values must be those
// of a valid header, with a BodySize that fits 31 bits; others are a programming
// error and panic, because a peer would take them for something else.
func AppendHeader(b []byte, h Header) []byte {
	if err := h.check(math.MaxInt32); err != nil {
		panic(err)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(h.PhyOffset))
	return binary.BigEndian.AppendUint32(b, uint32(h.BodySize))
}

// whole returns nil if b has at least n bytes.
func whole(b []byte, n int) error {
	switch {
	case len(b) == 0:
		return io.EOF
	case len(b) < n:
		return io.ErrUnexpectedEOF
	}
	return nil
}
