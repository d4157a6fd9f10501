package link

// Message is what a frame carries: one of *Hello, *Welcome, *Refuse, *Ask,
// *Answer, *Start, *Transfer, *Report, *Heartbeat, *Snapshot, *File, *Goodbye,
// *Proof and *Packed.
type Message interface {
	// Type returns the type of the frame that carries the message.
	Type() Type

	// Check returns a *FrameError for values that no frame can carry: what
	// Decode would refuse, and what does not fit its field.
	Check() error

	// Append appends the whole frame. It panics where Check finds something:
	// a peer would take the frame for something else. Whoever sends values that
	// come from elsewhere calls Check before.
	Append(dst []byte) []byte

	appendPayload(dst []byte) []byte
	decode(c *cursor)
}

func appendFrame(dst []byte, m Message) []byte {
	if err := m.Check(); err != nil {
		panic(invalid(m, err))
	}
	start := len(dst)
	dst = openFrame(dst, m.Type())
	return closeFrame(m.appendPayload(dst), start, nil)
}

// Decode returns the message in a payload. Bytes of a Transfer or File are not
// copied: they are the payload's. It returns a *FrameError for an unknown type
// (ErrType) and for a payload that is not exactly what Append writes. The
// checksum is not looked at: Reader does that.
func Decode(t Type, payload []byte) (Message, error) {
	m := newMessage(t)
	if m == nil {
		return nil, refuse(t, ErrType, "no frame has the type %d", uint8(t))
	}
	c := &cursor{rest: payload}
	m.decode(c)
	switch {
	case c.short:
		return nil, refuse(t, ErrFrame, "ends too early, after %d bytes", len(payload))
	case c.wrong != "":
		return nil, refuse(t, ErrFrame, "%s", c.wrong)
	case len(c.rest) > 0:
		return nil, refuse(t, ErrFrame, "%d bytes too many behind it", len(c.rest))
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	return m, nil
}

func newMessage(t Type) Message {
	switch t {
	case TypeHello:
		return new(Hello)
	case TypeWelcome:
		return new(Welcome)
	case TypeRefuse:
		return new(Refuse)
	case TypeAsk:
		return new(Ask)
	case TypeAnswer:
		return new(Answer)
	case TypeStart:
		return new(Start)
	case TypeTransfer:
		return new(Transfer)
	case TypeReport:
		return new(Report)
	case TypeHeartbeat:
		return new(Heartbeat)
	case TypeSnapshot:
		return new(Snapshot)
	case TypeFile:
		return new(File)
	case TypeGoodbye:
		return new(Goodbye)
	case TypeProof:
		return new(Proof)
	case TypePacked:
		return new(Packed)
	}
	return nil
}
