package link

import "encoding/binary"

// Refuse ends a connection instead of an answer.
type Refuse struct {
	Code Code
	// Text says it to people: at most MaxText bytes; see Text.
	Text string
}

// Type returns TypeRefuse.
func (m *Refuse) Type() Type { return TypeRefuse }

// Append appends the whole frame; see Message.
func (m *Refuse) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Refuse) Check() error { return checkReason(TypeRefuse, m.Code, m.Text) }

func (m *Refuse) appendPayload(dst []byte) []byte { return appendReason(dst, m.Code, m.Text) }

func (m *Refuse) decode(c *cursor) { m.Code, m.Text = Code(c.u16()), string(c.take(int(c.u16()))) }

// Goodbye ends a connection that was in use.
type Goodbye struct {
	Code Code
	// Text says it to people: at most MaxText bytes; see Text.
	Text string
}

// Type returns TypeGoodbye.
func (m *Goodbye) Type() Type { return TypeGoodbye }

// Append appends the whole frame; see Message.
func (m *Goodbye) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Goodbye) Check() error { return checkReason(TypeGoodbye, m.Code, m.Text) }

func (m *Goodbye) appendPayload(dst []byte) []byte { return appendReason(dst, m.Code, m.Text) }

func (m *Goodbye) decode(c *cursor) { m.Code, m.Text = Code(c.u16()), string(c.take(int(c.u16()))) }

func checkReason(t Type, code Code, text string) error {
	switch {
	case code == 0:
		return refuse(t, ErrFrame, "code 0")
	case len(text) > MaxText:
		return refuse(t, ErrFrame, "text of %d bytes, at most %d", len(text), MaxText)
	}
	return checkText(t, "text", text)
}

func appendReason(dst []byte, code Code, text string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(text)))
	return append(dst, text...)
}

// Proof shows that its sender holds the key. It follows Hello and Welcome in
// mode clear; docs/protocol.md says over what it is computed.
type Proof struct{ MAC [32]byte }

// Type returns TypeProof.
func (m *Proof) Type() Type { return TypeProof }

// Append appends the whole frame; see Message.
func (m *Proof) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns nil: every value can be sent.
func (m *Proof) Check() error { return nil }

func (m *Proof) appendPayload(dst []byte) []byte { return append(dst, m.MAC[:]...) }

func (m *Proof) decode(c *cursor) { m.MAC = c.sum() }
