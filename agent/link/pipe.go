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

// unexpected is the end of a connection whose peer speaks out of turn.
func unexpected(m wirelink.Message, when string) *goodbye {
	return &goodbye{wirelink.CodeProtocol, fmt.Sprintf("%s %s is out of turn", m.Type(), when)}
}

// errLeft is the end of a connection whose peer stops in good order.
var errLeft = errors.New("left in good order")

// partingTime is how long the frame that is being sent may take when the
// connection ends.
const partingTime = 500 * time.Millisecond

// ending is what a duplex has to do with elsewhere than its two directions.
type ending struct {
	from <-chan error // ends the connection; nil: nobody does
	told func()       // called as soon as the end is decided, before goodbyes; nil: nobody
}

// duplex runs both directions to their common end and closes the connection.
// Whoever ends first is the reason, which is told to the peer where it is ours:
// a goodbye, a frame that cannot be, or the end of ctx.
func (p *pipe) duplex(ctx context.Context, read, write func(context.Context) error, end ending) error {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var reader sync.WaitGroup
	reader.Go(func() { cancel(read(run)) })
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		select {
		case <-run.Done():
		case err := <-end.from:
			cancel(err)
		}
		if end.told != nil {
			end.told()
		}
		_ = p.conn.SetReadDeadline(longAgo)
		// A write that is stuck must not outlive the connection by much.
		_ = p.conn.SetWriteDeadline(time.Now().Add(partingTime))
	}()
	cancel(write(run))
	<-decided
	err := context.Cause(run)
	err = errors.Join(err, p.part(ctx, err)) // ends read, also one that is stuck in a disk
	reader.Wait()
	return err
}

// part closes the connection, and tells the peer why where it is us who end it.
// That is a courtesy: whoever does not get it sees the end of the connection.
func (p *pipe) part(ctx context.Context, err error) error {
	var bye *goodbye
	switch {
	case p.torn:
	case errors.As(context.Cause(ctx), &bye):
	case ctx.Err() != nil:
		bye = &goodbye{wirelink.CodeStopping, "the agent stops"}
	case errors.As(err, &bye):
	case errors.Is(err, wirelink.ErrFrame):
		bye = &goodbye{wirelink.CodeProtocol, err.Error()}
	}
	if bye == nil {
		return ignoreClosed(p.session.Close())
	}
	_ = p.session.farewell(&wirelink.Goodbye{Code: bye.code, Text: wirelink.Text(bye.text)})
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// alone runs talk, which both reads and writes, and interrupts it with ctx.
func (p *pipe) alone(ctx context.Context, talk func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(longAgo) })
	defer stop()
	return talk()
}

// expect says which types of frames may come from now on, besides a goodbye.
// Others are refused by their header, so that nobody can have more read than its
// turn needs.
func (p *pipe) expect(types ...wirelink.Type) {
	p.session.Reader().Expect(append(types, wirelink.TypeGoodbye)...)
}

// raw reads one frame; nothing within the time of silence is an error.
func (p *pipe) raw(ctx context.Context) (wirelink.Type, []byte, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(p.silence)); err != nil {
		return 0, nil, err
	}
	if ctx.Err() != nil { // looked at behind the deadline, which the end of ctx shortens
		return 0, nil, context.Cause(ctx)
	}
	return p.session.Reader().Next()
}

// next reads one message. A goodbye is an error: errLeft, or *RefusedError.
func (p *pipe) next(ctx context.Context) (wirelink.Message, error) {
	t, payload, err := p.raw(ctx)
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
		return context.Cause(ctx)
	}
	p.torn = true
	err := send()
	p.torn = err != nil
	return err
}
