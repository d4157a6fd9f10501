package replica

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

func TestFault18_NothingIsCreatedBeforeTheFirstByte(t *testing.T) {
	opt := Options{Dir: t.TempDir(), SegmentSize: 65536}
	s := openStore(t, opt)
	look := func(when string) {
		t.Helper()
		if got := segmentsOf(t, opt.Dir, opt.SegmentSize); len(got) != 0 || !s.Empty() {
			t.Fatalf("%s: %d segments, empty %v", when, len(got), s.Empty())
		}
	}
	ask := func() {
		t.Helper()
		s.Ends()
		s.LastStored()
		s.State()
		if s.LastMessage() != wire.NoOffset || s.Messages() != 0 {
			t.Fatal("messages in an empty store")
		}
		if err := s.Intact(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Message(0); err == nil {
			t.Fatal("a message in an empty store")
		}
		if err := s.ReadAt(make([]byte, 1), 0); err == nil {
			t.Fatal("a byte in an empty store")
		}
		for _, err := range []error{s.flush(), s.DropUnverified(), s.Verify(wire.NoOffset)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if n, err := s.DropBefore(math.MaxInt64); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	ask()
	look("asked")
	if err := s.Begin(131072); err != nil {
		t.Fatal(err)
	}
	ask()
	look("begun")
	if err := s.Append(131072, [][]byte{nil, {}}); err != nil {
		t.Fatal(err)
	}
	look("no bytes appended")
	closeStore(t, s)
	s = openStore(t, opt)
	look("opened again")
	if e := s.Ends(); e.Written != wire.NoOffset {
		t.Fatalf("ends %+v", e)
	}
	closeStore(t, s)
}

func TestBegin(t *testing.T) {
	for _, tt := range []struct {
		base wire.PhyOffset
		ok   bool
	}{
		{0, true}, {65536, true}, {1 << 40, true},
		{-1, false}, {-65536, false}, {1, false}, {65535, false}, {65536 + 1000, false}, // fault 11
		{math.MaxInt64, false}, {math.MaxInt64 - 65535, false}, {math.MinInt64, false}, // fault 17
	} {
		s := openStore(t, Options{Dir: t.TempDir(), SegmentSize: 65536})
		err := s.Begin(tt.base)
		if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, ErrNotAdjacent) {
			t.Errorf("begin at %d: %v", tt.base, err)
		}
		if tt.ok {
			// Until there is a byte, another source may begin elsewhere.
			if err := s.Begin(196608); err != nil {
				t.Errorf("begin again after %d: %v", tt.base, err)
			}
		}
		closeStore(t, s)
	}
}

// TestFault11_FirstBytesInTheMiddleOfASegment: they are refused, never written
// at the segment's first place.
func TestFault11_FirstBytesInTheMiddleOfASegment(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir, SegmentSize: 65536})
	defer closeStore(t, s)
	for _, at := range []wire.PhyOffset{wire.NoOffset, 0, 1000} { // nothing begun
		if err := s.Append(at, [][]byte{{1}}); !errors.Is(err, ErrNotAdjacent) {
			t.Fatalf("append at %d: %v", at, err)
		}
	}
	if err := s.Begin(65536); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(65536+1000, [][]byte{{1}}); !errors.Is(err, ErrNotAdjacent) {
		t.Fatalf("append in the middle: %v", err)
	}
	if len(segmentsOf(t, dir, 65536)) != 0 {
		t.Fatal("a segment was born")
	}
}

// TestFault12_FirstSegmentIsNotZero: every end reaches the true one, and nothing
// is labelled with offset 0.
func TestFault12_FirstSegmentIsNotZero(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(1, 65536, 3145728, 120, anyMessage)
	s := replicate(t, dir, log)
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	want := Ends{Min: log.start, Written: log.end(), Verified: log.end(), Flushed: log.end(), Acked: log.end()}
	if got := s.Ends(); got != want {
		t.Fatalf("ends %+v, want %+v", got, want)
	}
	if exists(filepath.Join(CommitLogDir(dir), commitlog.Name(0))) {
		t.Fatal("a segment 0")
	}
	closeStore(t, s)
	s = openStore(t, Options{Dir: dir, SegmentSize: 65536})
	if got := s.Ends(); got != want || s.State().Start != log.start {
		t.Fatalf("ends %+v after opening again, state %+v", got, s.State())
	}
	closeStore(t, s)
}

// damage is what a stream may contain that can never be part of a log.
var damage = []struct {
	name string
	make func(at wire.PhyOffset, size wire.ByteSize) []byte
	err  error
}{
	{"embedded offset of another place", func(at wire.PhyOffset, _ wire.ByteSize) []byte {
		return forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("old")}, at+100)
	}, commitlog.ErrOffsetMismatch},
	{"zeros", func(wire.PhyOffset, wire.ByteSize) []byte { return make([]byte, 8) }, commitlog.ErrBadLength},
	{"negative length", func(wire.PhyOffset, wire.ByteSize) []byte {
		return []byte{0xff, 0xff, 0xff, 0xff, 0xda, 0xa3, 0x20, 0xa7}
	}, commitlog.ErrBadLength},
	{"largest length", func(wire.PhyOffset, wire.ByteSize) []byte {
		return []byte{0x7f, 0xff, 0xff, 0xff, 0xda, 0xa3, 0x20, 0xa7}
	}, commitlog.ErrBadLength},
	{"magic", func(wire.PhyOffset, wire.ByteSize) []byte {
		return []byte{0, 0, 1, 0, 0xda, 0xa3, 0x20, 0xa8}
	}, commitlog.ErrBadMagic},
	{"body", func(at wire.PhyOffset, _ wire.ByteSize) []byte {
		b := forge.AppendMessage(nil, forge.Message{Topic: "t", Body: []byte("body")}, at)
		b[88] ^= 1
		return b
	}, commitlog.ErrBadCRC},
	{"end mark of larger segments", func(at wire.PhyOffset, size wire.ByteSize) []byte {
		return forge.AppendBlank(nil, at.SegmentBase(size).Add(2*size).Sub(at))
	}, commitlog.ErrBlankMismatch},
}

// TestFault22_DamageIsNeverVerified: what can be no message stops the verified
// end in front of it, for good, until it is erased.
func TestFault22_DamageIsNeverVerified(t *testing.T) {
	log := makeLog(4, 65536, 65536, 20, anyMessage)
	half := log.bounds[9]
	for _, tt := range damage {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
			if err := s.Begin(log.start); err != nil {
				t.Fatal(err)
			}
			bad := tt.make(half, log.size)
			if err := s.Append(log.start, [][]byte{log.at(log.start, half), bad, make([]byte, 50)}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				var corrupt *commitlog.CorruptError
				err := s.Verify(s.Ends().Written)
				if !errors.As(err, &corrupt) || !errors.Is(err, tt.err) || corrupt.PhyOffset != half {
					t.Fatalf("verify: %v", err)
				}
				if e := s.Ends(); e.Verified != half || e.Acked != half {
					t.Fatalf("ends %+v, want %d", e, half)
				}
			}
			if err := s.DropUnverified(); err != nil {
				t.Fatal(err)
			}
			checkPrefix(t, dir, log, half)
			feed(t, s, log, half, log.end())
			closeStore(t, s)
			checkPrefix(t, dir, log, log.end())
		})
	}
}

// TestVerify_LimitAnywhere verifies with a limit at every byte around the end of
// a segment, and so within messages, BLANK and the garbage behind it.
func TestVerify_LimitAnywhere(t *testing.T) {
	log := makeLog(6, 9000, 0, 12, anyMessage)
	s := openStore(t, Options{Dir: t.TempDir(), SegmentSize: log.size})
	defer closeStore(t, s)
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(0, [][]byte{log.bytes}); err != nil {
		t.Fatal(err)
	}
	for limit := wire.PhyOffset(0); limit <= log.end(); limit++ {
		if err := s.Verify(limit); err != nil {
			t.Fatal(err)
		}
		if got := s.Ends().Verified; got != log.boundary(limit) {
			t.Fatalf("limit %d: verified %d, want %d", limit, got, log.boundary(limit))
		}
	}
	if s.Messages() != int64(len(log.stored)) {
		t.Fatalf("%d messages of %d", s.Messages(), len(log.stored))
	}
}

// TestAppend_ExactBoundary: the next segment is born by its first byte, not by
// the last byte before it.
func TestAppend_ExactBoundary(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(8, 9000, 0, 12, anyMessage)
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, 0, 9000)
	if n := len(segmentsOf(t, dir, log.size)); n != 1 {
		t.Fatalf("%d segments at the end of the first", n)
	}
	feed(t, s, log, 9000, 9001)
	if n := len(segmentsOf(t, dir, log.size)); n != 2 {
		t.Fatalf("%d segments behind the end of the first", n)
	}
	// All of the second goes but the segment itself, which the log has reached.
	if err := s.DropUnverified(); err != nil {
		t.Fatal(err)
	}
	if n, e := len(segmentsOf(t, dir, log.size)), s.Ends(); n != 2 || e.Written != 9000 || e.Verified != 9000 {
		t.Fatalf("%d segments, ends %+v", n, e)
	}
	feed(t, s, log, 9000, log.end())
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}

// TestDropUnverified_RemovesSegments: one large message begins in each of many
// segments, as if the BLANK had been forgotten; nothing of it can be verified.
func TestDropUnverified_RemovesSegments(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(9, 9000, 0, 6, anyMessage)
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	half := log.bounds[1]
	feed(t, s, log, 0, half)
	junk := make([]byte, 40000)
	for i := range junk {
		junk[i] = 7
	}
	if err := s.Append(half, [][]byte{junk}); err != nil {
		t.Fatal(err)
	}
	if n := len(segmentsOf(t, dir, log.size)); n < 5 {
		t.Fatalf("%d segments", n)
	}
	if err := s.DropUnverified(); err != nil {
		t.Fatal(err)
	}
	if n := len(segmentsOf(t, dir, log.size)); n != 1 {
		t.Fatalf("%d segments are left", n)
	}
	if err := s.Intact(); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, half, log.end())
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}

// TestAppend_MoreBuffersThanOneCallTakes, and empty ones among them.
func TestAppend_MoreBuffersThanOneCallTakes(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(10, 9000, 0, 8, anyMessage)
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	var bufs [][]byte
	for i := range log.bytes {
		bufs = append(bufs, log.bytes[i:i+1], nil)
	}
	if err := s.Append(0, bufs); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(log.end()); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}

// TestFault58_TimesOfFullSegments: full segments carry the time of their last
// message, and neither verifying nor opening again changes that.
func TestFault58_TimesOfFullSegments(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(2, 20480, 20480, 100, anyMessage)
	times := func(when string) {
		t.Helper()
		segments := segmentsOf(t, dir, log.size)
		for _, seg := range segments[:len(segments)-1] {
			if want := log.lasts[seg.Base].Time(); !seg.ModTime.Equal(want) {
				t.Fatalf("%s: %s has time %v, its last message %v", when, seg.Path, seg.ModTime, want)
			}
		}
	}
	s := replicate(t, dir, log)
	times("replicated")
	closeStore(t, s)
	opt := Options{Dir: dir, SegmentSize: log.size}
	closeStore(t, openStore(t, opt))
	times("opened again")
	opt.Verify = true
	closeStore(t, openStore(t, opt))
	times("verified from the start")
	kill(t, openStore(t, opt))

	// A kill between the last byte of a segment and its time.
	second := segmentsOf(t, dir, log.size)[1]
	if err := os.Chtimes(second.Path, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	closeStore(t, openStore(t, opt))
	times("killed before")
}

// TestTimesThatNoFileCanHave are left alone.
func TestTimesThatNoFileCanHave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "x")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, ms := range []commitlog.Millis{0, -1, math.MinInt64, math.MaxInt64, math.MaxInt64 / 1000} {
		if err := setSegmentTime(path, ms); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(path)
		if err != nil || !after.ModTime().Equal(before.ModTime()) {
			t.Fatalf("%d: %v, %v", ms, after.ModTime(), err)
		}
	}
}

func TestClosedStoreRefuses(t *testing.T) {
	log := makeLog(17, 65536, 0, 5, anyMessage)
	s := replicate(t, t.TempDir(), log)
	closeStore(t, s)
	_, promoted := s.Promote()
	_, dropped := s.DropBefore(0)
	for i, err := range []error{
		s.Begin(0), s.Append(log.end(), [][]byte{{1}}), s.Verify(0), s.DropUnverified(), s.sync(), dropped, promoted,
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
