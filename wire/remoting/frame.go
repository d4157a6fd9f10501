package remoting

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/haagent/haagent/wire"
)

const (
	// MaxHeader is the longest header that is read or written.
	MaxHeader wire.ByteSize = 1 << 20

	// MaxFrame is a limit for ReadCommand that every answer of a broker with
	// tens of thousands of topics stays below.
	MaxFrame wire.ByteSize = 64 << 20

	wordSize   = 4
	prefixSize = 2 * wordSize
)

var (
	// ErrFrame is matched by every error about bytes that are no command. The
	// connection cannot be trusted any further.
	ErrFrame = errors.New("not a RocketMQ remoting frame")

	// ErrTooLarge is matched by the error about a command that is longer than
	// the reader's limit, or whose header is longer than MaxHeader.
	ErrTooLarge = errors.New("remoting frame above the limit")
)

// FrameError tells what was refused and why. It matches ErrFrame or ErrTooLarge.
type FrameError struct {
	// Reason is what is wrong, in words.
	Reason string
	// Head is the frame's start as received: 4 or 8 bytes.
	Head []byte
	err  error
}

// Error names the reason and shows the first bytes.
func (e *FrameError) Error() string {
	return fmt.Sprintf("%v: %s (starts % x)", e.err, e.Reason, e.Head)
}

// Unwrap returns ErrFrame or ErrTooLarge.
func (e *FrameError) Unwrap() error { return e.err }

// ReadCommand reads one command. limit bounds the whole frame; nothing is
// allocated for a frame above it, and memory grows with what has arrived, not
// with what was announced. At most the frame's bytes are taken from r.
//
// It returns io.EOF where the stream ends before a frame, io.ErrUnexpectedEOF
// where it ends inside one, and a *FrameError for bytes that are no command
// (ErrFrame) or too many (ErrTooLarge); other errors are r's.
func ReadCommand(r io.Reader, limit wire.ByteSize) (Command, error) {
	var head [prefixSize]byte
	if _, err := io.ReadFull(r, head[:wordSize]); err != nil {
		return Command{}, err
	}
	total := wire.ByteSize(binary.BigEndian.Uint32(head[:]))
	if total < wordSize {
		return Command{}, refuse(ErrFrame, head[:wordSize], "length %d leaves no room for a header", total)
	}
	if n, err := io.ReadFull(r, head[wordSize:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if total+wordSize > limit { // a short text or a TLS alert, not the start of a huge answer
				return Command{}, refuse(ErrFrame, head[:wordSize+n], "ends after %d bytes of %d", wordSize+n, total+wordSize)
			}
			err = io.ErrUnexpectedEOF
		}
		return Command{}, err
	}
	word := binary.BigEndian.Uint32(head[wordSize:])
	serialization, headerLen := Serialization(word>>24), wire.ByteSize(word&0xffffff)
	switch {
	case serialization != JSON && serialization != Binary:
		return Command{}, refuse(ErrFrame, head[:], "unknown serialization %d", serialization)
	case headerLen > total-wordSize:
		return Command{}, refuse(ErrFrame, head[:], "header of %d bytes in a frame of %d", headerLen, total)
	case headerLen > MaxHeader:
		return Command{}, refuse(ErrTooLarge, head[:], "header of %d bytes, at most %d are read", headerLen, MaxHeader)
	case total+wordSize > limit:
		return Command{}, refuse(ErrTooLarge, head[:], "%d bytes, at most %d are read", total+wordSize, limit)
	}
	rest, err := readGrowing(r, total-wordSize)
	if err != nil {
		return Command{}, err
	}
	c, err := decodeHeader(serialization, rest[:headerLen])
	if err != nil {
		return Command{}, refuse(ErrFrame, head[:], "%v", err)
	}
	c.Serialization = serialization
	if body := rest[headerLen:]; len(body) > 0 {
		c.Body = body
	}
	return c, nil
}

func refuse(kind error, head []byte, format string, args ...any) error {
	return &FrameError{Reason: fmt.Sprintf(format, args...), Head: append([]byte(nil), head...), err: kind}
}

// readGrowing reads n bytes into a slice that is never more than twice as long
// as what has arrived, so that an announced length alone costs nothing.
func readGrowing(r io.Reader, n wire.ByteSize) ([]byte, error) {
	const first = 64 << 10
	b := make([]byte, 0, min(n, first))
	for wire.ByteSize(len(b)) < n {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(n, 2*wire.ByteSize(cap(b))))
			copy(grown, b)
			b = grown
		}
		m, err := io.ReadFull(r, b[len(b):cap(b)])
		b = b[:len(b)+m]
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}

func decodeHeader(s Serialization, header []byte) (Command, error) {
	if s == Binary {
		return decodeBinary(header)
	}
	return decodeJSON(header)
}

// Encode returns c as one frame, in c's serialization. It refuses what a peer
// would not read: a header above MaxHeader (ErrTooLarge), texts that are not
// UTF-8, numbers that do not fit their field.
func Encode(c Command) ([]byte, error) {
	var header []byte
	var err error
	switch c.Serialization {
	case JSON:
		header, err = encodeJSON(c)
	case Binary:
		header, err = encodeBinary(c)
	default:
		err = fmt.Errorf("unknown %v", c.Serialization)
	}
	if err != nil {
		return nil, fmt.Errorf("encode command %d: %w", c.Code, err)
	}
	total := wordSize + len(header) + len(c.Body)
	if wire.ByteSize(len(header)) > MaxHeader || total > math.MaxInt32 {
		return nil, fmt.Errorf("encode command %d: %w: header of %d bytes, body of %d", c.Code, ErrTooLarge, len(header), len(c.Body))
	}
	b := make([]byte, 0, wordSize+total)
	b = binary.BigEndian.AppendUint32(b, uint32(total))
	b = binary.BigEndian.AppendUint32(b, uint32(c.Serialization)<<24|uint32(len(header)))
	b = append(b, header...)
	return append(b, c.Body...), nil
}
