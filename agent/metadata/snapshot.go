package metadata

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// MaxSnapshot is the most that the files of one snapshot may hold together.
const MaxSnapshot wire.ByteSize = 128 << 20

// Hash is the SHA-256 of a file's content.
type Hash [sha256.Size]byte

// String returns 64 hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText writes the hexadecimal form.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads the hexadecimal form.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("SHA-256 of %d characters", len(b))
	}
	if _, err := hex.Decode(h[:], b); err != nil {
		return fmt.Errorf("SHA-256: %w", err)
	}
	return nil
}

// File is one config file as its source had it.
type File struct {
	// Name is a known name, see [Lookup].
	Name string
	// Content is what goes to disk, byte for byte. It is not changed once the File
	// exists.
	Content []byte
	// SHA256 is the hash of Content.
	SHA256 Hash
	// DataVersion is the broker's own stamp in Content; nil where it has none.
	DataVersion *remoting.DataVersion
}

// ErrHash is matched by the error for a File whose content has another hash.
var ErrHash = errors.New("content does not have its hash")

// NewFile makes a File of a content that was read or received. The errors match
// ErrName for an unknown name, ErrTooLarge, and for a JSON file that is not one
// whole object ErrIncomplete, ErrNotJSON or ErrTooDeep.
func NewFile(name string, content []byte) (File, error) {
	return newFile(name, content, sha256.Sum256(content))
}

// newFile is NewFile for a content whose hash is known.
func newFile(name string, content []byte, h Hash) (File, error) {
	k, ok := Lookup(name)
	if !ok {
		return File{}, fmt.Errorf("%q: %w", name, ErrName)
	}
	if err := k.check(content); err != nil {
		return File{}, fmt.Errorf("%s: %w", name, err)
	}
	f := File{Name: name, Content: content, SHA256: h}
	if !k.binary {
		f.DataVersion = versionIn(content)
	}
	return f, nil
}

// check looks at a content before it is believed.
func (k Known) check(content []byte) error {
	if k.binary {
		if n := wire.ByteSize(len(content)); n == 0 {
			return &JSONError{Reason: "empty", Err: ErrIncomplete}
		} else if n > MaxFile {
			return &JSONError{Pos: MaxFile, Reason: fmt.Sprintf("%d bytes are more than %v", n, MaxFile), Err: ErrTooLarge}
		}
		return nil
	}
	if err := Complete(content); err != nil {
		return err
	}
	s := scanner{b: content}
	if s.peek() != '{' {
		return s.fail("want an object")
	}
	return nil
}

// verify looks at a File that somebody else made. A content that was verified
// before, by its hash, is not scanned again.
func (f File) verify(before func(name string, h Hash) bool) error {
	k, ok := Lookup(f.Name)
	if !ok {
		return fmt.Errorf("%q: %w", f.Name, ErrName)
	}
	if wire.ByteSize(len(f.Content)) > MaxFile {
		return fmt.Errorf("%s: %w: more than %v", f.Name, ErrTooLarge, MaxFile)
	}
	if sha256.Sum256(f.Content) != f.SHA256 {
		return fmt.Errorf("%s: %w %v", f.Name, ErrHash, f.SHA256)
	}
	if before(f.Name, f.SHA256) {
		return nil
	}
	if err := k.check(f.Content); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

// Snapshot is the config files of a source at one time.
type Snapshot struct {
	// Generation counts the snapshots of that source.
	Generation uint64
	// TakenAt is when reading began: no content is older.
	TakenAt time.Time
	// SourceEnd is where the source's log ended when the last file had been read:
	// no position in the files lies beyond it. Files with positions are installed
	// once the verified end of the replica is at least this. wire.NoOffset: not
	// known, so the positions in it wait for a later snapshot.
	SourceEnd wire.PhyOffset
	// Files holds each name at most once. A name that is not there says nothing
	// about its file.
	Files []File
}

// verify looks at a snapshot that somebody else made.
func (s Snapshot) verify(before func(name string, h Hash) bool) error {
	if s.SourceEnd < wire.NoOffset {
		return fmt.Errorf("snapshot %d: end of the source's log is %v", s.Generation, s.SourceEnd)
	}
	var total wire.ByteSize
	seen := make(map[string]bool, len(known))
	for _, f := range s.Files {
		if seen[f.Name] {
			return fmt.Errorf("snapshot %d: %s is there twice: %w", s.Generation, f.Name, ErrName)
		}
		if err := f.verify(before); err != nil {
			return fmt.Errorf("snapshot %d: %w", s.Generation, err)
		}
		seen[f.Name] = true
		if total += wire.ByteSize(len(f.Content)); total > MaxSnapshot {
			return fmt.Errorf("snapshot %d: %w: more than %v together", s.Generation, ErrTooLarge, MaxSnapshot)
		}
	}
	return nil
}

// versionKey is where all files keep their stamp.
const versionKey = `"dataVersion"`

// versionIn returns the stamp in a whole JSON object, nil where there is none
// that can be read.
func versionIn(content []byte) *remoting.DataVersion {
	var found *remoting.DataVersion
	err := members(content, func(key, value []byte) error {
		if string(key) != versionKey || value[0] != '{' {
			return nil
		}
		v := new(remoting.DataVersion)
		if err := json.Unmarshal(value, v); err != nil {
			return fmt.Errorf("data version: %w", err)
		}
		found = v
		return nil
	})
	if err != nil {
		return nil // a broker that stamps in another way is no reason to refuse
	}
	return found
}

// entriesIn counts the entries of all tables in a whole JSON object: what is left
// when a broker has lost its file are few, or none.
func entriesIn(content []byte) int {
	n := 0
	err := members(content, func(key, value []byte) error {
		if string(key) == versionKey || value[0] != '{' {
			return nil
		}
		return members(value, func(_, _ []byte) error { n++; return nil })
	})
	if err != nil {
		return 0 // check has found it whole before, so this does not happen
	}
	return n
}
