package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/haagent/haagent/wire"
)

// endMark is the verified end as the next process finds it if this one is
// killed: DIR/.haagent/verified, 8 bytes of offset and their complement, big
// endian. It is written at each move and never synced, so it means nothing once
// the machine was started again. With AckDisk it says nothing: what counts there is
// on disk.
//
// Without it nobody could tell after a kill whether zeros at the end of the
// last message, or behind a BLANK, had come or were there from birth.
type endMark struct {
	f   *os.File
	buf [16]byte
}

func openMark(dir string) (*endMark, error) {
	f, err := os.OpenFile(filepath.Join(AgentDir(dir), "verified"), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open mark of the verified end: %w", err)
	}
	return &endMark{f: f}, nil
}

// read returns the mark; ok is false where there is none, or none that is whole.
func (m *endMark) read() (end wire.PhyOffset, ok bool, err error) {
	n, err := m.f.ReadAt(m.buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return wire.NoOffset, false, fmt.Errorf("read mark of the verified end: %w", err)
	}
	value := binary.BigEndian.Uint64(m.buf[:8])
	if n < len(m.buf) || value != ^binary.BigEndian.Uint64(m.buf[8:]) {
		return wire.NoOffset, false, nil
	}
	return wire.PhyOffset(value), true, nil
}

func (m *endMark) write(end wire.PhyOffset) error {
	binary.BigEndian.PutUint64(m.buf[:8], uint64(end))
	binary.BigEndian.PutUint64(m.buf[8:], ^uint64(end))
	if _, err := m.f.WriteAt(m.buf[:], 0); err != nil {
		return fmt.Errorf("write mark of the verified end: %w", err)
	}
	return nil
}

func (m *endMark) close() error { return m.f.Close() }
