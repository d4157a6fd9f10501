package link

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/haagent/haagent/wire"
)

// FileEntry is one config file of a Snapshot.
type FileEntry struct {
	// Name is the file's name below config/, without a path.
	Name string
	// Size is at most MaxFileSize.
	Size wire.ByteSize
	Sum  [32]byte // SHA-256 of the content
	// Follows says that File frames with the content come behind the Snapshot.
	// Otherwise the replica got this content on this connection before.
	Follows bool
}

// Snapshot lists the config files as they were at one time.
type Snapshot struct {
	// Generation goes up with every snapshot of one connection.
	Generation uint64
	// TakenAt is when the files were read, in Unix milliseconds.
	TakenAt int64
	// SourceEnd is the log's end at that time: positions in the files point
	// below it. NoOffset where the log is empty or its end not known.
	SourceEnd wire.PhyOffset
	// Files are at most MaxFiles with different names.
	Files []FileEntry
}

// Type returns TypeSnapshot.
func (m *Snapshot) Type() Type { return TypeSnapshot }

// Append appends the whole frame; see Message.
func (m *Snapshot) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Snapshot) Check() error {
	switch {
	case m.TakenAt < 0:
		return refuse(TypeSnapshot, ErrFrame, "taken at %d", m.TakenAt)
	case len(m.Files) > MaxFiles:
		return refuse(TypeSnapshot, ErrFrame, "%d files, at most %d", len(m.Files), MaxFiles)
	}
	seen := make(map[string]bool, len(m.Files))
	for _, f := range m.Files {
		if err := f.check(); err != nil {
			return err
		}
		if seen[f.Name] {
			return refuse(TypeSnapshot, ErrFrame, "file %q twice", f.Name)
		}
		seen[f.Name] = true
	}
	return checkOffset(TypeSnapshot, "source end", m.SourceEnd, true)
}

// check refuses names that are more, or less, than a name: they become part of
// a path.
func (f *FileEntry) check() error {
	switch {
	case f.Name == "" || f.Name == "." || f.Name == ".." || strings.ContainsAny(f.Name, `/\`):
		return refuse(TypeSnapshot, ErrFrame, "%q is no name of a file", f.Name)
	case f.Size < 0 || f.Size > MaxFileSize:
		return refuse(TypeSnapshot, ErrFrame, "file %q of %d bytes, at most %d", f.Name, int64(f.Size), int64(MaxFileSize))
	}
	return checkName(TypeSnapshot, "file", f.Name)
}

func (m *Snapshot) appendPayload(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, m.Generation)
	dst = appendOffset(dst, wire.PhyOffset(m.TakenAt), m.SourceEnd)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Files)))
	for _, f := range m.Files {
		dst = appendString(dst, f.Name)
		dst = binary.BigEndian.AppendUint32(dst, uint32(f.Size))
		dst = append(dst, f.Sum[:]...)
		follows := byte(0)
		if f.Follows {
			follows = 1
		}
		dst = append(dst, follows)
	}
	return dst
}

func (m *Snapshot) decode(c *cursor) {
	m.Generation, m.TakenAt, m.SourceEnd = c.u64(), c.i64(), c.offset()
	n := int(c.u16())
	if n > MaxFiles || n*(1+entryFixed) > len(c.rest) { // nothing is allocated for what is not there
		c.short = true
		return
	}
	for range n {
		f := FileEntry{Name: c.str(), Size: wire.ByteSize(c.u32()), Sum: c.sum()}
		follows := c.u8()
		f.Follows = follows == 1
		if follows > 1 {
			c.wrong = fmt.Sprintf("file %q follows: %d, want 0 or 1", f.Name, follows)
		}
		m.Files = append(m.Files, f)
	}
}

// File carries a piece of a file that a Snapshot announced. The files come in
// the order of the list, each from its beginning to its end.
type File struct {
	// Index is the file's place in the Snapshot's list.
	Index uint16
	// Offset is the place of the piece in the file.
	Offset wire.ByteSize
	// Data has 1 to MaxPiece bytes.
	Data []byte
}

// Type returns TypeFile.
func (m *File) Type() Type { return TypeFile }

// Append appends the whole frame; see Message.
func (m *File) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *File) Check() error {
	size := wire.ByteSize(len(m.Data))
	switch {
	case m.Index >= MaxFiles:
		return refuse(TypeFile, ErrFrame, "index %d, a snapshot has at most %d files", m.Index, MaxFiles)
	case size < 1 || size > MaxPiece:
		return refuse(TypeFile, ErrFrame, "piece of %d bytes, want 1 to %d", int64(size), int64(MaxPiece))
	case m.Offset < 0 || m.Offset > MaxFileSize-size:
		return refuse(TypeFile, ErrFrame, "%d bytes at %d end beyond the largest file", int64(size), int64(m.Offset))
	}
	return nil
}

func (m *File) appendPayload(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, m.Index)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Offset))
	return append(dst, m.Data...)
}

func (m *File) decode(c *cursor) {
	m.Index, m.Offset = c.u16(), wire.ByteSize(c.u32())
	m.Data = c.take(len(c.rest))
}
