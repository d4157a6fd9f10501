package watch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// never is a Rescan that a test does not live to see.
const never = time.Hour

// start runs a watcher until the test ends, and takes the edges it begins with.
func start(t *testing.T, o watch.Options, prepare ...func(*watch.Watcher)) *watch.Watcher {
	t.Helper()
	if o.Debounce == 0 {
		o.Debounce = 10 * time.Millisecond
	}
	w := watch.New(o)
	for _, p := range prepare {
		p(w)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	if o.CommitLogDir != "" {
		await(t, w.Segments(), "the first edge of the segments")
	}
	if o.ConfigDir != "" {
		await(t, w.Config(), "the first edge of the config")
	}
	return w
}

func await(t *testing.T, edge <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-edge:
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// replace writes a file next door and renames it over path.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".tmp", text)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// awaitText reads path at every edge until it holds text.
func awaitText(t *testing.T, edge <-chan struct{}, path, text string) {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case <-edge:
			if got, err := os.ReadFile(path); err == nil && string(got) == text {
				return
			}
		case <-limit:
			t.Fatalf("no edge shows %q in %s", text, path)
		}
	}
}

func TestWatch_EachDirectoryHasItsEdges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, config := filepath.Join(dir, "commitlog"), filepath.Join(dir, "config")
	mkdir(t, log)
	mkdir(t, config)
	w := start(t, watch.Options{CommitLogDir: log, ConfigDir: config, Rescan: never})
	write(t, filepath.Join(log, "00000000000000000000"), "segment")
	await(t, w.Segments(), "the edge of a new segment")
	write(t, filepath.Join(config, "topics.json"), "{}")
	await(t, w.Config(), "the edge of a config file")
	write(t, filepath.Join(dir, "abort"), "")
	if err := os.Remove(filepath.Join(log, "00000000000000000000")); err != nil {
		t.Fatal(err)
	}
	await(t, w.Segments(), "the edge of a deleted segment")
	select {
	case <-w.Config():
		t.Error("what happens elsewhere is no edge of the config")
	default:
	}
}

func TestWatch_ReplacedByRenameEveryTime_Fault77(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	path := filepath.Join(config, "topics.json")
	w := start(t, watch.Options{ConfigDir: config, Rescan: never})
	for round := range 10 {
		for i := range 10 {
			replace(t, path, fmt.Sprintf("%d/%d", round, i))
		}
		awaitText(t, w.Config(), path, fmt.Sprintf("%d/9", round))
	}
}

// TestWatch_SameLengthSameTime_Fault80 changes a file without changing its length
// or times: an edge is no matter of either.
func TestWatch_SameLengthSameTime_Fault80(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	path := filepath.Join(config, "topics.json")
	w := start(t, watch.Options{ConfigDir: config, Rescan: never})
	past := time.Unix(1_600_000_000, 0)
	for i := range 10 {
		write(t, path, strconv.Itoa(i))
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
		awaitText(t, w.Config(), path, strconv.Itoa(i))
	}
}

func TestWatch_DirectoriesComeAndGo_Fault78(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "not", "there", "yet")
	config := filepath.Join(root, "config")
	path := filepath.Join(config, "topics.json")
	w := start(t, watch.Options{ConfigDir: config, CommitLogDir: filepath.Join(root, "commitlog"), Rescan: never})
	mkdir(t, config)
	write(t, path, "born")
	awaitText(t, w.Config(), path, "born")
	remove := map[string]func() error{
		"removed":          func() error { return os.RemoveAll(config) },
		"renamed":          func() error { return os.Rename(config, config+".old") },
		"parent removed":   func() error { return os.RemoveAll(root) },
		"parent renamed":   func() error { return os.Rename(root, root+".old") },
		"ancestor removed": func() error { return os.RemoveAll(filepath.Dir(root)) },
	}
	for _, how := range []string{"removed", "renamed", "parent removed", "removed", "parent renamed", "ancestor removed", "removed"} {
		for _, old := range []string{config + ".old", root + ".old"} {
			if err := os.RemoveAll(old); err != nil {
				t.Fatal(err)
			}
		}
		if err := remove[how](); err != nil {
			t.Fatal(err)
		}
		mkdir(t, config)
		write(t, path, how)
		awaitText(t, w.Config(), path, how)
		// And it is watched now, not only seen once.
		write(t, path, how+" and written")
		awaitText(t, w.Config(), path, how+" and written")
	}
}

func TestWatch_DirectoryReplacedByRename_Fault78(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, next := filepath.Join(dir, "config"), filepath.Join(dir, "next")
	path := filepath.Join(config, "topics.json")
	mkdir(t, config)
	w := start(t, watch.Options{ConfigDir: config, Rescan: never})
	for i := range 5 {
		mkdir(t, next)
		write(t, filepath.Join(next, "topics.json"), strconv.Itoa(i))
		if err := os.Rename(config, filepath.Join(dir, "old"+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, config); err != nil {
			t.Fatal(err)
		}
		awaitText(t, w.Config(), path, strconv.Itoa(i))
		write(t, path, strconv.Itoa(i)+" written")
		awaitText(t, w.Config(), path, strconv.Itoa(i)+" written")
	}
}

// TestWatch_ManyTouchesThenOneChange_Fault78 touches more often than the kernel's
// queue is long, with a consumer that is slow to take its edges.
func TestWatch_ManyTouchesThenOneChange_Fault78(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	path := filepath.Join(config, "topics.json")
	write(t, path, "before")
	w := start(t, watch.Options{ConfigDir: config, Rescan: never})
	for i := range 50_000 {
		stamp := time.Unix(int64(i), 0)
		if err := os.Chtimes(path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	replace(t, path, "after")
	awaitText(t, w.Config(), path, "after")
}

// TestWatch_StreamOfEventsGivesEdges writes without a pause until edges have come.
func TestWatch_StreamOfEventsGivesEdges(t *testing.T) {
	t.Parallel()
	config := t.TempDir()
	path := filepath.Join(config, "topics.json")
	w := start(t, watch.Options{ConfigDir: config, Rescan: never, Debounce: patience / 20})
	limit := time.Now().Add(patience)
	for edges := 0; edges < 2; {
		write(t, path, "again")
		select {
		case <-w.Config():
			edges++
		default:
			if time.Now().After(limit) {
				t.Fatal("events without a pause, and no edge")
			}
		}
	}
}

// TestWatch_LostEventsAreEdges_Fault78 reports an overflow as the kernel would.
func TestWatch_LostEventsAreEdges_Fault78(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made := make(chan *fsnotify.Watcher, 1)
	w := start(t, watch.Options{CommitLogDir: dir, ConfigDir: dir, Rescan: never}, func(w *watch.Watcher) {
		w.SetCreate(func() (*fsnotify.Watcher, error) {
			fw, err := fsnotify.NewWatcher()
			made <- fw
			return fw, err
		})
	})
	fw := <-made
	for _, err := range []error{fsnotify.ErrEventOverflow, errors.New("read: input/output error")} {
		fw.Errors <- err
		await(t, w.Segments(), "the edge after "+err.Error())
		await(t, w.Config(), "the edge after "+err.Error())
	}
}

// TestWatch_WithoutInotifyItPolls_Fault79 refuses every watcher for a while.
func TestWatch_WithoutInotifyItPolls_Fault79(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log lockedBuffer
	var mu sync.Mutex
	refused, allow := 0, false
	w := start(t, watch.Options{
		CommitLogDir: dir, ConfigDir: dir, Rescan: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}, func(w *watch.Watcher) {
		w.SetCreate(func() (*fsnotify.Watcher, error) {
			mu.Lock()
			defer mu.Unlock()
			if !allow {
				refused++
				return nil, os.NewSyscallError("inotify_init1", syscall.EMFILE)
			}
			return fsnotify.NewWatcher()
		})
	})
	for range 5 {
		await(t, w.Segments(), "an edge without inotify")
		await(t, w.Config(), "an edge without inotify")
	}
	mu.Lock()
	if refused < 3 {
		t.Errorf("a watcher was asked for %d times", refused)
	}
	allow = true
	mu.Unlock()
	for !strings.Contains(log.String(), "again") {
		await(t, w.Config(), "an edge")
	}
	if n := strings.Count(log.String(), "no file events"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log.String())
	}
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
