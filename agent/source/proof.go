package source

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

const (
	// maxProof is how many bytes one proof copies.
	maxProof = 64 * wire.KiB
	// A proof is also kept for these spans, and not only until the next one.
	youngProof = time.Second
	oldProof   = 10 * time.Second
)

// proof is a copy of confirmed bytes. Where they cannot be found in their place
// any more, the log was cut back, or is another one.
type proof struct {
	from  wire.PhyOffset
	taken time.Time
	bytes []byte // empty: there is no proof
}

func (p *proof) end() wire.PhyOffset { return p.from.Add(wire.ByteSize(len(p.bytes))) }

// take copies b, which lies at offset from.
func (p *proof) take(from wire.PhyOffset, b []byte, now time.Time) {
	p.from, p.taken = from, now
	p.bytes = append(p.bytes[:0], b...)
}

// holds says whether the log in dir still has the bytes; Unknown where the file
// does not reach so far, or is gone. An error says that it cannot be read.
func (p *proof) holds(dir string, size wire.ByteSize, scratch []byte) (Verdict, error) {
	base := p.from.SegmentBase(size)
	f, err := os.Open(filepath.Join(dir, commitlog.Name(base)))
	if errors.Is(err, fs.ErrNotExist) {
		return Unknown, nil
	}
	if err != nil {
		return Unknown, err
	}
	defer f.Close()
	now := scratch[:len(p.bytes)]
	switch _, err = f.ReadAt(now, int64(p.from.Sub(base))); {
	case errors.Is(err, io.EOF):
		return Unknown, nil
	case err != nil:
		return Unknown, err
	case !bytes.Equal(now, p.bytes):
		return Differs, nil
	}
	return Equal, nil
}

// proofs are copies of what the log ended with at several times, so that a log
// which was cut back and has grown again is known by more than its very end:
//
//	... ████ old ████ ... ████ young ████ ... ████ last ████|
//	    10 to 20 s ago    1 to 2 s ago                      Confirmed
type proofs struct {
	last       proof
	young, old [2]proof // the younger one first
	broken     bool     // last was seen not to hold
}

func (s *proofs) all() [5]*proof {
	return [...]*proof{&s.last, &s.young[0], &s.young[1], &s.old[0], &s.old[1]}
}

// known reports whether there is any proof.
func (s *proofs) known() bool {
	for _, p := range s.all() {
		if len(p.bytes) > 0 {
			return true
		}
	}
	return false
}

func (s *proofs) drop() {
	s.broken = false
	for _, p := range s.all() {
		p.bytes = p.bytes[:0]
	}
}

// take makes b, which lies at offset from, the last proof, and keeps the one that
// was it where it is time.
func (s *proofs) take(from wire.PhyOffset, b []byte, now time.Time) {
	if len(s.last.bytes) > 0 && now.Sub(s.young[0].taken) >= youngProof {
		if p := &s.young[1]; len(p.bytes) > 0 && now.Sub(s.old[0].taken) >= oldProof {
			s.old[0], s.old[1], *p = *p, s.old[0], s.old[1]
		}
		s.young[0], s.young[1], s.last = s.last, s.young[0], s.young[1]
		s.young[0].taken = now
	}
	s.last.take(from, b, now)
}

// hold reads the files and says whether the log is still the one that the proofs
// were taken from: Differs where bytes are others, Unknown where none of them is
// there any more, otherwise Equal.
func (s *proofs) hold(dir string, size wire.ByteSize) (Verdict, error) {
	if s.broken {
		return Differs, nil
	}
	if !s.known() {
		return Equal, nil
	}
	verdict := Unknown
	scratch := make([]byte, maxProof)
	for _, p := range s.all() {
		if len(p.bytes) == 0 {
			continue
		}
		switch v, err := p.holds(dir, size, scratch); {
		case err != nil || v == Differs:
			return v, err
		case v == Equal:
			verdict = Equal
		}
	}
	return verdict, nil
}

// keepProof copies the last confirmed bytes of the open segment.
func (t *tail) keepProof(now time.Time) {
	if t.prev == wire.NoOffset || t.seg == nil || !t.unchanged() {
		return
	}
	from := max(t.base, t.at.Add(-maxProof))
	t.proofs.take(from, t.seg.data[from.Sub(t.base):t.at.Sub(t.base)], now)
	t.checked = false
}

// unchanged reports whether the last proof still holds, as far as it lies in the
// open segment. Where it does not, the files are to be looked at, and nothing is
// to be confirmed behind it.
func (t *tail) unchanged() bool {
	p := &t.proofs.last
	if len(p.bytes) > 0 && p.from >= t.base && p.end() <= t.seg.End &&
		!bytes.Equal(t.seg.data[p.from.Sub(t.base):p.end().Sub(t.base)], p.bytes) {
		t.proofs.broken, t.rescan = true, true
	}
	t.checked = true
	return !t.proofs.broken
}
