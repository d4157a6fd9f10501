package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/haagent/haagent/wire"
)

// Sizes of segments and names, as brokers have them.
const (
	// NameLen is the number of digits in the name of a segment.
	NameLen = 20
	// DefaultSegmentSize is a broker's mappedFileSizeCommitLog if none is configured.
	DefaultSegmentSize wire.ByteSize = 1 << 30
)

// Segment is one file of a commit log, as it was when the directory was listed.
type Segment struct {
	Base    wire.PhyOffset // offset of its first byte, from its name
	Size    wire.ByteSize  // length of the file
	ModTime time.Time      // brokers expire segments by it
	Path    string
}

// End returns the offset behind the last byte of the file.
func (s Segment) End() wire.PhyOffset { return s.Base.Add(s.Size) }

// Name returns the file name of the segment that starts at base, which must not
// be negative.
func Name(base wire.PhyOffset) string {
	var name [NameLen]byte
	for i := NameLen - 1; i >= 0; i-- {
		name[i] = '0' + byte(base%10)
		base /= 10
	}
	return string(name[:])
}

// ParseName returns the offset that a segment's file name stands for. It takes
// exactly what Name gives: 20 ASCII digits, not above the largest int64.
func ParseName(name string) (wire.PhyOffset, error) {
	if len(name) != NameLen {
		return wire.NoOffset, fmt.Errorf("segment name %q has %d characters instead of %d digits", name, len(name), NameLen)
	}
	var base int64
	for i := range len(name) {
		c := name[i]
		if c < '0' || c > '9' {
			return wire.NoOffset, fmt.Errorf("segment name %q is not all digits", name)
		}
		digit := int64(c - '0')
		if base > (math.MaxInt64-digit)/10 {
			return wire.NoOffset, fmt.Errorf("segment name %q is above the largest offset", name)
		}
		base = base*10 + digit
	}
	return wire.PhyOffset(base), nil
}

// List returns the segments of the commit log directory dir in ascending order,
// whatever their lengths (see CheckSegments). A directory that does not exist is
// an empty log. Files that vanish meanwhile are left out. The first thing that
// is no segment (another name, a symbolic link, a directory) gives a
// *ForeignFileError, along with the segments that there are.
func List(dir string) ([]Segment, error) {
	entries, err := os.ReadDir(dir) // sorted by name, and so by offset
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list segments: %w", err)
	}
	segs := make([]Segment, 0, len(entries))
	var foreign error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		reason := ""
		base, err := ParseName(e.Name())
		switch {
		case err != nil:
			reason = err.Error()
		case !e.Type().IsRegular():
			reason = fmt.Sprintf("a %v instead of a regular file", e.Type())
		}
		if reason != "" {
			if foreign == nil {
				foreign = &ForeignFileError{Path: path, Reason: reason}
			}
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list segments: %w", err)
		}
		segs = append(segs, Segment{
			Base: base, Size: wire.ByteSize(info.Size()), ModTime: info.ModTime(), Path: path,
		})
	}
	return segs, foreign
}

// CheckSegments checks that segs, in the order of List, are what a broker boots
// on with the given segment size: every one of full length (*LengthError), at a
// multiple of the size (*AlignError), and next to the one before (*HoleError).
// It returns the first violation in the order of the log.
func CheckSegments(segs []Segment, size wire.ByteSize) error {
	if size <= 0 {
		return fmt.Errorf("segment size %d is not positive", size)
	}
	for i, s := range segs {
		if i > 0 {
			if after := segs[i-1].Base.Add(size); s.Base > after {
				return &HoleError{After: after, Before: s.Base}
			}
		}
		if s.Base.SegmentBase(size) != s.Base {
			return &AlignError{Path: s.Path, Base: s.Base, Size: size}
		}
		if s.Size != size {
			return &LengthError{Path: s.Path, Size: s.Size, Want: size}
		}
	}
	return nil
}

// GuessSegmentSize returns the segment size that segs were written with, 0 if
// there are none. It does not guess against the evidence: all segments that are
// followed by another one, and the last one unless it is empty, must have the
// same length, otherwise it returns the *LengthError of the first that differs
// from the first segment.
func GuessSegmentSize(segs []Segment) (wire.ByteSize, error) {
	if len(segs) == 0 {
		return 0, nil
	}
	size := segs[0].Size
	for i, s := range segs {
		justBorn := i > 0 && i == len(segs)-1 && s.Size == 0
		if s.Size != size && !justBorn {
			return 0, &LengthError{Path: s.Path, Size: s.Size, Want: size}
		}
	}
	return size, nil
}
