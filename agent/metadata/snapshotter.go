package metadata

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// Defaults of SnapshotterOptions.
const (
	DefaultInterval = 10 * time.Second
	DefaultDebounce = 150 * time.Millisecond
	DefaultReread   = time.Minute
)

// SnapshotterOptions say what a Snapshotter reads. The zero value of each field
// but Dir and End means its default.
type SnapshotterOptions struct {
	// Dir is the root of the source's store.
	Dir string
	// End returns where the source's log ends, or wire.NoOffset where that is not
	// known (yet). It is asked after the last file was read, and must not be less
	// than what the broker had stored by then: a position in the files may point
	// behind the very last record, complete for us or not.
	End func(context.Context) wire.PhyOffset
	// Interval is the time between snapshots, at least 1 ms. Confirming a snapshot
	// that did not change costs a look at each file.
	Interval time.Duration
	// Debounce is how long after a hint a snapshot is taken.
	Debounce time.Duration
	// Reread is after how long a file is read again although its size, times and
	// inode are what they were.
	Reread time.Duration
	// Changed gets hints that something in config/ changed; nil: there are none.
	Changed <-chan struct{}
	// Ask sends requests to the source's broker. It is used where the broker keeps
	// its tables in RocksDB; without it such a source has no snapshots.
	Ask Ask
	// Read tunes the reading of files that are being written.
	Read ReadOptions
	// Now is the clock, time.Now by default.
	Now func() time.Time
	// Log gets a line where a file begins or ceases to be skipped. Default: none.
	Log *slog.Logger
}

func (o SnapshotterOptions) withDefaults() SnapshotterOptions {
	if o.End == nil {
		o.End = func(context.Context) wire.PhyOffset { return wire.NoOffset }
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	o.Interval = max(o.Interval, time.Millisecond)
	if o.Debounce == 0 {
		o.Debounce = DefaultDebounce
	}
	if o.Reread == 0 {
		o.Reread = DefaultReread
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Snapshotter is the source side: it keeps the latest snapshot of the config
// files of a broker that is not disturbed by it.
//
// A file that is being written, damaged or gone is not in the snapshot, and that
// says nothing about it: a replica keeps what it has. So the deletion of a file
// never travels; the deletion of what is in it does.
type Snapshotter struct {
	opts    SnapshotterOptions
	cache   fileCache         // of Run alone
	told    map[string]string // of Run alone: reasons for skipped files that were logged
	advised Tables            // of Run alone: the last advice that was logged

	mu        sync.Mutex            // held briefly, never over a system call
	latest    Snapshot              // guarded by mu; replaced, its contents never changed
	status    SnapshotterStatus     // guarded by mu
	files     map[string]sourceFile // guarded by mu: all that were ever read
	listeners wake.Listeners
}

// NewSnapshotter returns a Snapshotter that has nothing yet; Run makes it work.
func NewSnapshotter(o SnapshotterOptions) *Snapshotter {
	s := &Snapshotter{
		opts:  o.withDefaults(),
		told:  make(map[string]string),
		files: make(map[string]sourceFile),
	}
	s.cache = fileCache{now: s.opts.Now, reread: s.opts.Reread, files: make(map[string]cachedFile)}
	s.opts.Read.read = s.cache.read
	s.status.SourceEnd = wire.NoOffset
	return s
}

// retryInterval is after how long a source of which nothing could be read is
// read again: one that has just been set up soon has what it lacks.
const retryInterval = 2 * time.Second

// restFactor bounds the share of one core that a source takes that changes all
// the time: after a snapshot hints rest this many times as long as reading and
// checking took.
const restFactor = 3

// Run takes a snapshot at once, then one every interval and soon after each hint,
// until ctx ends. Trouble with files is in the status and in the log, and never
// ends it.
func (s *Snapshotter) Run(ctx context.Context) error {
	changed := s.opts.Changed
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due, rested time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-changed:
			if !ok {
				changed = nil
				continue
			}
			soon := time.Now().Add(s.opts.Debounce)
			if soon.Before(rested) {
				soon = rested
			}
			if soon.Before(due) {
				due = soon
			}
			timer.Reset(time.Until(due))
			continue
		case <-timer.C:
		}
		start, spent := time.Now(), s.cache.spent
		databases, err := s.snapshot(ctx)
		if ctx.Err() != nil {
			return nil
		}
		wait := s.opts.Interval
		if err != nil {
			wait = min(wait, retryInterval)
		}
		rested = time.Now().Add(restFactor * (s.cache.spent - spent))
		if due = start.Add(wait); due.Before(rested) {
			due = rested
		}
		if databases {
			rested = due // databases change all the time, their hints say nothing
		}
		timer.Reset(time.Until(due))
	}
}

// snapshot takes one and publishes it. It reports whether the source's tables
// are in databases, which nothing but questions can tell the content of.
func (s *Snapshotter) snapshot(ctx context.Context) (databases bool, err error) {
	taken := s.opts.Now()
	next, skipped, tables, err := s.read(ctx)
	databases = tables != JSONTables
	if ctx.Err() != nil {
		return databases, err
	}
	var more []Skipped
	next.Files, more = fit(next.Files)
	skipped = append(skipped, more...)
	slices.SortFunc(skipped, func(a, b Skipped) int { return rank(a.Name) - rank(b.Name) })
	next.SourceEnd = max(next.SourceEnd, wire.NoOffset)
	// The clock survives a restart of the agent, and a count of at most one
	// snapshot a millisecond does not overtake it. What goes over the link has
	// whole milliseconds.
	ms := max(taken.UnixMilli(), 0)
	next.TakenAt, next.Generation = time.UnixMilli(ms), uint64(ms)
	s.log(tables, skipped, err)

	s.mu.Lock()
	defer s.mu.Unlock()
	next.Generation = max(next.Generation, s.latest.Generation+1)
	s.note(next, taken, skipped, tables, err)
	if err != nil {
		return databases, err
	}
	s.latest = next
	s.listeners.Wake()
	return databases, nil
}

// read reads all files, then asks where the log ends.
func (s *Snapshotter) read(ctx context.Context) (Snapshot, []Skipped, Tables, error) {
	databases, err := Databases(s.opts.Dir)
	if err != nil {
		return Snapshot{}, nil, JSONTables, err
	}
	tables := JSONTables
	if len(databases) > 0 {
		d := databaseSource{s.opts.Dir, databases, s.opts.Ask}
		if tables, err = d.tables(ctx); err != nil {
			return Snapshot{}, nil, tables, err
		}
		if tables != JSONTables {
			next, skipped, err := d.collect(ctx, s.opts.End)
			for k := range next.Files {
				next.Files[k] = s.cache.share(next.Files[k])
			}
			return next, skipped, tables, err
		}
	}
	files, skipped, err := ReadDir(ctx, s.opts.Dir, s.opts.Read)
	if err != nil {
		return Snapshot{}, nil, tables, err
	}
	return Snapshot{SourceEnd: s.opts.End(ctx), Files: files}, skipped, tables, nil
}

// log says what changed about the files that are skipped.
func (s *Snapshotter) log(tables Tables, skipped []Skipped, err error) {
	const all = "" // stands for no file: nothing could be read
	now := make(map[string]string, len(skipped))
	if err != nil {
		now[all] = kind(err)
		if s.told[all] != now[all] {
			s.opts.Log.Warn("no snapshot of the source's config files; replicas keep what they have", "dir", s.opts.Dir, "cause", err)
		}
		for name, why := range s.told {
			if name != all {
				now[name] = why
			}
		}
		s.told = now
		return
	}
	if s.told[all] != "" {
		s.opts.Log.Info("snapshots of the source's config files are taken again", "dir", s.opts.Dir)
	}
	for _, k := range skipped {
		if now[k.Name] = kind(k.Err); s.told[k.Name] != now[k.Name] {
			s.opts.Log.Warn("a config file is left out of the snapshot; replicas keep what they have", "file", k.Name, "cause", k.Err)
		}
	}
	for name := range s.told {
		if name != all && now[name] == "" {
			s.opts.Log.Info("a config file is in the snapshots again", "file", name)
		}
	}
	if advice := tables.Advice(); advice != "" && s.advised != tables {
		s.opts.Log.Warn("the source does not keep its tables in files", "try", advice)
	}
	s.told, s.advised = now, tables
}

// kind names the sort of an error, so that one that only counts on is not logged
// anew.
func kind(err error) string {
	for _, e := range []error{ErrUnsettled, ErrIncomplete, ErrNotJSON, ErrTooDeep, ErrTooLarge, ErrTarget, ErrDatabases} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return err.Error()
}

// Latest returns the last snapshot, false where there is none yet. Its contents
// are shared and must not be changed.
func (s *Snapshotter) Latest() (Snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.latest
	out.Files = slices.Clone(out.Files)
	return out, out.Generation > 0
}

// Listen returns a channel that gets a value after every snapshot, whether it
// changed anything or only confirms (those that come faster than they are taken
// are one), and a function that ends it.
func (s *Snapshotter) Listen() (moved <-chan struct{}, stop func()) { return s.listeners.Listen() }
