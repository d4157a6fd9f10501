package forge

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// Style is a generation of brokers, where they leave different files behind.
type Style int

// The generations. See WriteConfig for what they do to config files.
const (
	Style4x    Style = iota // 4.x
	Style5x                 // 5.0 to 5.3
	StyleNewer              // above 5.3
)

// Errors of a Writer that a caller may want to tell apart.
var (
	// ErrLocked says that another process has the store, as a broker would.
	ErrLocked = errors.New("store is locked by another process")
	// ErrTooLarge says that a message does not fit into any segment.
	ErrTooLarge = errors.New("message does not fit into a segment")
	// ErrLastSegment says that the segment that is being written cannot be dropped.
	ErrLastSegment = errors.New("only the segment that is being written is left")
)

// Options say where a Writer writes and how much it behaves like a broker.
type Options struct {
	// Dir is the store root (storePathRootDir). It is created where missing.
	Dir string
	// CommitLogDir holds the segments (storePathCommitLog); default DIR/commitlog.
	CommitLogDir string
	// SegmentSize is mappedFileSizeCommitLog; default 1 GiB.
	SegmentSize wire.ByteSize
	// Start is where the log of an empty directory begins: a multiple of
	// SegmentSize. It is not looked at where there are segments.
	Start wire.PhyOffset
	// Ahead is the number of empty segments kept behind the one that is written;
	// default 1, none if negative.
	Ahead int
	// Garbage, if there, fills what a BLANK leaves over with random bytes.
	Garbage *rand.Rand
	// Running holds DIR/lock and keeps DIR/abort while the Writer is open.
	Running bool
	// Style decides what is written into DIR/abort.
	Style Style
	// KeepTorn leaves the bytes of a torn last record where they are, as brokers
	// do; otherwise they are zeroed before writing goes on at its start.
	KeepTorn bool
}

// withDefaults returns o filled up and checked.
func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("forge store: no directory given")
	}
	if o.CommitLogDir == "" {
		o.CommitLogDir = filepath.Join(o.Dir, "commitlog")
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = commitlog.DefaultSegmentSize
	}
	if o.SegmentSize < commitlog.MinRecord+commitlog.BlankSize || o.SegmentSize > math.MaxInt32 {
		return o, fmt.Errorf("forge store: segment size %d is not between %d and %d",
			o.SegmentSize, commitlog.MinRecord+commitlog.BlankSize, math.MaxInt32)
	}
	if o.Start < 0 || o.Start.SegmentBase(o.SegmentSize) != o.Start {
		return o, fmt.Errorf("forge store: start %d is no multiple of the segment size %d", o.Start, o.SegmentSize)
	}
	switch {
	case o.Ahead == 0:
		o.Ahead = 1
	case o.Ahead < 0:
		o.Ahead = 0
	}
	return o, nil
}
