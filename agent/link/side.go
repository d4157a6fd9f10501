package link

import (
	"context"
	"sync"

	wirelink "github.com/haagent/haagent/wire/link"
)

// largeFrame is from which payload on a frame is taken while the next one is read:
// a replica that catches up so keeps the socket and the disk busy together. Smaller
// ones are taken at once, because waking another goroutine would take longer.
const largeFrame = 64 << 10

// side takes one large frame at a time, beside the goroutine that reads.
type side struct {
	st     *stream
	frames chan largeOne
	taken  chan error // one value for each frame
	busy   bool       // a frame was given and not waited for
	spare  []byte     // a buffer that nobody uses
	lent   []byte     // the one that the frame lies in
	worker sync.WaitGroup
}

type largeOne struct {
	t       wirelink.Type
	payload []byte
}

// newSide starts the goroutine that takes frames. Where it fails it ends ctx by
// cancel, and with it the read that is under way.
func (st *stream) newSide(ctx context.Context, cancel context.CancelCauseFunc) *side {
	s := &side{st: st, frames: make(chan largeOne), taken: make(chan error, 1)}
	s.worker.Go(func() {
		for f := range s.frames {
			err := st.frame(ctx, f.t, f.payload)
			if err != nil {
				cancel(err)
				_ = st.conn.SetReadDeadline(longAgo)
			}
			s.taken <- err
		}
	})
	return s
}

// take gives a frame to the goroutine. rest has been called since the last one.
func (s *side) take(t wirelink.Type, payload []byte) {
	s.lent, s.spare = s.st.session.Reader().Exchange(s.spare), nil
	s.busy = true
	s.frames <- largeOne{t, payload}
}

// rest waits until what was given is taken, and returns the error of that.
func (s *side) rest() error {
	if !s.busy {
		return nil
	}
	s.busy = false
	err := <-s.taken
	s.spare, s.lent = s.lent, nil
	return err
}

// end waits for the goroutine to end.
func (s *side) end() {
	close(s.frames)
	s.worker.Wait()
}
