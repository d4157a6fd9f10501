package replica

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// TestFault57_OnlyTheOldestAreDropped, whatever their times are, and the last
// one never.
func TestFault57_OnlyTheOldestAreDropped(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(12, 9000, 9000, 40, anyMessage)
	s := replicate(t, dir, log)
	if n, err := s.DropBefore(log.end()); n != 0 || err != nil {
		t.Fatalf("dropped %d that are not synced: %v", n, err)
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	all := segmentsOf(t, dir, log.size)
	for i, seg := range all {
		at := time.Now().AddDate(0, 0, -i)
		if err := os.Chtimes(seg.Path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if n, err := s.DropBefore(all[i].End() - 1); n != 0 || err != nil {
			t.Fatalf("dropped %d, %v for an offset within", n, err)
		}
		if n, err := s.DropBefore(all[i].End()); n != 1 || err != nil {
			t.Fatalf("dropped %d, %v", n, err)
		}
		left := segmentsOf(t, dir, log.size)
		if len(left) != len(all)-i-1 || s.Ends().Min != left[0].Base { // fault 60
			t.Fatalf("%d segments are left, min %d", len(left), s.Ends().Min)
		}
		if err := s.Intact(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.DropBefore(math.MaxInt64); n != len(all)-4 || err != nil {
		t.Fatalf("dropped %d, %v", n, err)
	}
	last := all[len(all)-1].Base
	if e := s.Ends(); e.Min != last || e.Flushed != log.end() {
		t.Fatalf("ends %+v", e)
	}
	kill(t, s)
	// The state was written before the first one went.
	s = openStore(t, Options{Dir: dir, SegmentSize: log.size, OnlySynced: true})
	if e := s.Ends(); e.Min != last || e.Verified != log.end() {
		t.Fatalf("ends %+v after a kill", e)
	}
	closeStore(t, s)
}

// TestDrop_OnlyMessageGoes: the log may begin where no message is yet.
func TestDrop_OnlyMessageGoes(t *testing.T) {
	log := makeLog(14, 9000, 0, 12, anyMessage)
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, 0, 9000)
	feed(t, s, log, 9000, 9010)
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	if n, err := s.DropBefore(9000); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := s.LastMessage(); got != wire.NoOffset {
		t.Fatalf("last message %d, the log begins at 9000", got)
	}
	closeStore(t, s)
	s = openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if e := s.Ends(); e.Min != 9000 || e.Verified != 9000 {
		t.Fatalf("ends %+v", e)
	}
	feed(t, s, log, 9000, log.end())
	closeStore(t, s)
}

// TestFault60_ReadsEndCleanlyWhereSegmentsGo and no descriptor keeps them.
func TestFault60_ReadsEndCleanlyWhereSegmentsGo(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(15, 9000, 0, 40, anyMessage)
	s := replicate(t, dir, log)
	defer closeStore(t, s)
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DropBefore(18000); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadAt(make([]byte, 10), 9000); err == nil {
		t.Fatal("read what was dropped")
	}
	if err := s.Compare(0, log.at(0, 10)); err == nil {
		t.Fatal("compared what was dropped")
	}
	if err := s.Compare(18000, log.at(18000, log.end())); err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	gone := slices.IndexFunc(fds, func(e os.DirEntry) bool {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		return err == nil && target == filepath.Join(CommitLogDir(dir), commitlog.Name(0))+" (deleted)"
	})
	if gone >= 0 {
		t.Fatal("a dropped segment is still open")
	}
}

// TestFault73_SegmentCutShortUnderTheStore: an error, and the process lives.
func TestFault73_SegmentCutShortUnderTheStore(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(16, 65536, 0, 30, anyMessage)
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	half := log.bounds[10]
	feed(t, s, log, 0, half)
	if err := s.Append(half, [][]byte{log.at(half, log.end())}); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(CommitLogDir(dir), commitlog.Name(0)), 0); err != nil {
		t.Fatal(err)
	}
	var fault *commitlog.FaultError
	if err := s.Verify(log.end()); !errors.As(err, &fault) {
		t.Fatalf("verify: %v", err)
	}
	if e := s.Ends(); e.Verified != half {
		t.Fatalf("ends %+v", e)
	}
	if err := s.Intact(); !errors.Is(err, ErrDisturbed) {
		t.Fatalf("intact: %v", err)
	}
	if err := s.ReadAt(make([]byte, 10), 0); err == nil {
		t.Fatal("read what is not there")
	}
	kill(t, s)
	if _, err := tryOpen(Options{Dir: dir, SegmentSize: log.size}); !errors.Is(err, ErrSegmentSize) {
		t.Fatalf("open: %v", err)
	}
}
