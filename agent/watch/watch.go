package watch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options say what is watched.
type Options struct {
	// CommitLogDir and ConfigDir are the directories; an empty one is not watched.
	// They need not exist.
	CommitLogDir, ConfigDir string
	// Rescan is how often an edge comes without any event; default 5 s.
	Rescan time.Duration
	// Debounce is how long it must be quiet after an event before its edge comes;
	// default 100 ms. Where it never is quiet, an edge comes every second.
	Debounce time.Duration
	// Log gets what is worth knowing; default none.
	Log *slog.Logger
}

// The defaults of Options, and how long events can put an edge off.
const (
	defaultRescan   = 5 * time.Second
	defaultDebounce = 100 * time.Millisecond
	longestDelay    = time.Second
)

// Watcher watches two directories.
type Watcher struct {
	opt    Options
	create func() (*fsnotify.Watcher, error)

	segments, config chan struct{}
	targets          []*target

	events *fsnotify.Watcher // nil: there is none to be had
	stale  bool              // what is watched may not be what lies there now
	blind  bool              // whether it was said that events cannot be had
}

// target is one directory that edges are about.
type target struct {
	dir  string
	edge chan struct{}
	wait debounce
}

// New returns a Watcher that sees nothing until Run.
func New(o Options) *Watcher {
	if o.Rescan <= 0 {
		o.Rescan = defaultRescan
	}
	if o.Debounce <= 0 {
		o.Debounce = defaultDebounce
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{
		opt: o, create: fsnotify.NewWatcher, stale: true,
		segments: make(chan struct{}, 1), config: make(chan struct{}, 1),
	}
	w.target(o.CommitLogDir, w.segments)
	w.target(o.ConfigDir, w.config)
	return w
}

func (w *Watcher) target(dir string, edge chan struct{}) {
	if dir == "" {
		return
	}
	w.targets = append(w.targets, &target{
		dir: filepath.Clean(dir), edge: edge,
		wait: debounce{quiet: w.opt.Debounce, longest: max(longestDelay, w.opt.Debounce)},
	})
}

// Segments returns the edges of CommitLogDir, of which one is kept for a consumer
// that is busy. There can be one consumer.
func (w *Watcher) Segments() <-chan struct{} { return w.segments }

// Config returns the edges of ConfigDir, as Segments does.
func (w *Watcher) Config() <-chan struct{} { return w.config }

// Run watches until ctx ends, and returns nil then. Where there are no events to
// be had it says so once and goes on with an edge every Rescan.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.close()
	rescan := time.NewTicker(w.opt.Rescan)
	defer rescan.Stop()
	timer := time.NewTimer(0) // the first edges come at once
	defer timer.Stop()
	w.markAll(time.Now().Add(-w.opt.Debounce))
	for {
		var events <-chan fsnotify.Event
		var failures <-chan error
		if w.events != nil {
			events, failures = w.events.Events, w.events.Errors
		}
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-events:
			w.see(e, ok, time.Now())
		case err, ok := <-failures:
			w.lost(err, ok, time.Now())
		case <-rescan.C:
			w.stale = true
			w.markAll(time.Now())
		case <-timer.C:
		}
		if pause := w.fire(time.Now()); pause >= 0 {
			timer.Reset(pause)
		} else {
			timer.Stop()
		}
	}
}

// see marks what an event is about.
func (w *Watcher) see(e fsnotify.Event, ok bool, now time.Time) {
	if !ok {
		w.lost(fsnotify.ErrClosed, ok, now)
		return
	}
	name := filepath.Clean(e.Name)
	for _, t := range w.targets {
		switch {
		case filepath.Dir(name) == t.dir:
			t.wait.mark(now)
		case name == t.dir, above(name, t.dir):
			w.stale = true
			t.wait.mark(now)
		}
	}
}

// above reports whether dir lies somewhere below name.
func above(name, dir string) bool {
	return strings.HasPrefix(dir, strings.TrimSuffix(name, string(filepath.Separator))+string(filepath.Separator))
}

// lost marks everything, because events were lost.
func (w *Watcher) lost(err error, ok bool, now time.Time) {
	w.opt.Log.Debug("file events were lost, so everything is looked at", "error", err)
	w.stale = true
	w.markAll(now)
	if !ok {
		w.close()
	}
}

func (w *Watcher) markAll(now time.Time) {
	for _, t := range w.targets {
		t.wait.mark(now)
	}
}

// fire sends the edges that are due, and returns how long it is to the next one,
// -1 where none is waiting. Directories are watched anew before, so that nothing
// can happen between what the edge makes its consumer see and the next event.
func (w *Watcher) fire(now time.Time) time.Duration {
	unsure := false
	next := time.Duration(-1)
	for _, t := range w.targets {
		switch pause := t.wait.pause(now); {
		case pause == 0:
			if w.stale {
				unsure = !w.arm()
				w.stale = unsure
			}
			t.wait.clear()
			select {
			case t.edge <- struct{}{}:
			default:
			}
		case pause > 0 && (next < 0 || pause < next):
			next = pause
		}
	}
	if unsure {
		w.markAll(now)
		return w.opt.Debounce
	}
	return next
}

// arm watches what is there now, and reports whether that still was so at the end.
func (w *Watcher) arm() bool {
	if w.events == nil {
		events, err := w.create()
		if err != nil {
			w.sayBlind(err)
			return true // tried again at the next rescan
		}
		w.events = events
	}
	// A directory that was replaced has the same name, and may even have the same
	// inode, so nothing is taken for watched.
	for _, path := range w.events.WatchList() {
		// One that is gone has ended its watch already.
		_ = w.events.Remove(path)
	}
	paths := w.paths()
	var failed error
	for _, path := range paths {
		if err := w.events.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = err
		}
	}
	if failed != nil {
		w.sayBlind(failed)
		return true
	}
	w.sayAble()
	return slices.Equal(paths, w.paths())
}

// paths returns the directories to watch: the targets that exist, and above each
// the nearest one that does.
func (w *Watcher) paths() []string {
	var paths []string
	for _, t := range w.targets {
		if isDir(t.dir) {
			paths = append(paths, t.dir)
		}
		for up := filepath.Dir(t.dir); ; up = filepath.Dir(up) {
			if isDir(up) {
				paths = append(paths, up)
				break
			}
			if up == filepath.Dir(up) {
				break
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// sayBlind says, once until events can be had again, that they cannot.
func (w *Watcher) sayBlind(err error) {
	if w.blind {
		return
	}
	w.blind = true
	w.opt.Log.Warn("no file events can be had; directories are looked at now and then instead",
		"every", w.opt.Rescan, "error", err, "try", "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches")
}

func (w *Watcher) sayAble() {
	if w.blind {
		w.blind = false
		w.opt.Log.Info("file events can be had again")
	}
}

func (w *Watcher) close() {
	if w.events == nil {
		return
	}
	if err := w.events.Close(); err != nil {
		w.opt.Log.Debug("closing the file watcher failed", "error", err)
	}
	w.events = nil
}
