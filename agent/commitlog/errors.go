package commitlog

import (
	"errors"
	"fmt"

	"github.com/haagent/haagent/wire"
)

// The two ways in which a log ends without being damaged.
var (
	// ErrNotYet says that there is no whole record (yet): the window ends inside
	// one, or nothing has been written there.
	ErrNotYet = errors.New("no whole record yet")
	// ErrSegmentEnd says that a BLANK was read: the log goes on in the next segment.
	ErrSegmentEnd = errors.New("end of segment")
)

// The reasons of a CorruptError, for errors.Is.
var (
	// ErrBadLength says that TOTALSIZE or a length inside the record is impossible.
	ErrBadLength = errors.New("impossible length")
	// ErrBadMagic says that the MAGIC is none that brokers write.
	ErrBadMagic = errors.New("unknown magic")
	// ErrOffsetMismatch says that PHYSICALOFFSET is not the place of the record:
	// stale bytes in reused space, or the wrong place to read at.
	ErrOffsetMismatch = errors.New("embedded offset is another place")
	// ErrBadCRC says that the body is not the one that was stored.
	ErrBadCRC = errors.New("checksum mismatch")
	// ErrBlankMismatch says that a BLANK does not end at the end of the segment:
	// the segment size is not the one the log was written with.
	ErrBlankMismatch = errors.New("end mark does not meet the end of the segment")
)

// CorruptError says that the bytes at PhyOffset cannot be a record.
type CorruptError struct {
	File      string         // path of the segment, empty where only bytes were given
	PhyOffset wire.PhyOffset // start of the record
	Reason    string         // what was found and what was expected
	Err       error          // one of the Err... reasons above
}

// Error implements error.
func (e *CorruptError) Error() string {
	at := ""
	if e.File != "" {
		at = " in " + e.File
	}
	return fmt.Sprintf("corrupt record at offset %d%s: %v: %s", e.PhyOffset, at, e.Err, e.Reason)
}

// Unwrap returns the reason.
func (e *CorruptError) Unwrap() error { return e.Err }

// HoleError says that the log has no data from After on, but goes on at Before.
type HoleError struct {
	After  wire.PhyOffset // end of the data before the hole
	Before wire.PhyOffset // start of the data behind it
}

// Error implements error.
func (e *HoleError) Error() string {
	return fmt.Sprintf("hole in the commit log: nothing from offset %d to %d (%v)", e.After, e.Before, e.Before.Sub(e.After))
}

// LengthError says that a segment file does not have the full length. A broker
// that is just creating a segment shows it empty for a moment, so for the last
// one this may be a reason to look again.
type LengthError struct {
	Path string
	Size wire.ByteSize // of the file
	Want wire.ByteSize // of every segment
}

// Error implements error.
func (e *LengthError) Error() string {
	return fmt.Sprintf("segment %s has %d bytes instead of %d", e.Path, e.Size, e.Want)
}

// AlignError says that a segment's name is no multiple of the segment size.
type AlignError struct {
	Path string
	Base wire.PhyOffset
	Size wire.ByteSize // of every segment
}

// Error implements error.
func (e *AlignError) Error() string {
	return fmt.Sprintf("segment %s does not start at a multiple of the segment size %d", e.Path, e.Size)
}

// ForeignFileError says that a commit log directory holds something that is no
// segment. No broker boots on such a directory.
type ForeignFileError struct {
	Path   string
	Reason string
}

// Error implements error.
func (e *ForeignFileError) Error() string {
	return fmt.Sprintf("%s does not belong into a commit log: %s", e.Path, e.Reason)
}

// RangeError says that an offset lies outside of what a log holds.
type RangeError struct {
	PhyOffset wire.PhyOffset // asked for
	Min       wire.PhyOffset // start of the first segment
	End       wire.PhyOffset // end of the last segment
}

// Error implements error.
func (e *RangeError) Error() string {
	return fmt.Sprintf("offset %d is outside of the segments, which reach from %d to %d", e.PhyOffset, e.Min, e.End)
}

// FaultError says that mapped memory could not be read or written: the file was
// cut short under the map, or the disk failed.
type FaultError struct {
	Addr uintptr // in this process
	Err  error   // what the run-time said
}

// Error implements error.
func (e *FaultError) Error() string {
	return fmt.Sprintf("fault in mapped memory at 0x%x (file cut short, or disk error): %v", e.Addr, e.Err)
}

// Unwrap returns what the run-time said.
func (e *FaultError) Unwrap() error { return e.Err }
