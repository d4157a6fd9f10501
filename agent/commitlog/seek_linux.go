package commitlog

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// nextData returns the first offset of f, from at on, that is not in a hole; end
// if the rest is one. File systems that cannot tell have no holes.
func nextData(f *os.File, at, end int64) int64 {
	next, err := f.Seek(at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return end
	case err != nil || next < at:
		return at
	}
	return min(next, end)
}
