package link

import (
	"errors"
	"fmt"
)

// ErrFrame is matched by every error of this package about bytes that are not
// what the protocol allows. The stream cannot be trusted any further; too few
// bytes are never an ErrFrame.
var ErrFrame = errors.New("not a valid link frame")

// What an ErrFrame can be besides. An error matches at most one of them; one
// that matches none is about values inside a frame.
var (
	// ErrTooLarge: the header announces more than a frame of its type holds.
	ErrTooLarge = errors.New("link frame above the limit")
	// ErrChecksum: header and payload are not those that were sent.
	ErrChecksum = errors.New("link frame with a wrong checksum")
	// ErrType: no frame has this type.
	ErrType = errors.New("unknown type of link frame")
	// ErrUnexpected: a known type at a time when it makes no sense.
	ErrUnexpected = errors.New("unexpected link frame")
	// ErrGreeting: the peer does not open as an agent does.
	ErrGreeting = errors.New("not a link greeting")
	// ErrVersion: there is no version that both ends speak.
	ErrVersion = errors.New("no common link version")
)

// FrameError tells what was refused and why. It matches ErrFrame, and one of
// ErrTooLarge, ErrChecksum, ErrType and ErrUnexpected where that is the reason.
type FrameError struct {
	// Type is the frame's, as received.
	Type Type
	// Reason is what is wrong, in words and numbers.
	Reason string
	kind   error
}

// Error names the frame and the reason.
func (e *FrameError) Error() string { return fmt.Sprintf("%v: %v: %s", e.kind, e.Type, e.Reason) }

// Unwrap returns ErrFrame and the narrower kind.
func (e *FrameError) Unwrap() []error {
	if e.kind == ErrFrame { //nolint:errorlint // the field holds one of our own values, never a chain
		return []error{ErrFrame}
	}
	return []error{ErrFrame, e.kind}
}

func refuse(t Type, kind error, format string, args ...any) *FrameError {
	return &FrameError{Type: t, Reason: fmt.Sprintf(format, args...), kind: kind}
}
