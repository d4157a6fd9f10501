package replica

import (
	"encoding/binary"
	"errors"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// walk goes from message to message inside one segment.
type walk struct {
	at     wire.PhyOffset // in: a message boundary; out: behind the last whole message
	base   wire.PhyOffset // of the segment
	end    wire.PhyOffset // of the segment
	window []byte         // the segment's bytes from base to where bytes are known to be
	rec    *commitlog.Record
	digest *digest // of what is passed, but for bodies; nil: nobody asks

	messages   int64          // passed
	summed     wire.PhyOffset // the digest is up to here
	doubtful   wire.PhyOffset // end of the last one that a crash of the machine would make us doubt, else 0
	last       wire.PhyOffset
	lastStored commitlog.Millis
}

// run passes whole messages until the window ends, and returns nil then and at
// the segment's end. Zeros where a message should begin are an error: in what a
// peer sent they can never become one.
func (w *walk) run() error {
	w.summed = w.at
	err := w.pass()
	w.sum(w.at, w.at)
	return err
}

// sum takes everything up to o into the digest, and goes on at next.
func (w *walk) sum(o, next wire.PhyOffset) {
	if w.digest != nil {
		w.digest.add(w.window[w.summed.Sub(w.base):o.Sub(w.base)], o)
		w.summed = next
	}
}

func (w *walk) pass() error {
	for w.at < w.end {
		rest := w.window[w.at.Sub(w.base):]
		switch err := commitlog.Parse(rest, w.at, w.end, w.rec); {
		case err == nil:
			w.last, w.lastStored = w.at, w.rec.StoreTimestamp
			w.at = w.rec.End()
			w.messages++
			if !w.rec.WellFormed() {
				w.doubtful = w.at
			}
			body := w.rec.BodyOffset()
			w.sum(body, body.Add(wire.ByteSize(len(w.rec.Body))))
		case errors.Is(err, commitlog.ErrSegmentEnd):
			// The bytes behind a BLANK belong to the segment too: wait for them all.
			if wire.ByteSize(len(w.window)) < w.end.Sub(w.base) {
				return nil
			}
			w.at = w.end
		case errors.Is(err, commitlog.ErrNotYet):
			if len(rest) >= 4 && binary.BigEndian.Uint32(rest) == 0 {
				return &commitlog.CorruptError{PhyOffset: w.at, Reason: "zeros where a message must begin", Err: commitlog.ErrBadLength}
			}
			return nil
		default:
			return err
		}
	}
	return nil
}
