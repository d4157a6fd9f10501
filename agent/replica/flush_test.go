package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/wire"
)

// runStore runs s until stop, which returns what Run said.
func runStore(s *Store) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// await waits until the ends are as wanted.
func await(t *testing.T, s *Store, wanted func(Ends) bool) Ends {
	t.Helper()
	moved, stop := s.Listen()
	defer stop()
	give := time.NewTimer(30 * time.Second)
	defer give.Stop()
	for {
		if e := s.Ends(); wanted(e) {
			return e
		}
		select {
		case <-moved:
		case <-give.C:
			t.Fatalf("the ends stay at %+v", s.Ends())
		}
	}
}

// TestRun_DiskAcksFollowTheVerifiedEnd, and what is acked is on disk: the disk
// is asked, not the store.
func TestRun_DiskAcksFollowTheVerifiedEnd(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(51, 20480, 0, 80, anyMessage)
	disk := newFaultyDisk(dir, nil)
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size, Ack: AckDisk, disk: disk})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	stop := runStore(s)
	for at := wire.PhyOffset(0); at < log.end(); {
		next := min(at.Add(7000), log.end())
		feed(t, s, log, at, next)
		at = next
		want := s.Ends().Verified
		e := await(t, s, func(e Ends) bool { return e.Acked >= want })
		if dirty := disk.dirtyBelow(e.Acked); len(dirty) > 0 {
			t.Fatalf("acked %d, not synced: %v", e.Acked, dirty)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if disk.count("syncDir") < len(segmentsOf(t, dir, log.size)) {
		t.Fatalf("%d directory syncs for %d segments", disk.count("syncDir"), len(segmentsOf(t, dir, log.size)))
	}
	// One descriptor is open, whatever number of segments there is.
	if len(s.open) != 1 {
		t.Fatalf("%d segments open", len(s.open))
	}
	closeStore(t, s)
}

// TestRun_GroupCommit: all messages that come during one sync share the next.
func TestRun_GroupCommit(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(52, 1<<20, 0, 100, anyMessage)
	disk := newFaultyDisk(dir, nil)
	entered, release := make(chan struct{}, 1000), make(chan struct{})
	disk.hold = func(name string) {
		if name == "datasync" {
			entered <- struct{}{}
			<-release
		}
	}
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size, Ack: AckDisk, disk: disk})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	stop := runStore(s)
	feed(t, s, log, 0, log.bounds[0])
	<-entered
	for i := range log.bounds[1:] {
		feed(t, s, log, log.bounds[i], log.bounds[i+1])
	}
	if e := s.Ends(); e.Acked != 0 || e.Verified != log.end() {
		t.Fatalf("ends %+v during the first sync", e)
	}
	close(release)
	await(t, s, func(e Ends) bool { return e.Acked == log.end() })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n := disk.count("datasync"); n != 2 {
		t.Fatalf("%d syncs for %d messages", n, len(log.bounds))
	}
	closeStore(t, s)
}

// TestRun_MemoryFlushesLazily: twice a second at most, with acks ahead of it.
func TestRun_MemoryFlushesLazily(t *testing.T) {
	log := makeLog(53, 1<<20, 0, 40, anyMessage)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := newFaultyDisk(dir, nil)
		s := openStore(t, Options{Dir: dir, SegmentSize: log.size, disk: disk})
		if err := s.Begin(0); err != nil {
			t.Fatal(err)
		}
		stop := runStore(s)
		start := time.Now()
		for i := range 20 { // one message each 100 ms
			at := wire.PhyOffset(0)
			if i > 0 {
				at = log.bounds[i-1]
			}
			feed(t, s, log, at, log.bounds[i])
			synctest.Wait()
			e := s.Ends()
			if e.Acked != log.bounds[i] {
				t.Fatalf("message %d is not acked: %+v", i, e)
			}
			if i < 5 && e.Flushed != 0 || i > 6 && e.Flushed < log.bounds[i-6] {
				t.Fatalf("after %v: ends %+v", time.Since(start), e)
			}
			<-time.After(100 * time.Millisecond)
		}
		if n := disk.count("datasync"); n > 5 {
			t.Fatalf("%d syncs in %v", n, time.Since(start))
		}
		<-time.After(lazyFlush)
		synctest.Wait()
		if e := s.Ends(); e.Flushed != log.bounds[19] {
			t.Fatalf("ends %+v once idle", e)
		}
		n := disk.count("datasync")
		<-time.After(time.Hour)
		if disk.count("datasync") != n {
			t.Fatal("syncs without anything to sync")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
	})
}

// TestFault31_RunEndsWithTheFirstFailedSync, and no ack passes it.
func TestFault31_RunEndsWithTheFirstFailedSync(t *testing.T) {
	for _, ack := range []Ack{AckMemory, AckDisk} {
		dir := t.TempDir()
		log := makeLog(54, 65536, 0, 40, anyMessage)
		disk := newFaultyDisk(dir, func(call int, name string) bool { return name == "datasync" && call > 4 })
		s := openStore(t, Options{Dir: dir, SegmentSize: log.size, Ack: ack, disk: disk})
		if err := s.Begin(0); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { ended <- s.Run(ctx) }()
		var err error
		at := wire.PhyOffset(0)
		for i := 0; err == nil; i++ {
			if next := log.boundary(min(at.Add(5000), log.end())); next > at {
				if err := errors.Join(s.Append(at, [][]byte{log.at(at, next)}), s.Verify(next)); err != nil && !errors.Is(err, ErrFlush) {
					t.Fatal(err)
				}
				at = s.Ends().Written
			}
			select {
			case err = <-ended:
			default:
			}
		}
		if !errors.Is(err, ErrFlush) || !errors.Is(err, unix.EIO) {
			t.Fatalf("run: %v", err)
		}
		frozen := s.Ends()
		if err := s.Verify(frozen.Written); !errors.Is(err, ErrFlush) {
			t.Fatalf("verify: %v", err)
		}
		if e := s.Ends(); e != frozen {
			t.Fatalf("ends moved from %+v to %+v", frozen, e)
		}
		if err := s.Run(ctx); err == nil {
			t.Fatal("runs again")
		}
		cancel()
		kill(t, s)
	}
}

// TestFault92_RunGoesOnAfterStateCouldNotBeWritten.
func TestFault92_RunGoesOnAfterStateCouldNotBeWritten(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(55, 20480, 0, 40, anyMessage)
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size, Ack: AckDisk})
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(AgentDir(dir), "tmp")
	if err := os.Rename(tmp, tmp+".away"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, tmp, "in the way")
	feed(t, s, log, 0, log.end())
	if err := s.Run(t.Context()); err == nil || errors.Is(err, ErrFlush) {
		t.Fatalf("run: %v", err)
	}
	// The log has passed the end of a segment, which the state must know first.
	if e := s.Ends(); e.Acked != 0 {
		t.Fatalf("ends %+v", e)
	}
	if err := errors.Join(os.Remove(tmp), os.Rename(tmp+".away", tmp)); err != nil {
		t.Fatal(err)
	}
	stop := runStore(s)
	await(t, s, func(e Ends) bool { return e.Acked == log.end() })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
}

// TestStore_UnderLoad runs everything at once that may run at once.
func TestStore_UnderLoad(t *testing.T) {
	for _, ack := range []Ack{AckMemory, AckDisk} {
		dir := t.TempDir()
		log := makeLog(56, 65536, 65536, 600, anyMessage)
		s := openStore(t, Options{Dir: dir, SegmentSize: log.size, Ack: ack})
		if err := s.Begin(log.start); err != nil {
			t.Fatal(err)
		}
		stop := runStore(s)
		done := make(chan struct{})
		var watchers sync.WaitGroup
		for _, watch := range []func(before Ends) Ends{
			func(before Ends) Ends { return checkMoves(t, s, log, before) },
			func(before Ends) Ends {
				if err := s.Intact(); err != nil {
					t.Errorf("intact: %v", err)
				}
				s.LastStored()
				s.State()
				return before
			},
			func(before Ends) Ends {
				e := s.Ends()
				if _, err := s.DropBefore(e.Verified.Add(-4 * log.size)); err != nil {
					t.Errorf("drop: %v", err)
				}
				if n := min(e.Verified.Sub(e.Min), 3000); n > 0 {
					at := e.Verified.Add(-n)
					if err := s.Compare(at, log.at(at, e.Verified)); err != nil {
						t.Errorf("compare: %v", err)
					}
				}
				return before
			},
		} {
			watchers.Go(func() {
				var e Ends
				for {
					select {
					case <-done:
						return
					default:
						e = watch(e)
					}
				}
			})
		}
		r := rand.New(rand.NewPCG(57, uint64(len(ack))))
		for at := log.start; at < log.end(); {
			next := min(at.Add(wire.ByteSize(1+r.IntN(40<<10))), log.end())
			feed(t, s, log, at, next)
			at = next
			if r.IntN(10) == 0 {
				if err := s.DropUnverified(); err != nil {
					t.Fatal(err)
				}
				at = s.Ends().Written
			}
		}
		await(t, s, func(e Ends) bool { return e.Flushed == log.end() })
		close(done)
		watchers.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		start, b := content(t, dir, log.size)
		if got, want := b[:log.end().Sub(start)], log.at(start, log.end()); string(got) != string(want) {
			t.Fatal("the replica differs")
		}
	}
}

// checkMoves fails unless the ends are in order and only go up.
func checkMoves(t *testing.T, s *Store, log *sourceLog, before Ends) Ends {
	e := s.Ends()
	if e.Min > e.Flushed || e.Flushed > e.Verified || e.Verified > e.Written || e.Acked > e.Verified {
		t.Errorf("ends out of order: %+v", e)
	}
	if e.Min < before.Min || e.Flushed < before.Flushed || e.Verified < before.Verified || e.Acked < before.Acked {
		t.Errorf("ends fell from %+v to %+v", before, e)
	}
	for _, o := range []wire.PhyOffset{e.Flushed, e.Verified, e.Acked} {
		if log.boundary(o) != o {
			t.Errorf("%d is no boundary", o)
		}
	}
	return e
}

func TestListen(t *testing.T) {
	log := makeLog(58, 65536, 0, 10, anyMessage)
	s := openStore(t, Options{Dir: t.TempDir(), SegmentSize: log.size})
	defer closeStore(t, s)
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	moved, stop := s.Listen()
	other, stopOther := s.Listen()
	defer stopOther()
	woken := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	if err := s.Append(0, [][]byte{log.at(0, log.bounds[0]-1)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Verify(log.bounds[0] - 1); err != nil {
		t.Fatal(err)
	}
	if woken(moved) {
		t.Fatal("woken by part of a message")
	}
	feed(t, s, log, log.bounds[0]-1, log.bounds[3])
	if !woken(moved) || woken(moved) || !woken(other) {
		t.Fatal("the verified end moved: one wake-up each")
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	if !woken(moved) {
		t.Fatal("not woken by the flushed end")
	}
	stop()
	feed(t, s, log, log.bounds[3], log.bounds[5])
	if woken(moved) {
		t.Fatal("woken after the end")
	}
	if got := s.LastStored(); !got.Equal(log.stored[log.bounds[5]].Time()) {
		t.Fatalf("last stored %v", got)
	}
	if at := s.LastMessage(); at != log.begins[log.bounds[5]] {
		t.Fatalf("last message %d", at)
	}
}
