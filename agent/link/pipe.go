package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	wirelink "github.com/haagent/haagent/wire/link"
)

// pipe is a connection behind its handshake. One goroutine reads from it, one
// writes to it.
type pipe struct {
	session *Session
	conn    net.Conn
	silence time.Duration // how long the peer may be silent, or take to read
	// torn says that a frame was sent in part: nothing may follow it. It is the
	// writer's.
	torn bool
	out  []byte // the writer's
}

func newPipe(s *Session, silence time.Duration) *pipe {
	return &pipe{session: s, conn: s.Conn(), silence: silence}
}

// goodbye is the end of a connection that is told to the peer.
type goodbye struct {
	code wirelink.Code
	text string
}

func (g *goodbye) Error() string { return g.code.String() + ": " + g.text }

// out of turn
func unexpected(m wirelink.Message, when string) *goodbye {
	return &goodbye{wirelink.CodeProtocol, fmt.Sprintf("%s %s is out of turn", m.Type(), when)}
}

// errLeft is the end of a connection whose peer stops in good order.
var errLeft = errors.New("left in good order")

// partingTime is how long a last frame may take.
const partingTime = 500 * time.Millisecond

// duplex runs both directions to their common end and closes the connection.
// Whoever ends first is the reason, which is told to the peer where it is ours:
// a goodbye, or the end of ctx. end ends it from outside.
func (p *pipe) duplex(ctx context.Context, read func(context.Context) error, write func(context.Context) error, end <-chan error) error {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A write that is stuck must not outlive the connection by much.
	stop := context.AfterFunc(run, func() { _ = p.conn.SetWriteDeadline(time.Now().Add(partingTime)) })
	defer stop()
	var others sync.WaitGroup
	others.Go(func() { cancel(read(run)) })
	others.Go(func() {
		select {
		case <-run.Done():
		case err := <-end:
			cancel(err)
		}
	})
	cancel(write(run))
	err := context.Cause(run)
	p.part(ctx, err)
	err = errors.Join(err, ignoreClosed(p.conn.Close())) // ends read
	others.Wait()
	return err
}

// part tells the peer why the connection ends, where it is us who end it. It is a
// courtesy: whoever does not get it sees the end of the connection.
func (p *pipe) part(ctx context.Context, err error) {
	var bye *goodbye
	switch {
	case p.torn:
		return
	case ctx.Err() != nil:
		bye = &goodbye{wirelink.CodeStopping, "the agent stops"}
	case !errors.As(err, &bye):
		return
	}
	if p.conn.SetWriteDeadline(time.Now().Add(partingTime)) == nil {
		_, _ = p.conn.Write((&wirelink.Goodbye{Code: bye.code, Text: wirelink.Text(bye.text)}).Append(nil))
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// raw reads one frame; nothing within the time of silence is an error.
func (p *pipe) raw() (wirelink.Type, []byte, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(p.silence)); err != nil {
		return 0, nil, err
	}
	return p.session.Reader().Next()
}

// next reads one message. A goodbye is an error: errLeft, or *RefusedError.
func (p *pipe) next() (wirelink.Message, error) {
	t, payload, err := p.raw()
	if err != nil {
		return nil, err
	}
	return decode(t, payload)
}

func decode(t wirelink.Type, payload []byte) (wirelink.Message, error) {
	m, err := wirelink.Decode(t, payload)
	if err != nil {
		return nil, err
	}
	if bye, ok := m.(*wirelink.Goodbye); ok {
		if bye.Code == wirelink.CodeStopping {
			return nil, fmt.Errorf("%w: %s", errLeft, bye.Text)
		}
		return nil, &RefusedError{Code: bye.Code, Text: bye.Text}
	}
	return m, nil
}

// write sends one message, whose values may come from elsewhere.
func (p *pipe) write(ctx context.Context, m wirelink.Message) error {
	if err := m.Check(); err != nil {
		return err
	}
	p.out = m.Append(p.out[:0])
	return p.frame(ctx, func() error {
		_, err := p.conn.Write(p.out)
		if err != nil {
			return fmt.Errorf("send %s: %w", m.Type(), err)
		}
		return nil
	})
}

// frame runs send, which sends one frame.
func (p *pipe) frame(ctx context.Context, send func() error) error {
	if err := p.conn.SetWriteDeadline(time.Now().Add(p.silence)); err != nil {
		return err
	}
	if ctx.Err() != nil { // looked at behind the deadline, which the end of ctx shortens
		return ctx.Err()
	}
	p.torn = true
	err := send()
	p.torn = err != nil
	return err
}
