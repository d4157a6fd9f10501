package replica

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// sourceLog is a broker's log in memory: whole segments, and the last one up to
// its last message.
type sourceLog struct {
	size   wire.ByteSize
	start  wire.PhyOffset
	bytes  []byte
	bounds []wire.PhyOffset                    // ends of messages, and of segments, ascending
	stored map[wire.PhyOffset]commitlog.Millis // of the message that ends there
	lasts  map[wire.PhyOffset]commitlog.Millis // by base of a full segment, of its last message
	begins map[wire.PhyOffset]wire.PhyOffset   // by end of a message
	blanks map[wire.PhyOffset]wire.PhyOffset   // by end of a full segment, where its BLANK starts
}

func (l *sourceLog) end() wire.PhyOffset { return l.start.Add(wire.ByteSize(len(l.bytes))) }

// at returns the bytes [from, to).
func (l *sourceLog) at(from, to wire.PhyOffset) []byte {
	return l.bytes[from.Sub(l.start):to.Sub(l.start)]
}

// boundary returns the last message boundary that is not behind o.
func (l *sourceLog) boundary(o wire.PhyOffset) wire.PhyOffset {
	i, found := slices.BinarySearch(l.bounds, o)
	switch {
	case found:
		return o
	case i == 0:
		return l.start
	}
	return l.bounds[i-1]
}

var anyMessage = forge.Variety{V2: true, IPv6: true, PropertyCRC: true, Transactions: true}

// makeLog makes up n messages from seed, with garbage behind every BLANK.
func makeLog(seed uint64, size wire.ByteSize, start wire.PhyOffset, n int, v forge.Variety) *sourceLog {
	return makeLogOf(seed, size, start, n, func(r *rand.Rand) forge.Message { return forge.RandomMessage(r, v) })
}

// makeLogOf is makeLog of n messages that somebody else makes up.
func makeLogOf(seed uint64, size wire.ByteSize, start wire.PhyOffset, n int, next func(*rand.Rand) forge.Message) *sourceLog {
	r := rand.New(rand.NewPCG(seed, 1))
	l := &sourceLog{
		size: size, start: start,
		stored: map[wire.PhyOffset]commitlog.Millis{}, lasts: map[wire.PhyOffset]commitlog.Millis{},
		begins: map[wire.PhyOffset]wire.PhyOffset{}, blanks: map[wire.PhyOffset]wire.PhyOffset{},
	}
	for range n {
		m := next(r)
		m.QueueOffset = r.Int64N(1 << 40)
		at := l.end()
		if room := at.SegmentBase(size).Add(size).Sub(at); m.Size()+commitlog.BlankSize > room {
			l.roll(r, room)
			at = l.end()
		}
		l.bytes = forge.AppendMessage(l.bytes, m, at)
		l.bounds = append(l.bounds, l.end())
		l.stored[l.end()], l.begins[l.end()] = m.StoreTimestamp, at
		l.lasts[at.SegmentBase(size)] = m.StoreTimestamp
	}
	return l
}

func (l *sourceLog) roll(r *rand.Rand, room wire.ByteSize) {
	at := l.end()
	l.bytes = forge.AppendBlank(l.bytes, room)
	for range room - commitlog.BlankSize {
		l.bytes = append(l.bytes, byte(r.Uint32()))
	}
	l.bounds = append(l.bounds, l.end())
	l.blanks[l.end()] = at
}

// openStore takes the lock and opens the replica at o.Dir.
func openStore(t tb, o Options) *Store {
	t.Helper()
	s, err := tryOpen(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func tryOpen(o Options) (*Store, error) {
	lock, err := AcquireLock(o.Dir)
	if err != nil {
		return nil, err
	}
	s, err := Open(o, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return s, nil
}

// kill leaves the store as a process does that is killed: nothing more is
// written, and the lock goes with its descriptors.
func kill(t tb, s *Store) {
	t.Helper()
	if err := errors.Join(s.Abandon(), s.lock.Release()); err != nil {
		t.Fatalf("kill: %v", err)
	}
}

func closeStore(t tb, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// feed appends [from, to) of l in one call and verifies all of it.
func feed(t tb, s *Store, l *sourceLog, from, to wire.PhyOffset) {
	t.Helper()
	if err := s.Append(from, [][]byte{l.at(from, to)}); err != nil {
		t.Fatalf("append [%d, %d): %v", from, to, err)
	}
	if err := s.Verify(to); err != nil {
		t.Fatalf("verify up to %d: %v", to, err)
	}
}

// replicate opens a replica at dir that holds all of l.
func replicate(t tb, dir string, l *sourceLog) *Store {
	t.Helper()
	s := openStore(t, Options{Dir: dir, SegmentSize: l.size})
	if err := s.Begin(l.start); err != nil {
		t.Fatalf("begin: %v", err)
	}
	feed(t, s, l, l.start, l.end())
	return s
}

// segmentsOf lists the log below dir and fails unless there is nothing but
// full-length, adjacent segments (I6).
func segmentsOf(t tb, dir string, size wire.ByteSize) []commitlog.Segment {
	t.Helper()
	segments, err := commitlog.List(CommitLogDir(dir))
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	if err := commitlog.CheckSegments(segments, size); err != nil {
		t.Fatalf("segments: %v", err)
	}
	return segments
}

// content reads the whole log below dir.
func content(t tb, dir string, size wire.ByteSize) (start wire.PhyOffset, b []byte) {
	t.Helper()
	segments := segmentsOf(t, dir, size)
	if len(segments) == 0 {
		return wire.NoOffset, nil
	}
	for _, seg := range segments {
		p, err := os.ReadFile(seg.Path)
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		b = append(b, p...)
	}
	return segments[0].Base, b
}

// checkPrefix fails unless the log below dir is equal to l up to end, and
// nothing but zeros from there on (I2).
func checkPrefix(t tb, dir string, l *sourceLog, end wire.PhyOffset) {
	t.Helper()
	start, b := content(t, dir, l.size)
	if start == wire.NoOffset {
		return
	}
	n := end.Sub(start)
	want := l.at(start, end)
	if !bytes.Equal(b[:n], want) {
		for i := range want {
			if b[i] != want[i] {
				t.Fatalf("byte %d is 0x%02x, in the source 0x%02x (end %d)", start.Add(wire.ByteSize(i)), b[i], want[i], end)
			}
		}
	}
	if rest := bytes.TrimLeft(b[n:], "\x00"); len(rest) > 0 {
		t.Fatalf("byte %d behind the end %d is not zero", start.Add(wire.ByteSize(len(b)-len(rest))), end)
	}
}

// checkEnds fails unless the ends of s are where they may be.
func checkEnds(t tb, s *Store, l *sourceLog) Ends {
	t.Helper()
	e := s.Ends()
	if e.Min == wire.NoOffset {
		if e != (Ends{Min: -1, Written: -1, Verified: -1, Flushed: -1, Acked: -1}) {
			t.Fatalf("an empty store with ends %+v", e)
		}
		return e
	}
	if e.Min > e.Flushed || e.Flushed > e.Verified || e.Verified > e.Written || e.Acked > e.Verified {
		t.Fatalf("ends out of order: %+v", e)
	}
	if s.opt.Ack == AckDisk && e.Acked > e.Flushed {
		t.Fatalf("acked beyond what is synced: %+v", e)
	}
	for _, o := range []wire.PhyOffset{e.Verified, e.Flushed, e.Acked} {
		if l.boundary(o) != o {
			t.Fatalf("%d is no message boundary: %+v", o, e)
		}
	}
	return e
}

func writeFile(t tb, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatalf("%v", err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// spoil changes the magic of a message below dir, the nth or one behind it that
// is not the first of its segment, and returns where the message starts.
func (l *sourceLog) spoil(t *testing.T, dir string, nth int) wire.PhyOffset {
	t.Helper()
	for {
		at, ok := l.begins[l.bounds[nth]]
		if ok && at != at.SegmentBase(l.size) {
			path := filepath.Join(CommitLogDir(dir), commitlog.Name(at.SegmentBase(l.size)))
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte{0x55}, int64(at.Sub(at.SegmentBase(l.size))+4))
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			return at
		}
		nth++
	}
}
