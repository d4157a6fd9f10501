package metadata

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/haagent/haagent/wire"
)

// Defaults of Options.
const (
	DefaultKeep                    = 32
	DefaultKeepBytes wire.ByteSize = 256 << 20
	DefaultGrace                   = 10 * time.Minute
	DefaultStale                   = time.Minute
)

// Options tune an Installer. The zero value of each field means its default.
type Options struct {
	// Keep is how many generations are kept, at least 2.
	Keep int
	// KeepBytes is how much their contents may hold together. Generations beyond
	// it go before Keep is reached, but never the newest two.
	KeepBytes wire.ByteSize
	// Grace is how long a source has to stand by a step back before it is taken
	// over. That is what a broker says that lost a file in a crash: a data version
	// that is older in every way, fewer entries under a lower version, or none at
	// all where there were some. Negative: at once.
	Grace time.Duration
	// Stale is the age from which a file that is not confirmed counts as stale.
	Stale time.Duration
	// Now is the clock, time.Now by default.
	Now func() time.Time
	// Log gets a line where a file is held back against a step back, and where
	// history is damaged. Default: none.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.KeepBytes == 0 {
		o.KeepBytes = DefaultKeepBytes
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Stale == 0 {
		o.Stale = DefaultStale
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// ErrOlder is matched by the error for a snapshot that is older than one that
// was offered before.
var ErrOlder = errors.New("snapshot is older than the last one")

// Installer is the one writer of DIR/config on a replica. Its methods may be
// called at the same time.
type Installer struct {
	opts Options

	// writing serializes everything that touches the disk; it is taken before mu.
	writing sync.Mutex
	disk    *disk            // guarded by writing
	stamps  map[string]stamp // guarded by writing: what Check need not read again
	undone  map[string]bool  // guarded by writing: files of the current generation that may not be in place yet
	last    uint64           // guarded by writing: the highest generation number used

	mu        sync.Mutex            // held briefly, never over a system call
	current   *Generation           // guarded by mu; replaced, never changed
	pending   map[string]*candidate // guarded by mu
	confirmed map[string]time.Time  // guarded by mu: TakenAt of the last snapshot that had what is installed
	verified  wire.PhyOffset        // guarded by mu: what Install was told last
	offered   struct {              // guarded by mu: the last snapshot taken
		any bool
		end wire.PhyOffset
		at  time.Time
	}
}

// stamp is what a file looked like when its hash was right. The change time is
// in it, so a writer that sets the modification time back is seen too.
type stamp struct {
	size           int64
	ino            uint64
	modify, change int64
}

// NewInstaller opens the store whose root is dir, which must exist, and finishes
// an install that was cut short. Whole config files that stand there and have no
// history become generation 1.
func NewInstaller(dir string, o Options) (*Installer, error) {
	return newInstaller(&disk{root: dir}, o)
}

func newInstaller(d *disk, o Options) (*Installer, error) {
	i := &Installer{
		opts: o.withDefaults(), disk: d,
		stamps:    make(map[string]stamp),
		pending:   make(map[string]*candidate),
		confirmed: make(map[string]time.Time),
	}
	i.writing.Lock()
	defer i.writing.Unlock()
	if err := d.prepare(); err != nil {
		return nil, err
	}
	newest, before, err := i.loadNewest()
	if err != nil {
		return nil, err
	}
	if newest == nil {
		if newest, err = i.adopt(); err != nil {
			return nil, err
		}
	} else if err := i.finishOf(newest, before); err != nil {
		return nil, err
	}
	i.current = newest
	return i, nil
}

// loadNewest returns the newest generation that can be read and the one before
// it; both are nil in a store without history.
func (i *Installer) loadNewest() (newest, before *Generation, err error) {
	numbers, err := i.disk.numbers()
	if err != nil {
		return nil, nil, err
	}
	if len(numbers) > 0 {
		i.last = numbers[len(numbers)-1]
	}
	for k := len(numbers) - 1; k >= 0 && before == nil; k-- {
		g, err := i.disk.loadGeneration(numbers[k])
		if err != nil {
			i.opts.Log.Warn("a generation of config files cannot be read, the one before it counts", "cause", err)
			continue
		}
		if newest == nil {
			newest = g
		} else {
			before = g
		}
	}
	return newest, before, nil
}

// adopt makes a generation of the config files that stand in a store without
// history. What is not whole or not a plain file is passed over.
func (i *Installer) adopt() (*Generation, error) {
	var g *Generation
	now := i.opts.Now()
	for _, k := range known {
		if !k.Policy.installable() {
			continue
		}
		content, err := readRegular(i.disk.config(), k.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			i.opts.Log.Warn("a config file in the store is passed over", "file", k.Name, "cause", err)
			continue
		}
		f, err := NewFile(k.Name, content)
		if err != nil {
			i.opts.Log.Warn("a config file in the store is passed over", "file", k.Name, "cause", err)
			continue
		}
		if err := i.disk.saveObject(f.SHA256, content); err != nil {
			return nil, err
		}
		if g == nil {
			g = &Generation{Number: i.last + 1, Made: now, Origin: Found}
		}
		g.set(f.entry(Snapshot{TakenAt: now}))
	}
	if g == nil {
		return nil, nil
	}
	if err := i.disk.saveGeneration(g); err != nil {
		return nil, err
	}
	i.last = g.Number
	return g, nil
}

// entry returns what a generation says of f.
func (f File) entry(s Snapshot) Entry {
	e := Entry{
		Name: f.Name, Size: wire.ByteSize(len(f.Content)), SHA256: f.SHA256, DataVersion: f.DataVersion,
		SourceEnd: s.SourceEnd, TakenAt: s.TakenAt,
	}
	if k, _ := Lookup(f.Name); !k.binary {
		e.Entries = entriesIn(f.Content)
	}
	return e
}

// Generation returns the number of the generation that stands in config/, 0
// where there is none.
func (i *Installer) Generation() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current == nil {
		return 0
	}
	return i.current.Number
}

// Offer hands over a snapshot. Nothing is written: [Installer.Install] does that.
// For each file the latest content counts; of those that wait for the log the
// earliest waits along, so that a replica which is always behind gets on too. A
// file that the snapshot does not have keeps what it has. A snapshot that cannot
// be right is refused as a whole; the errors match ErrName, ErrHash, ErrTooLarge,
// ErrIncomplete, ErrNotJSON, ErrTooDeep or ErrOlder.
//
// The contents are kept and must not be changed afterwards.
func (i *Installer) Offer(s Snapshot) error {
	if err := s.verify(i.seen); err != nil {
		return err
	}
	now := i.opts.Now()
	entries := make(map[string]Entry, len(s.Files))
	for _, f := range s.Files {
		if !i.seen(f.Name, f.SHA256) {
			entries[f.Name] = f.entry(s)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	// Both must say so: a source's clock may be set back, its log may be cut.
	if i.offered.any && s.SourceEnd < i.offered.end && s.TakenAt.Before(i.offered.at) {
		return fmt.Errorf("snapshot %d of %v at %v: %w (%v at %v)", s.Generation, s.TakenAt, s.SourceEnd, ErrOlder, i.offered.at, i.offered.end)
	}
	if !i.offered.any || s.SourceEnd != wire.NoOffset {
		i.offered.end = s.SourceEnd
	}
	i.offered.any, i.offered.at = true, s.TakenAt
	for _, f := range s.Files {
		installed := i.current.entry(f.Name)
		if installed != nil && installed.SHA256 == f.SHA256 {
			i.confirmed[f.Name] = s.TakenAt
			delete(i.pending, f.Name)
			continue
		}
		if k, _ := Lookup(f.Name); k.Policy == WhenCovered && s.SourceEnd == wire.NoOffset {
			continue // how much log it has to wait for is told by a later snapshot
		}
		c := i.pending[f.Name]
		if c == nil {
			c = new(candidate)
			i.pending[f.Name] = c
		} else if c.latest().file.SHA256 == f.SHA256 {
			continue // it was there earlier, with less log to wait for
		}
		e, ok := entries[f.Name]
		if !ok { // it was seen, but is not any more: an Install came in between
			e = f.entry(s)
		}
		c.add(offer{file: f, entry: e}, installed, now)
	}
	return nil
}

// seen reports whether that content is installed, or the latest that waits.
func (i *Installer) seen(name string, h Hash) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.current.entry(name); e != nil && e.SHA256 == h {
		return true
	}
	c := i.pending[name]
	return c != nil && c.latest().file.SHA256 == h
}

// Rebase forgets what waits and which snapshots were seen: for a replica that
// follows another source, or whose log was cut back.
func (i *Installer) Rebase() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.pending)
	i.offered.any = false
}
