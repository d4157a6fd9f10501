package replica

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// disturbances are what somebody else may do to a store that is held.
var disturbances = []struct {
	name   string
	do     func(t *testing.T, dir string, segments []commitlog.Segment)
	traces bool // left by a broker: the store does not open without Disturbed
	loss   bool // of segments at the end
}{
	{"checkpoint", func(t *testing.T, dir string, _ []commitlog.Segment) {
		writeFile(t, filepath.Join(dir, "checkpoint"), "12345678")
	}, true, false},
	{"consumequeue", func(t *testing.T, dir string, _ []commitlog.Segment) {
		writeFile(t, filepath.Join(dir, "consumequeue", "t", "0", "00000000000000000000"), "x")
	}, true, false},
	{"index", func(t *testing.T, dir string, _ []commitlog.Segment) {
		writeFile(t, filepath.Join(dir, "index", "20200101000000000"), "x")
	}, true, false},
	{"what 5.x leaves", func(t *testing.T, dir string, _ []commitlog.Segment) {
		for _, name := range []string{"timerwheel", "config/timercheck", "rocksdbstore/CURRENT", "compaction/position-checkpoint"} {
			writeFile(t, filepath.Join(dir, name), "x")
		}
		writeFile(t, filepath.Join(dir, "config", "topics.json"), "{}")
	}, true, false},
	{"newest segment deleted, as a recovering broker does", func(t *testing.T, dir string, segments []commitlog.Segment) {
		if err := os.Remove(segments[len(segments)-1].Path); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "checkpoint"), "12345678")
	}, true, true},
	{"abort removed, as a broker that is stopped does", func(t *testing.T, dir string, _ []commitlog.Segment) {
		if err := os.Remove(filepath.Join(dir, "abort")); err != nil {
			t.Fatal(err)
		}
	}, false, false},
	{"next segment made in advance", func(t *testing.T, dir string, segments []commitlog.Segment) {
		next := segments[len(segments)-1].End()
		path := filepath.Join(CommitLogDir(dir), commitlog.Name(next))
		writeFile(t, path, "")
		if err := os.Truncate(path, int64(segments[0].Size)); err != nil {
			t.Fatal(err)
		}
	}, false, false},
	{"lock replaced", func(t *testing.T, dir string, _ []commitlog.Segment) {
		if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "lock"), "lock")
	}, false, false},
	{"lock removed", func(t *testing.T, dir string, _ []commitlog.Segment) {
		if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
			t.Fatal(err)
		}
	}, false, false},
	{"segment replaced by a copy", func(t *testing.T, _ string, segments []commitlog.Segment) {
		path := segments[len(segments)-1].Path
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, path+".x", string(b))
		if err := os.Rename(path+".x", path); err != nil {
			t.Fatal(err)
		}
	}, false, false},
}

// TestCorrection1_DisturbedIsNoticedAndHealed: each disturbance is noticed, the
// store is not promoted with it, and opening it again makes it whole.
func TestCorrection1_DisturbedIsNoticedAndHealed(t *testing.T) {
	log := makeLog(21, 9000, 9000, 40, anyMessage)
	for _, tt := range disturbances {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := replicate(t, dir, log)
			if err := errors.Join(s.flush(), s.Intact()); err != nil {
				t.Fatal(err)
			}
			tt.do(t, dir, segmentsOf(t, dir, log.size))
			if err := s.Intact(); !errors.Is(err, ErrDisturbed) {
				t.Fatalf("intact: %v", err)
			}
			if _, err := s.Promote(); !errors.Is(err, ErrDisturbed) {
				t.Fatalf("promote: %v", err)
			}
			if err := s.Abandon(); err != nil {
				t.Fatal(err)
			}
			opt := Options{Dir: dir, SegmentSize: log.size}
			_, err := Open(opt, s.lock)
			if tt.traces {
				if !errors.Is(err, ErrBrokerWrote) {
					t.Fatalf("open: %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if err := s.lock.Release(); err != nil { // of a file that may be gone
				t.Fatal(err)
			}
			opt.Disturbed = true
			s = openStore(t, opt)
			if err := s.Intact(); err != nil {
				t.Fatal(err)
			}
			at := s.Ends().Verified
			if tt.loss == (at == log.end()) {
				t.Fatalf("verified %d of %d", at, log.end())
			}
			feed(t, s, log, at, log.end())
			closeStore(t, s)
			checkPrefix(t, dir, log, log.end())
			bootable(t, dir)
			if tt.traces {
				set, err := filepath.Glob(filepath.Join(AgentDir(dir), "set-aside", "*", "*"))
				if err != nil || len(set) == 0 {
					t.Fatalf("set aside: %v, %v", set, err)
				}
			}
		})
	}
}

// bootable fails unless a broker that boots on dir rebuilds its queues and
// finds the store free.
func bootable(t *testing.T, dir string) {
	t.Helper()
	if !exists(filepath.Join(dir, "abort")) {
		t.Fatal("no abort marker")
	}
	for _, name := range []string{
		"checkpoint", "consumequeue", "index", "timerwheel", "timerlog", "config/timercheck",
		"consumequeue_ext", "compaction", "rocksdbstore",
	} {
		if exists(filepath.Join(dir, name)) {
			t.Fatalf("%s is there", name)
		}
	}
	lock, err := AcquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestCorrection1_DisturbedVerifiesFromTheFirstByte: whoever was there may have
// changed anything.
func TestCorrection1_DisturbedVerifiesFromTheFirstByte(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(22, 9000, 0, 40, anyMessage)
	s := replicate(t, dir, log)
	closeStore(t, s)
	changed := log.spoil(t, dir, 1)
	s = openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if e := s.Ends(); e.Verified != log.end() {
		t.Fatalf("ends %+v: a start reads the end only", e)
	}
	closeStore(t, s)
	s = openStore(t, Options{Dir: dir, SegmentSize: log.size, Disturbed: true})
	if e := s.Ends(); e.Verified != changed || e.Flushed != changed {
		t.Fatalf("ends %+v, want %d", e, changed)
	}
	// Fault 26: no position that is kept anywhere is beyond the new end.
	if st, err := ReadState(dir); err != nil || st.VerifiedEnd != changed || st.LastMessage >= changed {
		t.Fatalf("state %+v, %v", st, err)
	}
	checkPrefix(t, dir, log, changed)
	// I8: all that was cut back is kept.
	tail, err := filepath.Glob(filepath.Join(AgentDir(dir), "salvage", "*", "from-*"))
	if err != nil || len(tail) != 1 {
		t.Fatal(tail, err)
	}
	segments, err := filepath.Glob(filepath.Join(AgentDir(dir), "salvage", "*", "0*"))
	if want := int(log.end().SegmentBase(log.size) / wire.PhyOffset(log.size)); err != nil || len(segments) != want {
		t.Fatalf("%d segments kept, want %d: %v", len(segments), want, err)
	}
	feed(t, s, log, changed, log.end())
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}

// TestFault26_KilledWhileCuttingBack: the state comes first, so that a cut that
// did not happen leaves no position behind the end that was found.
func TestFault26_KilledWhileCuttingBack(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(23, 9000, 0, 40, anyMessage)
	closeStore(t, replicate(t, dir, log))
	changed := log.spoil(t, dir, 5)
	disk := newFaultyDisk(dir, func(_ int, name string) bool { return name == "zero" })
	opt := Options{Dir: dir, SegmentSize: log.size, Verify: true, disk: disk}
	if _, err := tryOpen(opt); err == nil {
		t.Fatal("opened without cutting")
	}
	segmentsOf(t, dir, log.size)
	if st, err := ReadState(dir); err != nil || st.VerifiedEnd != changed || st.LastMessage >= changed {
		t.Fatalf("state %+v, %v", st, err)
	}
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if e := s.Ends(); e.Verified != changed {
		t.Fatalf("ends %+v", e)
	}
	closeStore(t, s)
	checkPrefix(t, dir, log, changed)
}

// TestI2_StateNewerThanTheLog: the segments are those of an older backup, so at
// the place of the last message there is none.
func TestI2_StateNewerThanTheLog(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(24, 65536, 0, 20, anyMessage)
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	old := log.bounds[5]
	feed(t, s, log, 0, old)
	path := filepath.Join(CommitLogDir(dir), commitlog.Name(0))
	backup, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, old, log.end())
	closeStore(t, s)
	writeFile(t, path, string(backup))
	s = openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if e := s.Ends(); e.Verified != old || e.Flushed != old {
		t.Fatalf("ends %+v, want %d", e, old)
	}
	closeStore(t, s)
	if st, err := ReadState(dir); err != nil || st.VerifiedEnd != old {
		t.Fatalf("state %+v, %v", st, err)
	}
	checkPrefix(t, dir, log, old)
}

// TestFault64_HoleInTheSegments: what lies behind a hole is kept, but not in the
// log, where it would be deleted by the next broker.
func TestFault64_HoleInTheSegments(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(25, 9000, 0, 40, anyMessage)
	closeStore(t, replicate(t, dir, log))
	segments := segmentsOf(t, dir, log.size)
	if err := os.Remove(segments[2].Path); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	at := s.Ends().Verified
	if blank := log.blanks[segments[2].Base]; at != blank && at != segments[2].Base {
		t.Fatalf("verified %d, the hole begins at %d", at, segments[2].Base)
	}
	checkPrefix(t, dir, log, at)
	kept, err := filepath.Glob(filepath.Join(AgentDir(dir), "salvage", "*", "0*"))
	if err != nil || len(kept) != len(segments)-3 {
		t.Fatal(kept, err)
	}
	feed(t, s, log, at, log.end())
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}

// TestRebooted_DoubtsWhatWasNotSynced: pages that were lost with the machine
// read as zeros, where no checksum covers them: in topic and properties, and
// behind a BLANK.
func TestRebooted_DoubtsWhatWasNotSynced(t *testing.T) {
	log := makeLog(26, 20480, 0, 40, anyMessage)
	var rolled wire.PhyOffset
	for rolled = range log.blanks {
		break
	}
	synced, properties := log.bounds[2], wire.PhyOffset(0)
	for i := 4; properties == 0; i++ {
		if end := log.bounds[i]; log.at(end-1, end)[0] == commitlog.PropertySeparator && end < rolled {
			properties = end
		}
	}
	for _, tt := range []struct {
		name string
		lose span
		boot string
		end  wire.PhyOffset
	}{
		{"nothing lost, same boot", span{}, "", log.end()},
		{"properties", span{int64(properties) - 5, int64(properties)}, "other", log.begins[properties]},
		{"nothing lost", span{}, "other", log.blanks[20480]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
			if err := s.Begin(0); err != nil {
				t.Fatal(err)
			}
			feed(t, s, log, 0, synced)
			if err := s.flush(); err != nil {
				t.Fatal(err)
			}
			feed(t, s, log, synced, log.end())
			kill(t, s)
			if tt.boot != "" {
				state, err := ReadState(dir)
				if err != nil {
					t.Fatal(err)
				}
				state.Boot = tt.boot
				if err := writeState(dir, state); err != nil {
					t.Fatal(err)
				}
			}
			f, err := os.OpenFile(filepath.Join(CommitLogDir(dir), commitlog.Name(0)), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(make([]byte, tt.lose.to-tt.lose.from), tt.lose.from)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			s = openStore(t, Options{Dir: dir, SegmentSize: log.size})
			if e := s.Ends(); e.Verified != tt.end {
				t.Fatalf("ends %+v, want %d (synced %d)", e, tt.end, synced)
			}
			checkPrefix(t, dir, log, tt.end)
			feed(t, s, log, tt.end, log.end())
			closeStore(t, s)
			checkPrefix(t, dir, log, log.end())
		})
	}
}

func TestMoveFile_ToAnotherFileSystem(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "haagent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(other); err != nil {
			t.Error(err)
		}
	})
	from, to := filepath.Join(t.TempDir(), "a"), filepath.Join(other, "b")
	writeFile(t, from, "content")
	if err := moveFile(from, to); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(to)
	if err != nil || string(b) != "content" || exists(from) {
		t.Fatalf("%q, %v", b, err)
	}
	if err := writeNew(to, failingReader{}); !errors.Is(err, os.ErrExist) {
		t.Fatalf("over another file: %v", err)
	}
	half := filepath.Join(other, "half")
	if err := writeNew(half, failingReader{}); !errors.Is(err, io.ErrUnexpectedEOF) || exists(half) {
		t.Fatalf("half a file: %v", err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
