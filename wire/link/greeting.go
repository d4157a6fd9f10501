package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// GreetingSize is the length of a greeting in bytes.
	GreetingSize = 48

	// Magic opens every greeting. Its line feed does not survive a transfer that
	// takes the stream for text.
	Magic = "haagent\n"

	// MinVersion and MaxVersion are what this package speaks.
	MinVersion uint16 = 1
	MaxVersion uint16 = 2

	// VersionPacked is the first version with compressed bytes of the log: before
	// it a Hello accepts no encoding.
	VersionPacked uint16 = 2
)

// Greeting is the first thing that both ends send. Its layout is the same in
// all versions.
type Greeting struct {
	// Min and Max are the versions that the sender speaks, both included; 1 is
	// the first one.
	Min, Max uint16
	Mode     Mode
	// Nonce is 32 random bytes, new for each connection.
	Nonce [32]byte
}

// Append appends the GreetingSize bytes. It panics for values that no greeting
// has.
func (g Greeting) Append(dst []byte) []byte {
	if err := g.check(); err != nil {
		panic("wire/link: greeting that cannot be sent: " + err.Error())
	}
	dst = append(dst, Magic...)
	dst = binary.BigEndian.AppendUint16(dst, g.Min)
	dst = binary.BigEndian.AppendUint16(dst, g.Max)
	dst = append(dst, byte(g.Mode), 0, 0, 0)
	return append(dst, g.Nonce[:]...)
}

func (g Greeting) check() error {
	switch {
	case g.Min < 1 || g.Min > g.Max:
		return fmt.Errorf("versions %d to %d", g.Min, g.Max)
	case g.Mode > ModeClear:
		return fmt.Errorf("mode %d is unknown", uint8(g.Mode))
	}
	return nil
}

// ParseGreeting reads a greeting from exactly its bytes. It returns io.EOF for
// none, io.ErrUnexpectedEOF where b is the beginning of one, and a
// *GreetingError otherwise.
func ParseGreeting(b []byte) (Greeting, error) {
	switch {
	case len(b) == 0:
		return Greeting{}, io.EOF
	case !bytes.HasPrefix([]byte(Magic), b[:min(len(b), len(Magic))]):
		return Greeting{}, &GreetingError{Head: bytes.Clone(b[:min(len(b), GreetingSize)]), Reason: "looks like " + Looks(b)}
	case len(b) < GreetingSize:
		return Greeting{}, io.ErrUnexpectedEOF
	}
	g := Greeting{Min: binary.BigEndian.Uint16(b[8:]), Max: binary.BigEndian.Uint16(b[10:]), Mode: Mode(b[12])}
	copy(g.Nonce[:], b[16:])
	err := g.check()
	switch {
	case len(b) > GreetingSize:
		err = fmt.Errorf("%d bytes too many behind it", len(b)-GreetingSize)
	case b[13] != 0 || b[14] != 0 || b[15] != 0:
		err = fmt.Errorf("reserved bytes % x, want zero", b[13:16])
	}
	if err != nil {
		return Greeting{}, &GreetingError{Head: bytes.Clone(b[:GreetingSize]), Reason: err.Error()}
	}
	return g, nil
}

// ReadGreeting reads a greeting and not a byte beyond it. It gives up as soon as
// 8 bytes have come that open no greeting, so a peer that speaks something else
// and then waits is found at once. Besides the errors of ParseGreeting it
// returns those of r.
func ReadGreeting(r io.Reader) (Greeting, error) {
	var b [GreetingSize]byte
	n := 0
	for n < len(b) {
		m, err := r.Read(b[n:])
		n += m
		if n == len(b) {
			break
		}
		wrong := n > 0 && !bytes.HasPrefix([]byte(Magic), b[:min(n, len(Magic))])
		if wrong && (n >= len(Magic) || err != nil) {
			break
		}
		if err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Greeting{}, err
		}
	}
	return ParseGreeting(b[:n])
}

// GreetingError tells what came instead of a greeting. It matches ErrGreeting
// and ErrFrame.
type GreetingError struct {
	// Head is what came, at most GreetingSize bytes.
	Head []byte
	// Reason is what is wrong, or what the bytes look like.
	Reason string
}

// Error names the reason and shows the first bytes.
func (e *GreetingError) Error() string {
	return fmt.Sprintf("%v: %s (starts % x)", ErrGreeting, e.Reason, e.Head[:min(len(e.Head), 16)])
}

// Unwrap returns ErrGreeting and ErrFrame.
func (e *GreetingError) Unwrap() []error { return []error{ErrGreeting, ErrFrame} }

// Looks returns what the first bytes of a stream most likely are, in words.
func Looks(b []byte) string {
	switch {
	case len(b) >= 2 && b[0] == 0x16 && b[1] == 0x03:
		return "a TLS handshake"
	case len(b) >= 2 && b[0] == 0x15 && b[1] == 0x03:
		return "a TLS alert"
	case bytes.HasPrefix(b, []byte("SSH-")):
		return "SSH"
	case looksHTTP(b):
		return "HTTP"
	case looksRemoting(b):
		return "RocketMQ remoting (a broker's listenPort, or a client)"
	case len(b) >= 8 && b[0] == 0 && b[1] == 0:
		return "the stock RocketMQ HA stream"
	}
	return "nothing known"
}

func looksHTTP(b []byte) bool {
	for _, start := range []string{"GET ", "PUT ", "HEAD ", "POST ", "DELETE ", "OPTIONS ", "CONNECT ", "PATCH ", "TRACE ", "PRI * ", "HTTP/"} {
		if bytes.HasPrefix(b, []byte(start)) {
			return true
		}
	}
	return false
}

// looksRemoting reports whether b opens with a frame length, a serialization
// with a header length that fits, and a header: JSON begins with a brace.
func looksRemoting(b []byte) bool {
	if len(b) < 9 {
		return false
	}
	total, word := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	size := word & 0xffffff
	if total < 4 || total > 64<<20 || size == 0 || size > total-4 {
		return false
	}
	return word>>24 == 0 && b[8] == '{' || word>>24 == 1
}

// Versions are the versions that one end speaks, both included.
type Versions struct{ Min, Max uint16 }

// String returns "1" or "1 to 3".
func (v Versions) String() string {
	if v.Min == v.Max {
		return fmt.Sprintf("%d", v.Min)
	}
	return fmt.Sprintf("%d to %d", v.Min, v.Max)
}

// VersionError names both ranges where they have nothing in common. It matches
// ErrVersion.
type VersionError struct{ Ours, Theirs Versions }

// Error names both ranges.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%v: we speak %v, the peer speaks %v", ErrVersion, e.Ours, e.Theirs)
}

// Unwrap returns ErrVersion.
func (e *VersionError) Unwrap() error { return ErrVersion }

// Negotiate returns the highest version that both ends speak. The result does
// not depend on which end asks; where there is none, the *VersionError takes
// ours for the asking end's.
func Negotiate(ours, theirs Greeting) (uint16, error) {
	version := min(ours.Max, theirs.Max)
	if version < ours.Min || version < theirs.Min {
		return 0, &VersionError{Ours: Versions{ours.Min, ours.Max}, Theirs: Versions{theirs.Min, theirs.Max}}
	}
	return version, nil
}
