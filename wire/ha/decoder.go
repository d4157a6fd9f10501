package ha

import (
	"github.com/haagent/haagent/wire"
)

// Kind says what a Decoder found in the bytes it was given.
type Kind int

const (
	// More: all bytes were consumed and nothing came of them yet; give more.
	More Kind = iota
	// Heartbeat: a frame without a body.
	Heartbeat
	// Body: bytes of the log.
	Body
)

// String returns the name of the kind.
func (k Kind) String() string {
	switch k {
	case More:
		return "more"
	case Heartbeat:
		return "heartbeat"
	case Body:
		return "body"
	}
	return "unknown"
}

// Event is one thing that a Decoder found.
type Event struct {
	Kind Kind
	// PhyOffset is the position in the log of Data[0]; in a heartbeat, that of
	// the next body.
	PhyOffset wire.PhyOffset
	// Data is the piece of the body, a part of the bytes given to Next.
	Data []byte
	// FrameEnd is true where the piece, or the heartbeat, completes its frame.
	FrameEnd bool
}

// Decoder splits a master's stream into heartbeats and pieces of the log. It is
// pushed: bytes come in as they are read from the socket, in any pieces. It
// never allocates and keeps nothing of a body. The zero value is ready and
// allows bodies up to MaxBody. It is not safe for concurrent use.
type Decoder struct {
	// Limit is the largest body allowed; MaxBody where it is 0.
	Limit wire.ByteSize

	head [HeaderSize]byte
	have int            // bytes of an unfinished header in head
	at   wire.PhyOffset // position of the next byte of the body
	left wire.ByteSize  // bytes of the body that have not come yet
	err  error          // what was refused; final
}

// Next consumes the first n bytes of in and says what they were. It consumes
// at least one byte unless in is empty or an error is returned; call it again
// with the rest. An error is a *FrameError, which matches ErrFrame, and stays:
// behind a wrong header nothing can be found again.
func (d *Decoder) Next(in []byte) (n int, ev Event, err error) {
	if d.err != nil {
		return 0, Event{}, d.err
	}
	if d.left == 0 {
		n = copy(d.head[d.have:], in)
		d.have += n
		if d.have < HeaderSize {
			return n, Event{}, nil
		}
		h, err := ParseHeader(d.head[:], d.limit())
		if err != nil {
			d.err = err
			return 0, Event{}, err
		}
		d.have = 0
		if h.Heartbeat() {
			return n, Event{Kind: Heartbeat, PhyOffset: h.PhyOffset, FrameEnd: true}, nil
		}
		d.at, d.left = h.PhyOffset, h.BodySize
	}
	data := in[n:]
	if len(data) == 0 {
		return n, Event{}, nil
	}
	if wire.ByteSize(len(data)) > d.left {
		data = data[:d.left]
	}
	size := wire.ByteSize(len(data))
	ev = Event{Kind: Body, PhyOffset: d.at, Data: data, FrameEnd: size == d.left}
	d.at, d.left = d.at.Add(size), d.left-size
	return n + len(data), ev, nil
}

// Pending returns the header of the body that Next has begun and not finished:
// the position of its next byte and how much is left, so that a caller may take
// the rest of the body from the socket itself (see Skip). ok is false between
// frames and inside a header.
func (d *Decoder) Pending() (h Header, ok bool) {
	return Header{PhyOffset: d.at, BodySize: d.left}, d.left > 0
}

// Skip tells the decoder that the caller took the next n bytes of the pending
// body from the socket without showing them to Next (splice, MSG_TRUNC). More
// than is pending is a programming error and panics.
func (d *Decoder) Skip(n wire.ByteSize) {
	if n < 0 || n > d.left {
		panic("ha: skipped more than the pending body")
	}
	d.at, d.left = d.at.Add(n), d.left-n
}

// Wants returns how many more bytes make the present header or body whole, so
// that a caller can read exactly up to the end of it.
func (d *Decoder) Wants() wire.ByteSize {
	if d.left > 0 {
		return d.left
	}
	return wire.ByteSize(HeaderSize - d.have)
}

// Boundary reports whether the stream may end here: no frame is unfinished.
func (d *Decoder) Boundary() bool { return d.have == 0 && d.left == 0 }

// Reset makes the decoder ready for a new stream; Limit stays.
func (d *Decoder) Reset() { *d = Decoder{Limit: d.Limit} }

func (d *Decoder) limit() wire.ByteSize {
	if d.Limit == 0 {
		return MaxBody
	}
	return d.Limit
}
