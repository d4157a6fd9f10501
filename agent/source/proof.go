package source

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// maxProof is how much of a record is kept to know it again.
const maxProof = 64 * wire.KiB

// proof is a copy of (the head of) a confirmed record. Where it cannot be found
// in its place any more, the log was cut back, or is another one.
type proof struct {
	at   wire.PhyOffset
	head []byte // empty: there is no proof
}

// take copies the record of the given size that window starts with.
func (p *proof) take(at wire.PhyOffset, window []byte, size wire.ByteSize) {
	p.at = at
	p.head = append(p.head[:0], window[:min(size, maxProof, wire.ByteSize(len(window)))]...)
}

func (p *proof) drop() { p.head = p.head[:0] }

// holds reports whether the log in dir still has the record. An error says that
// it cannot be read, which proves nothing.
func (p *proof) holds(dir string, size wire.ByteSize) (bool, error) {
	if len(p.head) == 0 {
		return true, nil
	}
	base := p.at.SegmentBase(size)
	f, err := os.Open(filepath.Join(dir, commitlog.Name(base)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	now := make([]byte, len(p.head))
	_, err = f.ReadAt(now, int64(p.at.Sub(base)))
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return bytes.Equal(now, p.head), err
}
