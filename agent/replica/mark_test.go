package replica

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// doubtfulLog is a log of messages whose zeros might be pages that never came.
func doubtfulLog(size wire.ByteSize, n int) *sourceLog {
	return makeLogOf(11, size, 0, n, func(r *rand.Rand) forge.Message {
		m := forge.RandomMessage(r, forge.Variety{MaxSize: 1024})
		m.PropertyCRC = false
		m.Properties = forge.AppendProperty(m.Properties, "blank", "\x00\x00\x00")
		return m
	})
}

// unsaved is a replica whose state on disk knows of the first segment only, killed
// when all of the log was verified.
func unsaved(t *testing.T, log *sourceLog, ack Ack) Options {
	t.Helper()
	opt := Options{Dir: t.TempDir(), SegmentSize: log.size, Ack: ack}
	s := openStore(t, opt)
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	first := wire.PhyOffset(log.size)
	feed(t, s, log, 0, first)
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, first, log.end())
	kill(t, s)
	return opt
}

// TestMark_KillLosesNothing: with AckMemory, what was acked is believed by the next
// process, and the one after that, even where only its own word tells it from
// pages that never came.
func TestMark_KillLosesNothing(t *testing.T) {
	t.Parallel()
	log := doubtfulLog(16<<10, 100)
	opt := unsaved(t, log, AckMemory)
	for range 2 {
		s := openStore(t, opt)
		if e := s.Ends(); e.Verified != log.end() {
			t.Fatalf("verified is %d after a kill, was %d", e.Verified, log.end())
		}
		kill(t, s)
	}
	checkPrefix(t, opt.Dir, log, log.end())
}

// TestI3_Mark_OutlivesItsPages: a disk that drops out and comes back within one run
// of the kernel may have kept the mark and lost pages from before it, wherever they
// are. The mark is not believed then.
func TestI3_Mark_OutlivesItsPages(t *testing.T) {
	t.Parallel()
	log := doubtfulLog(16<<10, 100)
	for at := wire.PhyOffset(log.size); at < log.end(); at += 1 << 10 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			opt := unsaved(t, log, AckMemory)
			base := at.SegmentBase(log.size)
			path := filepath.Join(CommitLogDir(opt.Dir), commitlog.Name(base))
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(make([]byte, 64), int64(at.Sub(base))); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, opt)
			if e := s.Ends(); e.Verified > at && !allZero(log.at(at, min(at+64, log.end()))) {
				t.Errorf("verified is %d, but nothing has come to %d", e.Verified, at)
			}
			checkPrefix(t, opt.Dir, log, s.Ends().Verified)
			feed(t, s, log, s.Ends().Verified, log.end())
			closeStore(t, s)
			checkPrefix(t, opt.Dir, log, log.end())
		})
	}
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// TestMark_OfALogThatWasCutBackSince is not believed, although its digest fits: what
// lies before its start is not what lay there.
func TestMark_OfALogThatWasCutBackSince(t *testing.T) {
	t.Parallel()
	log := doubtfulLog(16<<10, 100)
	opt := unsaved(t, log, AckMemory)
	changeState(t, opt.Dir, func(st *State) { st.VerifiedEnd, st.LastMessage = log.bounds[3], log.bounds[2] })
	s := openStore(t, opt)
	if e := s.Ends(); e.Verified >= wire.PhyOffset(log.size) {
		t.Errorf("verified is %d: the mark was believed", e.Verified)
	}
	kill(t, s)
}

// TestMark_Rotten: a mark that is not whole says nothing, and does no harm.
func TestMark_Rotten(t *testing.T) {
	t.Parallel()
	log := doubtfulLog(16<<10, 100)
	for _, mark := range []string{"", "x", string(make([]byte, 36)), string(make([]byte, 4096))} {
		opt := unsaved(t, log, AckMemory)
		writeFile(t, filepath.Join(AgentDir(opt.Dir), "verified"), mark)
		s := openStore(t, opt)
		if e := s.Ends(); e.Verified < wire.PhyOffset(log.size) || e.Verified >= log.end() {
			t.Errorf("mark %q: verified is %d", mark, e.Verified)
		}
		kill(t, s)
	}
}

// TestMark_OutlivesRetention: the mark does not need what was dropped, and what it
// needs is not dropped.
func TestMark_OutlivesRetention(t *testing.T) {
	t.Parallel()
	log := doubtfulLog(16<<10, 100)
	opt := Options{Dir: t.TempDir(), SegmentSize: log.size, Ack: AckMemory}
	s := openStore(t, opt)
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	at, first := wire.PhyOffset(0), wire.PhyOffset(log.size)
	for _, next := range []wire.PhyOffset{log.bounds[3], first} {
		feed(t, s, log, at, next)
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	last := log.bounds[0] // in the second segment: one step, which the state does not know
	for _, b := range log.bounds {
		if b < first.Add(log.size/2) {
			last = b
		}
	}
	feed(t, s, log, first, last)
	if n, err := s.DropBefore(last); n != 1 || err != nil {
		t.Errorf("dropped %d segments, %v; only the first one is synced", n, err)
	}
	kill(t, s)
	s = openStore(t, opt)
	if e := s.Ends(); e.Min != first || e.Verified != last {
		t.Errorf("%+v after a kill, verified was %d", e, last)
	}
	kill(t, s)
}

// TestMark_Needs: a part of the log that the state does not vouch for must stay
// whole.
func TestMark_Needs(t *testing.T) {
	t.Parallel()
	d := tailDigest{old: digest{since: 10, end: 20}, latest: digest{since: 20, end: 30}}
	for saved, want := range map[wire.PhyOffset]wire.PhyOffset{0: 10, 19: 10, 20: 20, 29: 20, 30: everything, 31: everything} {
		if got := d.needs(saved); got != want {
			t.Errorf("saved up to %d, the log is needed from %d on, want %d", saved, got, want)
		}
	}
}
