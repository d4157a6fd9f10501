package stock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/haagent/haagent/wire/remoting"
)

var (
	// ErrUnauthorized: the broker's access control refuses the request. Neither
	// brokers of 4.x nor of 5.x tell a wrong signature from a missing one by
	// code; the remark does.
	ErrUnauthorized = errors.New("refused by the broker's access control")

	// ErrNotSupported: the broker does not know the request.
	ErrNotSupported = errors.New("request not supported by this broker")

	// ErrNoMessage: no message of the broker's log begins at the offset.
	ErrNoMessage = errors.New("no message at this offset")

	// ErrNotReady: the broker cannot answer yet, or is too busy; ask again. In
	// its first second after boot every broker answers a request for runtime
	// information so, whatever its store holds.
	ErrNotReady = errors.New("broker is not ready to answer")
)

// ResponseError is an answer other than SUCCESS. It matches ErrUnauthorized,
// ErrNotSupported, ErrNoMessage or ErrNotReady where the answer means that.
type ResponseError struct {
	Request remoting.RequestCode
	Code    remoting.ResponseCode
	// Remark is the broker's own text: often a Java exception.
	Remark string
}

// maxRemark is how much of a remark goes into an error text.
const maxRemark = 300

// Error names the code and the start of the remark.
func (e *ResponseError) Error() string {
	text := fmt.Sprintf("answered %v", e.Code)
	if kind := e.Unwrap(); kind != nil {
		text = fmt.Sprintf("%v: %s", kind, text)
	}
	remark := strings.TrimSpace(e.Remark)
	if remark == "" {
		return text
	}
	if len(remark) > maxRemark {
		remark = strings.ToValidUTF8(remark[:maxRemark], "") + "..."
	}
	return fmt.Sprintf("%s, %q", text, remark)
}

// Unwrap returns the sentinel that the answer stands for, or nil. What stands
// for what was seen on 4.9.7 and 5.3.3.
func (e *ResponseError) Unwrap() error {
	switch e.Code {
	case remoting.NoPermission: // authenticationEnabled of 5.x
		return ErrUnauthorized
	case remoting.RequestCodeNotSupported:
		return ErrNotSupported
	case remoting.SystemBusy, remoting.ServiceNotAvailable:
		return ErrNotReady
	case remoting.SystemError:
		return e.systemError()
	}
	return nil
}

// systemError tells SYSTEM_ERROR apart, which brokers also use for every
// exception that they did not expect.
func (e *ResponseError) systemError() error {
	switch {
	case strings.Contains(e.Remark, "AclException"): // aclEnable of 4.x
		return ErrUnauthorized
	case e.Request == remoting.ViewMessageByID &&
		(strings.HasPrefix(e.Remark, "can not find message") ||
			// The 4 bytes at the offset are no length that fits: not a boundary.
			strings.HasPrefix(e.Remark, "java.lang.IllegalArgumentException") ||
			strings.HasPrefix(e.Remark, "java.lang.IndexOutOfBoundsException")):
		return ErrNoMessage
	case e.Request == remoting.GetBrokerRuntimeInfo && strings.HasPrefix(e.Remark, "java.util.NoSuchElementException"):
		return ErrNotReady // the statistics have no first sample yet
	}
	return nil
}

// garbageError is what a peer that is no broker answered.
type garbageError struct{ frame *remoting.FrameError }

func (e *garbageError) Error() string {
	if errors.Is(e.frame, remoting.ErrTooLarge) {
		return e.frame.Error()
	}
	return fmt.Sprintf("answered % x: not a RocketMQ remoting port (%s)", e.frame.Head, e.frame.Reason)
}

func (e *garbageError) Unwrap() error { return e.frame }
