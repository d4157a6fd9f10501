package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// session replicates a log as an agent does: what fails is tried again, and
// what can only be opened again is.
type session struct {
	t       *testing.T
	log     *sourceLog
	opt     Options
	disk    *faultyDisk
	restart bool // whether a failed sync makes it a new process, which is not told of it
	lock    *Lock
	s       *Store
	errs    []error // all that came up
}

func (r *session) baseOf(path string) wire.PhyOffset {
	base, err := commitlog.ParseName(filepath.Base(path))
	if err != nil {
		r.t.Fatal(err)
	}
	return base
}

// check holds the ends against what the disk has lost.
func (r *session) check() {
	r.t.Helper()
	e := checkEnds(r.t, r.s, r.log)
	if lost := r.disk.lostBelow(e.Flushed, r.baseOf); len(lost) > 0 {
		r.t.Fatalf("flushed is %d, but these bytes are not on disk: %v (errors: %v)", e.Flushed, lost, r.errs)
	}
	segmentsOf(r.t, r.opt.Dir, r.opt.SegmentSize)
}

// failed notes an error and does what the owner of a store has to do.
func (r *session) failed(err error) {
	r.t.Helper()
	r.errs = append(r.errs, err)
	if len(r.errs) > 8 {
		r.t.Fatalf("does not recover: %v", r.errs)
	}
	if !errors.Is(err, unix.EIO) {
		r.t.Fatalf("an error that nobody injected: %v (after %v)", err, r.errs)
	}
	if !errors.Is(err, ErrFlush) {
		return
	}
	// Until then it stays failed, whatever the disk says.
	if err := r.s.sync(); !errors.Is(err, ErrFlush) {
		r.t.Fatalf("sync after a failed sync: %v", err)
	}
	if err := r.s.Append(r.s.Ends().Written, [][]byte{{1}}); !errors.Is(err, ErrFlush) {
		r.t.Fatalf("append after a failed sync: %v", err)
	}
	r.check()
	if err := r.s.Abandon(); err != nil {
		r.t.Fatal(err)
	}
	r.open(true)
}

func (r *session) open(again bool) {
	r.t.Helper()
	opt := r.opt
	opt.OnlySynced = again && !r.restart
	for {
		s, err := Open(opt, r.lock)
		if err == nil {
			r.s = s
			r.check()
			return
		}
		r.errs = append(r.errs, err)
		if len(r.errs) > 8 {
			r.t.Fatalf("does not open: %v", r.errs)
		}
	}
}

// run replicates the whole log with flushes, cut connections and a drop.
func (r *session) run() {
	r.t.Helper()
	var err error
	if r.lock, err = AcquireLock(r.opt.Dir); err != nil {
		r.t.Fatal(err)
	}
	r.opt.disk = r.disk
	r.open(false)
	for step := 1; r.s.Ends().Flushed != r.log.end(); step++ {
		if r.s.Ends().Min == wire.NoOffset {
			if err := r.s.Begin(r.log.start); err != nil {
				r.t.Fatal(err)
			}
		}
		if err := r.step(step); err != nil {
			r.failed(err)
		}
		r.check()
		if step == 5 { // as after a kill: what was written is found again
			if err := r.s.Abandon(); err != nil {
				r.t.Fatal(err)
			}
			r.open(false)
		}
	}
	if err := r.s.Close(); err != nil {
		r.t.Fatal(err)
	}
	checkPrefix(r.t, r.opt.Dir, r.log, r.log.end())
}

func (r *session) step(n int) error {
	at := r.s.Ends().Written
	next := min(at.Add(4000), r.log.end())
	if err := r.s.Append(at, [][]byte{r.log.at(at, at), r.log.at(at, next)}); err != nil {
		return err
	}
	if err := r.s.Verify(next); err != nil {
		return err
	}
	if n%3 == 0 || next == r.log.end() {
		if err := r.s.flush(); err != nil {
			return err
		}
	}
	if n%4 == 0 {
		if err := r.s.DropUnverified(); err != nil {
			return err
		}
		checkPrefix(r.t, r.opt.Dir, r.log, r.s.Ends().Verified)
	}
	if n == 12 {
		if _, err := r.s.DropBefore(r.log.start.Add(r.log.size)); err != nil {
			return err
		}
	}
	return nil
}

// TestFault31_Fault92_EveryDiskCallFailsOnce makes each call that changes a
// segment fail once. Whatever it was, the replica becomes whole without a
// restart, and nothing counts as synced that a failed sync has lost.
func TestFault31_Fault92_EveryDiskCallFailsOnce(t *testing.T) {
	t.Parallel()
	v := anyMessage
	v.MaxSize = 3000
	log := makeLog(7, 12000, 12000, 24, v)
	for _, restart := range []bool{false, true} {
		for k := 0; ; k++ {
			dir := t.TempDir()
			r := &session{
				t: t, log: log, restart: restart,
				opt:  Options{Dir: dir, SegmentSize: log.size, Ack: AckDisk},
				disk: newFaultyDisk(dir, func(call int, _ string) bool { return call == k }),
			}
			r.run()
			for _, name := range []string{"create", "open", "writev", "zero", "datasync", "syncDir"} {
				if r.disk.count(name) == 0 {
					t.Fatalf("%s is not called", name)
				}
			}
			if k > 0 && r.disk.failures == 0 {
				t.Logf("restart %v: %d calls", restart, k-1)
				break
			}
			if k > 0 && len(r.errs) == 0 {
				t.Fatalf("call %d (%s) failed and nobody said so", k, r.disk.calls[k-1])
			}
		}
	}
}

// TestFault31_FailedSyncIsRememberedByClose: Close does not try a failed sync
// again, and the next process knows.
func TestFault31_FailedSyncIsRememberedByClose(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(3, 65536, 0, 20, anyMessage)
	failing := false
	disk := newFaultyDisk(dir, func(_ int, name string) bool { return failing && name == "datasync" })
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size, disk: disk})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	half := log.bounds[10]
	feed(t, s, log, 0, half)
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, half, log.end())
	failing = true
	if err := s.flush(); !errors.Is(err, ErrFlush) {
		t.Fatalf("flush: %v", err)
	}
	failing = false
	if err := s.Close(); !errors.Is(err, ErrFlush) {
		t.Fatalf("close: %v", err)
	}
	state, err := ReadState(dir)
	if err != nil || !state.Unsynced || state.VerifiedEnd != half {
		t.Fatalf("state %+v, %v; want unsynced behind %d", state, err, half)
	}
	s = openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if got := s.Ends(); got.Verified != half || got.Flushed != half {
		t.Fatalf("ends %+v, want %d", got, half)
	}
	if s.State().Unsynced {
		t.Fatal("still unsynced")
	}
	// I8: what was cut back is kept.
	kept, err := filepath.Glob(filepath.Join(AgentDir(dir), "salvage", "*", "from-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("salvage: %v, %v", kept, err)
	}
	b, err := os.ReadFile(kept[0])
	if want := strings.TrimRight(string(log.at(half, log.end())), "\x00"); err != nil || string(b) != want {
		t.Fatalf("salvage has %d bytes, want %d (%v)", len(b), len(want), err)
	}
	feed(t, s, log, half, log.end())
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}

// TestFault31_OnlySyncedStopsAtTheState: also where it lies at the end of a
// segment, and where nothing was ever synced.
func TestFault31_OnlySyncedStopsAtTheState(t *testing.T) {
	log := makeLog(11, 9000, 0, 30, anyMessage)
	var rolled wire.PhyOffset
	for end := range log.blanks {
		if rolled == 0 || end < rolled {
			rolled = end
		}
	}
	for _, synced := range []wire.PhyOffset{wire.NoOffset, log.bounds[1], log.blanks[rolled], rolled, log.boundary(rolled.Add(3000))} {
		t.Run(fmt.Sprint(synced), func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
			if err := s.Begin(0); err != nil {
				t.Fatal(err)
			}
			at := wire.PhyOffset(0)
			if synced != wire.NoOffset {
				feed(t, s, log, 0, synced)
				if err := s.flush(); err != nil {
					t.Fatal(err)
				}
				at = synced
			}
			feed(t, s, log, at, log.end())
			if err := s.Abandon(); err != nil {
				t.Fatal(err)
			}
			again, err := Open(Options{Dir: dir, SegmentSize: log.size, OnlySynced: true}, s.lock)
			if err != nil {
				t.Fatal(err)
			}
			if got := again.Ends(); got.Verified != at {
				t.Fatalf("verified %d, want %d", got.Verified, at)
			}
			checkPrefix(t, dir, log, at)
			feed(t, again, log, at, log.end())
			closeStore(t, again)
			checkPrefix(t, dir, log, log.end())
		})
	}
}

// TestFault92_SegmentBornButNotMapped: the birth worked, the rest did not; the
// next try goes on with the same segment.
func TestFault92_SegmentBornButNotMapped(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(5, 65536, 0, 10, anyMessage)
	disk := newFaultyDisk(dir, nil)
	aside := filepath.Join(dir, "aside")
	disk.birth = func(path string) {
		if err := os.Rename(path, aside); err != nil {
			t.Error(err)
		}
	}
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size, disk: disk})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(0, [][]byte{log.bytes}); err == nil {
		t.Fatal("append to a segment that cannot be mapped")
	}
	if err := os.Rename(aside, filepath.Join(CommitLogDir(dir), commitlog.Name(0))); err != nil {
		t.Fatal(err)
	}
	if err := s.Intact(); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, 0, log.end())
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}

// TestFault92_WriteGotFurtherThanAdmitted: what a failed write left behind the
// written end is erased with the rest, over the end of a segment too.
func TestFault92_WriteGotFurtherThanAdmitted(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(13, 9000, 0, 12, anyMessage)
	failing := false
	disk := newFaultyDisk(dir, func(_ int, name string) bool { return failing && name == "writev" })
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size, disk: disk})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	half := log.bounds[2]
	feed(t, s, log, 0, half)
	failing = true
	if err := s.Append(half, [][]byte{log.at(half, log.end())}); !errors.Is(err, unix.EIO) {
		t.Fatalf("append: %v", err)
	}
	if e := s.Ends(); e.Written == half || e.Written == log.end() {
		t.Fatalf("ends %+v after a partial write", e)
	}
	failing = false
	if err := s.DropUnverified(); err != nil {
		t.Fatal(err)
	}
	checkPrefix(t, dir, log, half)
	failing = true
	if err := s.Append(half, [][]byte{log.at(half, half.Add(1))}); !errors.Is(err, unix.EIO) {
		t.Fatalf("append: %v", err)
	}
	if e := s.Ends(); e.Written != half {
		t.Fatalf("ends %+v, want written %d", e, half)
	}
	closeStore(t, s) // nothing admitted, one byte there
	checkPrefix(t, dir, log, half)
}
