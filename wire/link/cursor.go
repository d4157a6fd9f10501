package link

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/haagent/haagent/wire"
)

// A cursor takes a payload apart. It remembers what was wrong with it, and gives
// zeros where it is too short, so that decoders read straight on.
type cursor struct {
	rest  []byte
	short bool
	wrong string // what no field can express: reserved bytes, flags
}

func (c *cursor) take(n int) []byte {
	if n > len(c.rest) {
		c.rest, c.short = nil, true
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) i64() int64 { return int64(c.u64()) }

func (c *cursor) offset() wire.PhyOffset { return wire.PhyOffset(c.i64()) }

func (c *cursor) sum() (sum [32]byte) {
	copy(sum[:], c.take(len(sum)))
	return sum
}

func (c *cursor) str() string { return string(c.take(int(c.u8()))) }

func (c *cursor) digest() Digest {
	return Digest{At: c.offset(), Size: wire.ByteSize(c.u32()), Sum: c.sum()}
}

func appendOffset(dst []byte, offsets ...wire.PhyOffset) []byte {
	for _, o := range offsets {
		dst = binary.BigEndian.AppendUint64(dst, uint64(o))
	}
	return dst
}

func appendString(dst []byte, s string) []byte {
	return append(append(dst, byte(len(s))), s...)
}

func appendDigest(dst []byte, d Digest) []byte {
	dst = appendOffset(dst, d.At)
	dst = binary.BigEndian.AppendUint32(dst, uint32(d.Size))
	return append(dst, d.Sum[:]...)
}

// checkName refuses a name that does not fit a frame or that would garble a log.
func checkName(t Type, what, s string) error {
	if len(s) > MaxString {
		return refuse(t, ErrFrame, "%s of %d bytes, at most %d", what, len(s), MaxString)
	}
	return checkText(t, what, s)
}

func checkText(t Type, what, s string) error {
	switch {
	case !utf8.ValidString(s):
		return refuse(t, ErrFrame, "%s %q is not UTF-8", what, s)
	case strings.ContainsFunc(s, unicode.IsControl):
		return refuse(t, ErrFrame, "%s %q has control characters", what, s)
	}
	return nil
}

// checkOffset refuses what is no offset; NoOffset passes where none is allowed.
func checkOffset(t Type, what string, o wire.PhyOffset, none bool) error {
	if o < 0 && (!none || o != wire.NoOffset) {
		return refuse(t, ErrFrame, "%s is %d", what, o)
	}
	return nil
}

// checkEnds refuses ends of a master's log that are not in their order, and those
// of which only some are there.
func checkEnds(t Type, least, confirmed, visible wire.PhyOffset) error {
	err := firstError(checkOffset(t, "min", least, true), checkOffset(t, "confirmed", confirmed, true), checkOffset(t, "visible", visible, true))
	switch {
	case err != nil:
		return err
	case least > confirmed || confirmed > visible:
		return refuse(t, ErrFrame, "min %d, confirmed %d and visible %d are out of order", least, confirmed, visible)
	case least == wire.NoOffset && visible != wire.NoOffset:
		return refuse(t, ErrFrame, "a log up to %d that begins nowhere", visible)
	}
	return nil
}

// checkRange refuses ranges that are empty, too long, or that end beyond the
// largest offset there is.
func checkRange(t Type, at wire.PhyOffset, size, most wire.ByteSize) error {
	switch {
	case at < 0:
		return refuse(t, ErrFrame, "offset is %d", at)
	case size < 1 || size > most:
		return refuse(t, ErrFrame, "range of %d bytes, want 1 to %d", size, most)
	case at > math.MaxInt64-wire.PhyOffset(size):
		return refuse(t, ErrFrame, "%d bytes at %d end beyond the largest offset", size, at)
	}
	return nil
}

// firstError returns the first that is not nil.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Text returns s in the form that a Refuse or Goodbye carries: at most MaxText
// bytes, UTF-8, and with '?' for control characters.
func Text(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= MaxText {
		return s
	}
	end := MaxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

func invalid(m Message, err error) string {
	return fmt.Sprintf("wire/link: %v that cannot be sent: %v", m.Type(), err)
}
