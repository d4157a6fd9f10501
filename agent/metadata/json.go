package metadata

import (
	"errors"
	"fmt"

	"github.com/haagent/haagent/wire"
)

const (
	// MaxFile is the largest config file that is read or installed. 50,000 topics
	// with attributes take 16 MiB.
	MaxFile wire.ByteSize = 64 << 20
	// MaxDepth is how deep arrays and objects may be nested. Brokers nest 8 deep.
	MaxDepth = 128
)

// The sentinels that a *JSONError matches.
var (
	// ErrIncomplete: the content ends inside a value, or holds none at all. That
	// is how a file looks while it is being written.
	ErrIncomplete = errors.New("JSON ends too early")
	// ErrNotJSON: a byte that cannot stand where it does, or one behind the value.
	ErrNotJSON = errors.New("not JSON")
	// ErrTooDeep: nested deeper than MaxDepth.
	ErrTooDeep = errors.New("JSON nested too deep")
	// ErrTooLarge: longer than MaxFile, or a snapshot longer than MaxSnapshot.
	ErrTooLarge = errors.New("too large")
)

// JSONError says where and why a content is not one whole JSON value.
type JSONError struct {
	// Pos counts the bytes before the offending one.
	Pos wire.ByteSize
	// Reason names what was expected or met there.
	Reason string
	// Err is the sentinel.
	Err error
}

// Error describes the place and the reason.
func (e *JSONError) Error() string {
	return fmt.Sprintf("%v: at byte %d: %s", e.Err, int64(e.Pos), e.Reason)
}

// Unwrap returns the sentinel.
func (e *JSONError) Unwrap() error { return e.Err }

// Complete reports whether b is exactly one whole JSON value with nothing but
// white space around it. Besides strict JSON it takes what fastjson writes:
// object keys that are bare integers or names, as in {"topic@group":{0:12,1:9}}.
// It does not allocate unless it fails. The error is a *JSONError.
func Complete(b []byte) error {
	if wire.ByteSize(len(b)) > MaxFile {
		return &JSONError{Pos: MaxFile, Reason: fmt.Sprintf("%d bytes are more than %v", len(b), MaxFile), Err: ErrTooLarge}
	}
	s := scanner{b: b}
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

// members calls f for each member of the object b, which must be complete: key
// as it is written (quoted or bare), value without white space around it. Both
// alias b.
func members(b []byte, f func(key, value []byte) error) error {
	s := scanner{b: b}
	if s.peek() != '{' {
		return s.fail("want an object")
	}
	s.i++
	if s.peek() == '}' {
		s.i++
		return s.end()
	}
	for {
		key, err := s.key()
		if err != nil {
			return err
		}
		s.peek()
		start := s.i
		if err := s.value(); err != nil {
			return err
		}
		if err := f(key, s.b[start:s.i]); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case '}':
			s.i++
			return s.end()
		default:
			return s.fail("want a comma or the end of the object")
		}
	}
}

// scanner walks over JSON; i is the next byte to look at.
type scanner struct {
	b []byte
	i int
}

// eof is what peek returns at the end. No JSON starts with it.
const eof = 0

// peek skips white space and returns the next byte without taking it.
func (s *scanner) peek() byte {
	for i, c := range s.b[s.i:] {
		if c > ' ' || c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			s.i += i
			return c
		}
	}
	s.i = len(s.b)
	return eof
}

func (s *scanner) fail(reason string) error {
	e := &JSONError{Pos: wire.ByteSize(s.i), Reason: reason, Err: ErrNotJSON}
	if s.i >= len(s.b) {
		e.Pos, e.Err = wire.ByteSize(len(s.b)), ErrIncomplete
	}
	return e
}

func (s *scanner) end() error {
	if s.peek(); s.i < len(s.b) {
		return s.fail("bytes behind the value")
	}
	return nil
}

// value takes one value of any kind. The stack of open containers is an array,
// so that nothing is allocated and nothing recurses.
func (s *scanner) value() error {
	var open [MaxDepth]byte
	depth := 0
	for {
		opened, err := s.scalarOrOpen(&open, &depth)
		if err != nil {
			return err
		}
		if opened {
			continue
		}
		for {
			if depth == 0 {
				return nil
			}
			c := s.peek()
			if c == ',' {
				s.i++
				if open[depth-1] == '}' {
					if _, err := s.key(); err != nil {
						return err
					}
				}
				break
			}
			if c != open[depth-1] {
				return s.fail("want a comma or the end of what is open")
			}
			s.i++
			depth--
		}
	}
}

// scalarOrOpen takes a scalar or an empty container (false), or enters a
// container that has something in it (true), its first key included.
func (s *scanner) scalarOrOpen(open *[MaxDepth]byte, depth *int) (bool, error) {
	switch c := s.peek(); c {
	case '{', '[':
		if *depth == MaxDepth {
			return false, &JSONError{Pos: wire.ByteSize(s.i), Reason: fmt.Sprintf("deeper than %d", MaxDepth), Err: ErrTooDeep}
		}
		s.i++
		closing := c + 2 // '{' to '}', '[' to ']'
		if s.peek() == closing {
			s.i++
			return false, nil
		}
		open[*depth] = closing
		*depth++
		if c == '{' {
			_, err := s.key()
			return true, err
		}
		return true, nil
	case '"':
		return false, s.str()
	case 't':
		return false, s.word("true")
	case 'f':
		return false, s.word("false")
	case 'n':
		return false, s.word("null")
	default:
		return false, s.number()
	}
}

// key takes a key and its colon.
func (s *scanner) key() ([]byte, error) {
	c := s.peek()
	start := s.i
	switch {
	case c == '"':
		if err := s.str(); err != nil {
			return nil, err
		}
	case c == '-' || digit(c):
		if c == '-' {
			s.i++
		}
		if err := s.digits(); err != nil {
			return nil, err
		}
	case letter(c):
		for s.i < len(s.b) && (letter(s.b[s.i]) || digit(s.b[s.i])) {
			s.i++
		}
	default:
		return nil, s.fail("want a key")
	}
	key := s.b[start:s.i]
	if s.peek() != ':' {
		return nil, s.fail("want a colon")
	}
	s.i++
	return key, nil
}

func (s *scanner) str() error {
	b := s.b
	for i := s.i + 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return nil
		case c < ' ':
			// Blocks of zero bytes are what a power loss leaves in a file.
			s.i = i
			return s.fail("control byte in a string")
		case c == '\\':
			s.i = i + 1
			if err := s.escape(); err != nil {
				return err
			}
			i = s.i
		}
	}
	s.i = len(b)
	return s.fail("string does not end")
}

// escape takes what follows a backslash, up to its last byte.
func (s *scanner) escape() error {
	if s.i >= len(s.b) {
		return s.fail("string does not end")
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			s.i++
			if s.i >= len(s.b) {
				return s.fail("string does not end")
			}
			if c := s.b[s.i] | 0x20; !digit(s.b[s.i]) && (c < 'a' || c > 'f') {
				return s.fail("want a hexadecimal digit")
			}
		}
		return nil
	}
	return s.fail("unknown escape")
}

func (s *scanner) word(w string) error {
	for k := range len(w) {
		if s.i >= len(s.b) || s.b[s.i] != w[k] {
			return s.fail("want " + w)
		}
		s.i++
	}
	if s.i < len(s.b) && (letter(s.b[s.i]) || digit(s.b[s.i])) {
		return s.fail("want " + w)
	}
	return nil
}

func (s *scanner) number() error {
	if c := s.peek(); c == '-' {
		s.i++
	} else if !digit(c) {
		return s.fail("want a value")
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		if s.i++; s.i < len(s.b) && digit(s.b[s.i]) {
			return s.fail("digit behind a leading zero")
		}
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() error {
	if s.i >= len(s.b) || !digit(s.b[s.i]) {
		return s.fail("want a digit")
	}
	for s.i < len(s.b) && digit(s.b[s.i]) {
		s.i++
	}
	return nil
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

func letter(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || c == '$'
}
