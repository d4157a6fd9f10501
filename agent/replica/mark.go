package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// endMark is the verified end as the next process finds it if this one is
// killed: DIR/.haagent/verified, big endian,
//
//	0       8       16      24      28      32      36
//	+-------+-------+-------+-------+-------+-------+
//	| since | middle| end   | digest| digest| CRC   |
//	+-------+-------+-------+-------+-------+-------+
//
// where the digests are over the log of [since, middle) and of [middle, end), and
// CRC is the CRC-32C of all before it. It is written at each move and never synced,
// so after a crash of the machine, or with a disk that drops out and comes back, it
// may be there without the bytes that it speaks of: only digests that fit make it
// believable. With AckDisk there is none: what counts there is on disk.
//
// Without it nobody could tell after a kill whether zeros at the end of the
// last message, or behind a BLANK, had come or were there from birth, nor which
// of several versions of a message the source had confirmed.
type endMark struct {
	f   *os.File
	buf [36]byte
}

func openMark(dir string) (*endMark, error) {
	f, err := os.OpenFile(filepath.Join(AgentDir(dir), "verified"), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open mark of the verified end: %w", err)
	}
	return &endMark{f: f}, nil
}

// read returns the mark; ok is false where there is none, or none that is whole.
func (m *endMark) read() (d tailDigest, ok bool, err error) {
	n, err := m.f.ReadAt(m.buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return tailDigest{}, false, fmt.Errorf("read mark of the verified end: %w", err)
	}
	be := binary.BigEndian
	if n < len(m.buf) || be.Uint32(m.buf[32:]) != crc32.Checksum(m.buf[:32], castagnoli) {
		return tailDigest{}, false, nil
	}
	middle := wire.PhyOffset(be.Uint64(m.buf[8:]))
	return tailDigest{
		old:    digest{wire.PhyOffset(be.Uint64(m.buf[:])), middle, be.Uint32(m.buf[24:])},
		latest: digest{middle, wire.PhyOffset(be.Uint64(m.buf[16:])), be.Uint32(m.buf[28:])},
	}, true, nil
}

func (m *endMark) write(d tailDigest) error {
	be := binary.BigEndian
	be.PutUint64(m.buf[:], uint64(d.old.since))
	be.PutUint64(m.buf[8:], uint64(d.latest.since))
	be.PutUint64(m.buf[16:], uint64(d.latest.end))
	be.PutUint32(m.buf[24:], d.old.sum)
	be.PutUint32(m.buf[28:], d.latest.sum)
	be.PutUint32(m.buf[32:], crc32.Checksum(m.buf[:32], castagnoli))
	if _, err := m.f.WriteAt(m.buf[:], 0); err != nil {
		return fmt.Errorf("write mark of the verified end: %w", err)
	}
	return nil
}

func (m *endMark) close() error { return m.f.Close() }

// digest is a CRC-32C over what the log has in [since, end), but for the bodies of
// messages: those have a checksum, which a walk compares and the digest covers.
type digest struct {
	since, end wire.PhyOffset
	sum        uint32
}

// add takes b, and says that it ends at end.
func (d *digest) add(b []byte, end wire.PhyOffset) {
	d.sum, d.end = crc32.Update(d.sum, castagnoli, b), end
}

// tailDigest is the digest of all that was verified and that the state on disk may
// not tell of, in two parts, so that it never starts far behind that. The old one
// ends where the latest one starts, which alone grows.
type tailDigest struct{ old, latest digest }

// emptyDigest returns the digest of nothing at o.
func emptyDigest(o wire.PhyOffset) tailDigest {
	none := digest{since: o, end: o}
	return tailDigest{old: none, latest: none}
}

// remembered forgets what the state on disk vouches for.
func (d *tailDigest) remembered(end wire.PhyOffset) {
	if end >= d.latest.since && d.latest.since < d.latest.end {
		d.old, d.latest = d.latest, digest{since: d.latest.end, end: d.latest.end}
	}
}

// needs returns from where on the log must be there so that the digests of what
// the state does not vouch for, which it does up to saved, can be summed up again.
func (d *tailDigest) needs(saved wire.PhyOffset) wire.PhyOffset {
	for _, part := range []digest{d.old, d.latest} {
		if part.end > saved {
			return part.since
		}
	}
	return everything
}

// publish tells DropBefore what the mark is about, or will be before the next call.
func (s *Store) publish(d tailDigest) {
	s.mu.Lock()
	s.spoken = d
	s.mu.Unlock()
}

// fits reports whether the log is what d says of it, as far as the state does not
// vouch for it: segments of that part may have been dropped.
func (s *Store) fits(d tailDigest) (bool, error) {
	for _, part := range []digest{d.old, d.latest} {
		if part.end <= s.state.VerifiedEnd {
			continue
		}
		if has, err := s.digestOf(part.since, part.end); err != nil || has != part {
			return false, err
		}
	}
	return true, nil
}

// digestOf sums up the log of [since, end); its end is lower than asked for where
// no whole messages lead there.
func (s *Store) digestOf(since, end wire.PhyOffset) (digest, error) {
	d := digest{since: since, end: since}
	for d.end < end {
		at := d.end
		if err := s.sumSegment(&d, end); err != nil {
			return digest{}, fmt.Errorf("sum up the log from %d on: %w", at, err)
		}
		if d.end == at {
			break
		}
	}
	return d, nil
}

// sumSegment goes on with d within one segment.
func (s *Store) sumSegment(d *digest, end wire.PhyOffset) (err error) {
	base := d.end.SegmentBase(s.opt.SegmentSize)
	view, err := commitlog.OpenView(filepath.Join(s.logDir, commitlog.Name(base)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	w := walk{at: d.end, base: base, end: base.Add(s.opt.SegmentSize), rec: &commitlog.Record{}, digest: d}
	w.window = view.Bytes()[:min(w.end, end).Sub(base)]
	err = commitlog.Guard(w.run)
	var corrupt *commitlog.CorruptError
	if errors.As(err, &corrupt) {
		return nil
	}
	return err
}
