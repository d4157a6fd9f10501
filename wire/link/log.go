package link

import (
	"encoding/binary"

	"github.com/haagent/haagent/wire"
)

// Ask asks for the digest of a range of the master's log.
type Ask struct {
	At wire.PhyOffset
	// Size is from 1 to MaxDigestRange.
	Size wire.ByteSize
}

// Type returns TypeAsk.
func (m *Ask) Type() Type { return TypeAsk }

// Append appends the whole frame; see Message.
func (m *Ask) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Ask) Check() error { return checkRange(TypeAsk, m.At, m.Size, MaxDigestRange) }

func (m *Ask) appendPayload(dst []byte) []byte {
	return binary.BigEndian.AppendUint32(appendOffset(dst, m.At), uint32(m.Size))
}

func (m *Ask) decode(c *cursor) { m.At, m.Size = c.offset(), wire.ByteSize(c.u32()) }

// Answer is the master's to an Ask. Answers come in the order of what was asked.
type Answer struct {
	At wire.PhyOffset
	// Size is that of the Ask, or 0 where the range is not wholly in the
	// master's log; Sum is zero then.
	Size wire.ByteSize
	Sum  [32]byte
}

// Type returns TypeAnswer.
func (m *Answer) Type() Type { return TypeAnswer }

// Append appends the whole frame; see Message.
func (m *Answer) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Known reports whether the master has the range.
func (m *Answer) Known() bool { return m.Size > 0 }

// Check returns a *FrameError for values that no frame can carry.
func (m *Answer) Check() error {
	if m.Size != 0 {
		return checkRange(TypeAnswer, m.At, m.Size, MaxDigestRange)
	}
	if m.Sum != ([32]byte{}) {
		return refuse(TypeAnswer, ErrFrame, "a digest of nothing")
	}
	return checkOffset(TypeAnswer, "offset", m.At, false)
}

func (m *Answer) appendPayload(dst []byte) []byte {
	return appendDigest(dst, Digest{At: m.At, Size: m.Size, Sum: m.Sum})
}

func (m *Answer) decode(c *cursor) {
	d := c.digest()
	m.At, m.Size, m.Sum = d.At, d.Size, d.Sum
}

// Start asks the master to stream.
type Start struct {
	// From is the offset of the first byte; 0 on the metadata channel.
	From wire.PhyOffset
}

// Type returns TypeStart.
func (m *Start) Type() Type { return TypeStart }

// Append appends the whole frame; see Message.
func (m *Start) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Start) Check() error { return checkOffset(TypeStart, "offset", m.From, false) }

func (m *Start) appendPayload(dst []byte) []byte { return appendOffset(dst, m.From) }

func (m *Start) decode(c *cursor) { m.From = c.offset() }

// Report tells the master how far a replica is.
type Report struct {
	// Received is the end of what came, Verified of what was checked, Flushed
	// of what of that is synced; NoOffset where there is nothing.
	Received, Verified, Flushed wire.PhyOffset
}

// Type returns TypeReport.
func (m *Report) Type() Type { return TypeReport }

// Append appends the whole frame; see Message.
func (m *Report) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Report) Check() error {
	return firstError(
		checkOffset(TypeReport, "received", m.Received, true),
		checkOffset(TypeReport, "verified", m.Verified, true),
		checkOffset(TypeReport, "flushed", m.Flushed, true),
	)
}

func (m *Report) appendPayload(dst []byte) []byte {
	return appendOffset(dst, m.Received, m.Verified, m.Flushed)
}

func (m *Report) decode(c *cursor) {
	m.Received, m.Verified, m.Flushed = c.offset(), c.offset(), c.offset()
}

// ParseReport takes a Report's payload apart as Decode does, and allocates nothing.
// It returns a *FrameError for a payload that no Report has.
func ParseReport(payload []byte) (Report, error) {
	if len(payload) != reportSize {
		return Report{}, refuse(TypeReport, ErrFrame, "payload of %d bytes, want %d", len(payload), reportSize)
	}
	at := func(i int) wire.PhyOffset { return wire.PhyOffset(int64(binary.BigEndian.Uint64(payload[i:]))) }
	m := Report{Received: at(0), Verified: at(8), Flushed: at(16)}
	if err := m.Check(); err != nil {
		return Report{}, err
	}
	return m, nil
}

// Heartbeat says that the sender lives and, from a master, where its log ends.
type Heartbeat struct {
	// Min, Confirmed and Visible are as in Welcome, in order like there; all
	// NoOffset from a replica.
	Min, Confirmed, Visible wire.PhyOffset
}

// Type returns TypeHeartbeat.
func (m *Heartbeat) Type() Type { return TypeHeartbeat }

// Append appends the whole frame; see Message.
func (m *Heartbeat) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Heartbeat) Check() error {
	return checkEnds(TypeHeartbeat, m.Min, m.Confirmed, m.Visible)
}

func (m *Heartbeat) appendPayload(dst []byte) []byte {
	return appendOffset(dst, m.Min, m.Confirmed, m.Visible)
}

func (m *Heartbeat) decode(c *cursor) {
	m.Min, m.Confirmed, m.Visible = c.offset(), c.offset(), c.offset()
}
