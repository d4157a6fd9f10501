package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/haagent/haagent/wire"
)

// judgeEnd says in s.err what the place s.at is where step returned s.err: the
// end of the log, a torn record, damage, or a hole. It returns true where the
// broker went on meanwhile, so that there is something to read now.
func (s *Scanner) judgeEnd() bool {
	var damage *CorruptError
	if !errors.Is(s.err, ErrNotYet) && !errors.As(s.err, &damage) {
		return false
	}
	later, err := s.laterData()
	if err != nil {
		s.err = err
		return false
	}
	if later == wire.NoOffset {
		if damage == nil {
			return false
		}
		zero, err := s.onlyZerosBehind()
		if err != nil {
			s.err = err
			return false
		}
		if zero {
			s.torn, s.err = damage, ErrNotYet
			return false
		}
	}
	// Something lies behind this place, so whatever a broker put here is whole now.
	s.err = s.step()
	if s.err == nil || errors.Is(s.err, ErrSegmentEnd) {
		return true
	}
	if errors.Is(s.err, ErrNotYet) && later != wire.NoOffset {
		s.err = &HoleError{After: s.at, Before: later}
	}
	return false
}

// laterData returns the start of the first segment behind the one of s.at whose
// first bytes are not zero, and wire.NoOffset if there is none.
func (s *Scanner) laterData() (wire.PhyOffset, error) {
	segs, err := List(s.dir)
	if err != nil {
		return wire.NoOffset, err
	}
	for _, seg := range segs {
		if seg.Base <= s.at {
			continue
		}
		zero, err := startsWithZeros(seg.Path)
		if err != nil {
			return wire.NoOffset, err
		}
		if !zero {
			return seg.Base, nil
		}
	}
	return wire.NoOffset, nil
}

func startsWithZeros(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look behind the end of the log: %w", err)
	}
	var size [4]byte
	_, err = io.ReadFull(f, size[:])
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, io.EOF) {
		return true, nil // just being created
	}
	if err != nil {
		return false, fmt.Errorf("look behind the end of the log: %w", err)
	}
	return binary.BigEndian.Uint32(size[:]) == 0, nil
}

// onlyZerosBehind reports whether the segment holds nothing but zeros behind the
// bad record at s.at. Where its size cannot be believed, the record is taken to
// be no longer than its size field.
func (s *Scanner) onlyZerosBehind() (bool, error) {
	f, err := os.Open(s.view.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look behind the end of the log: %w", err)
	}
	var head [4]byte
	at := int64(s.at.Sub(s.base))
	zero := false
	if _, err = f.ReadAt(head[:], at); err == nil {
		behind := at + int64(len(head))
		if size := int64(int32(binary.BigEndian.Uint32(head[:]))); size >= int64(MinRecord) && size <= int64(s.size)-at {
			behind = at + size
		}
		zero, err = zeroRange(f, behind, int64(s.size))
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return false, fmt.Errorf("look behind the end of the log at %d in %s: %w", s.at, s.view.Path(), err)
	}
	return zero, nil
}

// zeroRange reports whether f is all zero from at up to end, reading only what
// the file system says is data.
func zeroRange(f *os.File, at, end int64) (bool, error) {
	buf := make([]byte, 64<<10)
	for at < end {
		at = nextData(f, at, end)
		n, err := f.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
		for _, b := range buf[:n] {
			if b != 0 {
				return false, nil
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}
