package metadata

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/haagent/haagent/wire"
)

// Generations lists what is kept in the store whose root is dir, oldest first.
// Generations that cannot be read are left out.
func Generations(dir string) ([]Generation, error) {
	d := &disk{root: dir}
	numbers, err := d.numbers()
	if err != nil {
		return nil, err
	}
	list := make([]Generation, 0, len(numbers))
	for _, n := range numbers {
		if g, err := d.loadGeneration(n); err == nil {
			list = append(list, *g)
		}
	}
	return list, nil
}

// Restore puts a kept generation back into config/, in a store that no agent and
// no broker has open, and returns the names of the files that changed. The result
// is a new generation. Files that the generation does not have stay. The error
// matches ErrNoGeneration where it is not kept, ErrHash where it is damaged.
//
// Positions in a generation were covered by the log when it was installed: the
// caller looks at Entry.SourceEnd where the log was cut back since.
func Restore(dir string, generation uint64) ([]string, error) {
	i, err := NewInstaller(dir, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return i.Restore(generation)
}

// Restore is like the function, for a store that this Installer has open. The
// next snapshot of the source replaces what was restored.
func (i *Installer) Restore(generation uint64) ([]string, error) {
	i.writing.Lock()
	defer i.writing.Unlock()
	if err := i.finish(); err != nil {
		return nil, err
	}
	g, err := i.disk.loadGeneration(generation)
	if err != nil {
		return nil, fmt.Errorf("restore config files: %w", err)
	}
	return i.putBack(g.Files)
}

// putBack installs entries of earlier generations as a new one.
func (i *Installer) putBack(entries []Entry) ([]string, error) {
	for _, e := range entries {
		if _, err := i.disk.loadObject(e.SHA256); err != nil {
			return nil, fmt.Errorf("restore %s: %w", e.Name, err)
		}
		if _, err := i.disk.target(e.Name); err != nil {
			return nil, err
		}
	}
	if err := i.disk.makeConfig(); err != nil {
		return nil, err
	}
	foreign, err := i.check()
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	next := i.current.successor(i.last+1, i.opts.Now(), Restored)
	clear(i.pending)
	i.mu.Unlock()
	for _, e := range entries {
		next.set(e)
	}
	names, err := i.commit(next)
	if err != nil {
		return names, err
	}
	// A file that somebody else changed may be meant to stay as it was installed.
	for _, e := range entries {
		if slices.Contains(foreign, e.Name) && !slices.Contains(names, e.Name) {
			if err := i.place(e); err != nil {
				return names, err
			}
			names = append(names, e.Name)
		}
	}
	return names, i.disk.prune(i.opts.Keep, i.opts.KeepBytes)
}

// ErrAhead is matched by the error for installed positions that the log does not
// cover and of which no covered version is kept.
var ErrAhead = errors.New("consumer positions are ahead of the log, and no earlier ones are kept")

// Rewind is for a log that was cut back to verified: each installed file with
// positions that the log does not cover any more is replaced by the newest kept
// version that it does. What waits is forgotten. It returns the names of the
// files that changed. Where no covered version is kept the file stays as it is
// and the error, which matches ErrAhead, names it.
//
// Where all is covered it does nothing: it is to be called at every start, once
// the log has been recovered, since a process may have died between the cut and
// the rewind.
func (i *Installer) Rewind(verified wire.PhyOffset) ([]string, error) {
	i.Rebase()
	i.writing.Lock()
	defer i.writing.Unlock()
	if err := i.finish(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	current := i.current
	i.mu.Unlock()
	if current == nil {
		return nil, nil
	}
	numbers, err := i.disk.numbers()
	if err != nil {
		return nil, err
	}
	var back []Entry
	var ahead error
	for _, e := range current.Files {
		if k, _ := Lookup(e.Name); k.Policy != WhenCovered || e.SourceEnd <= verified {
			continue
		}
		old := i.covered(numbers, e.Name, verified)
		if old == nil {
			ahead = errors.Join(ahead, fmt.Errorf("%s at %v, log at %v: %w", e.Name, e.SourceEnd, verified, ErrAhead))
			continue
		}
		back = append(back, *old)
	}
	if len(back) == 0 {
		return nil, ahead
	}
	names, err := i.putBack(back)
	return names, errors.Join(err, ahead)
}

// covered returns the newest kept entry of that name that the log covers.
func (i *Installer) covered(numbers []uint64, name string, verified wire.PhyOffset) *Entry {
	for _, n := range slices.Backward(numbers) {
		g, err := i.disk.loadGeneration(n)
		if err != nil {
			continue
		}
		if e := g.entry(name); e != nil && e.SourceEnd <= verified {
			return e
		}
	}
	return nil
}
