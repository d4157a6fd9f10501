package metadata

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// running starts s inside a bubble; the test ends it and waits for it.
func running(t *testing.T, s *Snapshotter) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSnapshotter_Run_IntervalAndHints(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, "topics.json", topics(1, 3))
	synctest.Test(t, func(t *testing.T) {
		hints := make(chan struct{}, 1)
		s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(1), Changed: hints})
		moved, stop := s.Listen()
		defer stop()
		start := time.Now()
		running(t, s)
		next := func(what string, want time.Duration) {
			t.Helper()
			<-moved
			if got := time.Since(start); got != want {
				t.Errorf("%s: a snapshot after %v, want %v", what, got, want)
			}
		}
		next("start", 0)
		next("interval", 10*time.Second)
		next("interval", 20*time.Second)
		written(t, dir, "topics.json", topics(2, 3))
		time.Sleep(time.Second)
		hints <- struct{}{}
		next("hint", 21*time.Second+DefaultDebounce)
		if got, _ := s.Latest(); got.Files[0].DataVersion.Counter != 2 {
			t.Errorf("version %v", got.Files[0].DataVersion)
		}
		next("an interval after the last one", 31*time.Second+DefaultDebounce)
		// A storm of hints costs one snapshot each debounce.
		before, _ := s.Latest()
		var taken int
		for range 1000 {
			select {
			case hints <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
			select {
			case <-moved:
				taken++
			default:
			}
		}
		if most := int(time.Second / DefaultDebounce); taken == 0 || taken > most {
			t.Errorf("%d snapshots in a second of hints, from generation %d on", taken, before.Generation)
		}
		close(hints) // whoever gave hints is gone: the interval goes on
		<-moved
		<-moved
	})
}

// A source that has no config directory yet is looked at more often.
func TestSnapshotter_Run_RetriesSoon(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(1)})
		moved, stop := s.Listen()
		defer stop()
		running(t, s)
		time.Sleep(time.Second)
		if !errors.Is(s.Status().Err, os.ErrNotExist) {
			t.Errorf("%+v", s.Status())
		}
		written(t, dir, "topics.json", topics(1, 3))
		start := time.Now()
		<-moved
		if d := time.Since(start); d > retryInterval {
			t.Errorf("seen after %v", d)
		}
	})
}

// The hints of a directory with databases say nothing, and asking is not cheap.
func TestSnapshotter_Run_DatabasesAreAskedByTheInterval(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "config", "topics"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config", "topics", "CURRENT"), []byte("MANIFEST-000005\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		hints := make(chan struct{}, 1)
		var codes []remoting.RequestCode
		s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(1), Changed: hints, Ask: answering(t, "5.3.3", "storeType=defaultRocksDB\n", &codes)})
		moved, stop := s.Listen()
		defer stop()
		running(t, s)
		taken := 0
		for range 295 {
			select {
			case hints <- struct{}{}:
			default:
			}
			time.Sleep(100 * time.Millisecond)
			select {
			case <-moved:
				taken++
			default:
			}
		}
		if taken != 3 {
			t.Errorf("%d snapshots in 29.5 s", taken)
		}
	})
}

// An end that takes its time, or never comes, does not outlive the context.
func TestSnapshotter_Run_EndsWhileItWaits(t *testing.T) {
	for what, o := range map[string]SnapshotterOptions{
		"for the end of the log": {End: func(ctx context.Context) wire.PhyOffset { <-ctx.Done(); return wire.NoOffset }},
		"for a file":             {End: endAt(1), Read: ReadOptions{Pause: time.Hour}},
	} {
		t.Run(what, func(t *testing.T) {
			o.Dir = t.TempDir()
			written(t, o.Dir, "topics.json", topics(1, 3)[:50])
			synctest.Test(t, func(t *testing.T) {
				s := NewSnapshotter(o)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				if err := s.Run(ctx); err != nil || time.Since(start) != time.Second {
					t.Errorf("%v after %v", err, time.Since(start))
				}
				if _, ok := s.Latest(); ok {
					t.Error("a snapshot that was not finished")
				}
			})
		})
	}
}
