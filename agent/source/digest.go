package source

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// MaxDigest is the longest range that Digest and Compare look at.
const MaxDigest = wire.MiB

// ErrUnknown says that a range cannot be judged: it is not all in the log (any
// more), or changed while it was read.
var ErrUnknown = errors.New("the range is not in the log")

// Verdict is what Compare found.
type Verdict uint8

// The verdicts.
const (
	Unknown Verdict = iota // nothing can be said
	Equal                  // the same bytes
	Differs                // other bytes, all of them confirmed
)

// String returns the verdict in one word.
func (v Verdict) String() string {
	switch v {
	case Equal:
		return "equal"
	case Differs:
		return "differs"
	}
	return "unknown"
}

// Digest returns the SHA-256 of the size bytes at offset at, at most MaxDigest,
// and ErrUnknown where they are not between Min and Visible. Above Confirmed they
// may still change: there an equal digest proves that the bytes are equal, and
// another one says nothing (see Compare).
func (s *Source) Digest(at wire.PhyOffset, size wire.ByteSize) ([sha256.Size]byte, error) {
	var sum [sha256.Size]byte
	if size <= 0 || size > MaxDigest {
		return sum, fmt.Errorf("digest of %d bytes at %d: 1 to %d can be asked for", size, at, MaxDigest)
	}
	incarnation := s.Incarnation()
	if e := s.Ends(); e.Min == wire.NoOffset || at < e.Min || at > e.Visible || size > e.Visible.Sub(at) {
		return sum, fmt.Errorf("digest of %d bytes at %d, the log reaches from %d to %d: %w", size, at, e.Min, e.Visible, ErrUnknown)
	}
	hash := sha256.New()
	if err := s.read(hash, at, size); err != nil {
		return sum, fmt.Errorf("digest of %d bytes at %d: %w: %w", size, at, ErrUnknown, err)
	}
	if s.Incarnation() != incarnation {
		return sum, fmt.Errorf("digest of %d bytes at %d: the log was cut or replaced: %w", size, at, ErrUnknown)
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// Compare says whether sum is the SHA-256 of the size bytes at offset at. Differs
// is only said of bytes that are all confirmed.
func (s *Source) Compare(at wire.PhyOffset, size wire.ByteSize, sum [sha256.Size]byte) Verdict {
	confirmed := s.Ends().Confirmed // before they are read: what is confirmed later may change until then
	own, err := s.Digest(at, size)
	switch {
	case err != nil:
		return Unknown
	case own == sum:
		return Equal
	case at.Add(size) <= confirmed:
		return Differs
	}
	return Unknown
}

// read copies bytes of the log to w, over the ends of segments. It reads files
// instead of memory, so one that was cut short is an error and no fault.
func (s *Source) read(w io.Writer, at wire.PhyOffset, size wire.ByteSize) error {
	segmentSize := s.SegmentSize()
	for size > 0 {
		base := at.SegmentBase(segmentSize)
		n := min(size, base.Add(segmentSize).Sub(at))
		if err := readFile(w, filepath.Join(s.opt.CommitLogDir, commitlog.Name(base)), at.Sub(base), n); err != nil {
			return err
		}
		at, size = at.Add(n), size-n
	}
	return nil
}

func readFile(w io.Writer, path string, from, size wire.ByteSize) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, io.NewSectionReader(f, int64(from), int64(size)), int64(size))
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", path, io.ErrUnexpectedEOF)
	}
	return err
}
