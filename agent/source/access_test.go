package source_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
)

const segmentSize = 16 * wire.KiB

func TestDigest_OverSegments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: segmentSize, Start: wire.PhyOffset(segmentSize)})
	_, end := fill(t, w, random(40), 60)
	s := start(t, source.Options{Dir: dir, Settle: -1})
	confirmed := s.until("the log", func(e source.Ends) bool { return e.Visible == end }).Confirmed
	first := wire.PhyOffset(segmentSize)
	for _, c := range []struct {
		name string
		at   wire.PhyOffset
		size wire.ByteSize
		want source.Verdict // of a digest that differs
	}{
		{"the head", first, 100, source.Differs},
		{"over an end", first.Add(segmentSize - 10), 20, source.Differs},
		{"over two ends", first.Add(segmentSize - 10), segmentSize + 20, source.Differs},
		{"up to the confirmed end", confirmed.Add(-50), 50, source.Differs},
		{"beyond the confirmed end", confirmed.Add(-50), 51, source.Unknown},
		{"up to the visible end", confirmed, end.Sub(confirmed), source.Unknown},
	} {
		sum := sha256.Sum256(logBytes(t, dir, c.at, c.size))
		got, err := s.Digest(c.at, c.size)
		if err != nil || got != sum {
			t.Errorf("%s: digest %x, %v", c.name, got, err)
		}
		if v := s.Compare(c.at, c.size, sum); v != source.Equal {
			t.Errorf("%s: the same bytes are %v", c.name, v)
		}
		sum[0]++
		if v := s.Compare(c.at, c.size, sum); v != c.want {
			t.Errorf("%s: other bytes are %v, want %v", c.name, v, c.want)
		}
	}
	for name, c := range map[string]struct {
		at   wire.PhyOffset
		size wire.ByteSize
	}{
		"below min": {first - 1, 10}, "all below": {0, 10}, "negative": {-5, 10}, "beyond the end": {end.Add(-5), 6},
		"far beyond": {1 << 60, 10}, "at the largest": {1<<63 - 1, 10},
	} {
		if _, err := s.Digest(c.at, c.size); !errors.Is(err, source.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if v := s.Compare(c.at, c.size, [32]byte{}); v != source.Unknown {
			t.Errorf("%s: %v", name, v)
		}
	}
	for _, size := range []wire.ByteSize{0, -1, source.MaxDigest + 1, 1 << 62} {
		if _, err := s.Digest(first, size); err == nil {
			t.Errorf("a digest of %d bytes", size)
		}
		if v := s.Compare(first, size, [32]byte{}); v != source.Unknown {
			t.Errorf("%d bytes are %v", size, v)
		}
	}
	// A segment that has lost its end is no reason to die, nor to say that bytes differ.
	if err := os.Truncate(segmentPath(dir, commitlog.Name(first)), 50); err != nil {
		t.Fatal(err)
	}
	if v := s.Compare(first, 100, [32]byte{}); v != source.Unknown {
		t.Errorf("bytes that are gone are %v", v)
	}
}

// logBytes reads the log from its files.
func logBytes(t *testing.T, dir string, at wire.PhyOffset, size wire.ByteSize) []byte {
	t.Helper()
	var out []byte
	for base := at.SegmentBase(segmentSize); wire.ByteSize(len(out)) < size; base = base.Add(segmentSize) {
		all, err := os.ReadFile(segmentPath(dir, commitlog.Name(base)))
		if err != nil {
			t.Fatal(err)
		}
		if base < at {
			all = all[at.Sub(base):]
		}
		out = append(out, all...)
	}
	return out[:size]
}

func TestOpenSegment_OutlivesItsFile_Fault60(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: segmentSize, Start: 5 << 32})
	fill(t, w, random(41), 60)
	s := start(t, source.Options{Dir: dir, Settle: -1, Rescan: 5 * time.Millisecond})
	s.until("the log", func(e source.Ends) bool { return e.Visible == w.End() })
	at := wire.PhyOffset(5 << 32).Add(100)
	seg, err := s.OpenSegment(at)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	want := logBytes(t, dir, seg.Base, segmentSize)
	next, err := w.DropOldest()
	if err != nil {
		t.Fatal(err)
	}
	if seg.Base != 5<<32 || seg.End != seg.Base.Add(segmentSize) || !bytes.Equal(seg.Bytes(), want) {
		t.Error("the deleted segment is not what it was")
	}
	got := make([]byte, segmentSize)
	if _, err := seg.File.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the deleted file is not what it was: %v", err)
	}
	if err := errors.Join(seg.Close(), seg.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	s.until("the new min", func(e source.Ends) bool { return e.Min == next })
	for _, at := range []wire.PhyOffset{at, 0, -1, 1 << 61, 1<<63 - 1} {
		if seg, err := s.OpenSegment(at); !errors.Is(err, source.ErrNoSegment) {
			t.Errorf("a segment for %d: %v, %v", at, seg, err)
		}
	}
}

func TestOpenSegment_CutShort_Fault73(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: segmentSize})
	fill(t, w, random(42), 60)
	s := start(t, source.Options{Dir: dir, Settle: -1})
	s.until("the log", func(e source.Ends) bool { return e.Visible == w.End() })
	seg, err := s.OpenSegment(0)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	if err := os.Truncate(segmentPath(dir, commitlog.Name(0)), 0); err != nil {
		t.Fatal(err)
	}
	var fault *commitlog.FaultError
	if err := commitlog.Guard(func() error { _ = sha256.Sum256(seg.Bytes()); return nil }); !errors.As(err, &fault) {
		t.Errorf("reading what is gone: %v", err)
	}
	if err := os.Truncate(segmentPath(dir, commitlog.Name(0)), 100); err != nil {
		t.Fatal(err)
	}
	var length *commitlog.LengthError
	if _, err := s.OpenSegment(0); !errors.As(err, &length) {
		t.Errorf("opening what is short: %v", err)
	}
}

// TestSource_DeleteWhileReading_Fault13 seeds and deletes in a loop while a reader
// opens segments by offset: what it gets is what the log has there, or nothing.
func TestSource_DeleteWhileReading_Fault13(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: segmentSize})
	s := start(t, source.Options{Dir: dir, Settle: -1, Rescan: time.Millisecond})
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			e := s.Ends()
			if e.Confirmed == wire.NoOffset || e.Confirmed < e.Min.Add(64) {
				continue
			}
			seg, err := s.OpenSegment(e.Min)
			if err != nil {
				continue // deleted since
			}
			var rec commitlog.Record
			err = commitlog.Parse(seg.Bytes(), seg.Base, seg.End, &rec)
			if err != nil && !errors.Is(err, commitlog.ErrSegmentEnd) {
				t.Errorf("the segment at %d begins with %v; the ends were %+v", seg.Base, err, e)
			}
			seg.Close()
		}
	})
	r := random(43)
	for range 150 {
		for w.End() < w.Min().Add(3*segmentSize) {
			fill(t, w, r, 1)
		}
		for range 2 {
			if _, err := w.DropOldest(); err != nil {
				t.Fatal(err)
			}
		}
		if e := s.Ends(); e.Confirmed > w.End() {
			t.Fatalf("the log ends at %d: %+v", w.End(), e)
		}
	}
	last, _ := fill(t, w, r, 3)
	s.until("the end", func(e source.Ends) bool { return e.Confirmed == last && e.Min == w.Min() })
	s.untilWell()
}

func TestSource_ManyListenersWake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: segmentSize})
	s := start(t, source.Options{Dir: dir, Settle: -1})
	var wg sync.WaitGroup
	for range 300 {
		moved, stop := s.Listen()
		wg.Go(func() {
			defer stop()
			for s.Ends().Visible < wire.PhyOffset(segmentSize) {
				select {
				case <-moved:
				case <-time.After(patience):
					t.Errorf("not woken: %+v", s.Ends())
					return
				}
			}
		})
	}
	r := random(44)
	for w.End() < wire.PhyOffset(segmentSize)+1 {
		fill(t, w, r, 1)
	}
	wg.Wait()
}

func TestSource_Now(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: segmentSize})
	word := newAuthority()
	s := start(t, source.Options{Dir: dir, Settle: -1, Authority: word})
	_, end := fill(t, w, random(45), 5)
	s.until("the log", func(e source.Ends) bool { return e.Visible == end })
	for range 100 {
		_, end = fill(t, w, random(45), 1)
		if now, looked := s.Now(context.Background()); now != end || !looked {
			t.Fatalf("the log ends at %d, Now says %d, %t", end, now, looked)
		}
	}
	word.say(end + 100) // a broker whose files lag behind
	if now, looked := s.Now(context.Background()); now != end+100 || !looked {
		t.Errorf("Now says %d, %t, the broker %d", now, looked, end+100)
	}
	if s.LastStored().Year() != 2023 {
		t.Errorf("stored at %v", s.LastStored())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if now, looked := s.Now(ctx); now != end+100 || looked {
		t.Errorf("without time to look Now says %d, %t", now, looked)
	}
	s.stop()
	if now, looked := s.Now(context.Background()); now != end+100 || looked {
		t.Errorf("after the end Now says %d, %t", now, looked)
	}
	if err := s.Run(context.Background()); !errors.Is(err, source.ErrRunning) {
		t.Errorf("running twice: %v", err)
	}
}

func TestSource_HintsAreLookedAt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, forge.Options{Dir: dir, SegmentSize: segmentSize})
	fill(t, w, random(46), 40)
	hints := make(chan struct{}, 1)
	s := start(t, source.Options{Dir: dir, Settle: -1, Hints: hints, Rescan: time.Hour})
	s.until("the log", func(e source.Ends) bool { return e.Visible == w.End() })
	next, err := w.DropOldest()
	if err != nil {
		t.Fatal(err)
	}
	hints <- struct{}{}
	s.until("the new min", func(e source.Ends) bool { return e.Min == next })
}

func TestSource_NothingGiven(t *testing.T) {
	t.Parallel()
	for _, o := range []source.Options{{}, {Dir: "x", SegmentSize: -1}} {
		if err := source.New(o).Run(context.Background()); err == nil {
			t.Errorf("%+v runs", o)
		}
	}
}
