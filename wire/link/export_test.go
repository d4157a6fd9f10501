package link

// AppendUnchecked appends a frame whatever the message holds, as a peer might
// that does not keep to the protocol.
func AppendUnchecked(dst []byte, m Message) []byte {
	start := len(dst)
	return closeFrame(m.appendPayload(openFrame(dst, m.Type())), start, nil)
}

// Sizes returns the shortest and the longest payload of a type in bytes.
func Sizes(t Type) (least, most int) { return int(sizes[t].least), int(sizes[t].most) }

// Buffered returns how many bytes r holds for payloads.
func (r *Reader) Buffered() int { return len(r.buf) }

// LastType is the largest number of a type.
const LastType = lastType
