package metadata

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/haagent/haagent/wire"
)

// Install puts in place what was offered and may stand there now: files with
// positions once the verified end of the replica's log covers them, all others
// at once, in the order of [KnownFiles]. It returns the names of those that
// changed. A file whose content stands there already is not touched.
//
// After an error the rest of the generation is done by the next call; each file
// is either its old or its new version. The error matches ErrTarget where a link
// or a directory stands in the place of a file, and then nothing was changed.
func (i *Installer) Install(verified wire.PhyOffset) ([]string, error) {
	i.writing.Lock()
	defer i.writing.Unlock()
	if err := i.finish(); err != nil {
		return nil, err
	}
	chosen, next := i.choose(verified)
	if len(chosen) == 0 {
		return nil, nil
	}
	if err := i.disk.makeConfig(); err != nil {
		return nil, err
	}
	for _, o := range chosen {
		if k, _ := Lookup(o.file.Name); k.Policy.installable() {
			if _, err := i.disk.target(o.file.Name); err != nil {
				return nil, err
			}
		}
	}
	for _, o := range chosen {
		if err := i.disk.saveObject(o.file.SHA256, o.file.Content); err != nil {
			return nil, err
		}
	}
	names, err := i.commit(next)
	if err != nil {
		return names, err
	}
	return names, i.disk.prune(i.opts.Keep, i.opts.KeepBytes)
}

// choose picks what may be installed and makes the generation that has it. Files
// that only go into history make no generation of their own, they ride along.
func (i *Installer) choose(verified wire.PhyOffset) ([]offer, *Generation) {
	now := i.opts.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.verified = verified
	var chosen []offer
	install := false
	for _, k := range known {
		c := i.pending[k.Name]
		if c == nil {
			continue
		}
		at, why := c.ready(k.Policy, verified, now, i.opts.Grace)
		if c.latest().stepBack != "" && at < len(c.waiting)-1 && !c.told {
			c.told = true
			i.opts.Log.Warn("the source stepped back, its file is not taken over yet", "file", k.Name, "why", why, "grace", i.opts.Grace)
		}
		if at < 0 {
			continue
		}
		chosen = append(chosen, c.waiting[at])
		install = install || k.Policy.installable()
	}
	if !install {
		return nil, nil
	}
	next := i.current.successor(i.last+1, now, FromSource)
	for _, o := range chosen {
		next.set(o.entry)
	}
	return chosen, next
}

// commit makes next the current generation: its file is the point of no return,
// then config/ follows. The contents are kept already.
func (i *Installer) commit(next *Generation) ([]string, error) {
	i.mu.Lock()
	before := i.current
	i.mu.Unlock()
	if err := i.disk.saveGeneration(next); err != nil {
		return nil, err
	}
	i.last = next.Number
	i.undone = make(map[string]bool)
	var names []string
	for _, e := range next.Files {
		k, _ := Lookup(e.Name)
		old := before.entry(e.Name)
		if !k.Policy.installable() || old != nil && old.SHA256 == e.SHA256 {
			continue
		}
		names = append(names, e.Name)
		i.undone[e.Name] = true
	}
	i.settle(next)
	return names, i.finish()
}

// settle makes g current in memory and drops what it has from what waits.
func (i *Installer) settle(g *Generation) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.current = g
	for _, e := range g.Files {
		c := i.pending[e.Name]
		if c == nil {
			continue
		}
		at := slices.IndexFunc(c.waiting, func(o offer) bool { return o.file.SHA256 == e.SHA256 })
		if at < 0 {
			continue
		}
		i.confirmed[e.Name] = c.waiting[at].entry.TakenAt
		if c.waiting = c.waiting[at+1:]; len(c.waiting) == 0 {
			delete(i.pending, e.Name)
		}
	}
}

// finish puts what is undone in place, in the order of installation.
func (i *Installer) finish() error {
	if len(i.undone) == 0 {
		return nil
	}
	i.mu.Lock()
	current := i.current
	i.mu.Unlock()
	for _, e := range current.Files {
		if !i.undone[e.Name] {
			continue
		}
		if err := i.place(e); err != nil {
			return err
		}
		delete(i.undone, e.Name)
	}
	return nil
}

// place makes sure that config/ has e. A file that has that content already
// keeps its times; its directory is synced all the same, since an earlier try may
// have ended just before that.
func (i *Installer) place(e Entry) error {
	info, err := i.disk.target(e.Name)
	if err != nil {
		return err
	}
	if info != nil && info.Size() == int64(e.Size) {
		have, _, err := hashOf(i.disk.config(), e.Name)
		if err != nil {
			return err
		}
		if have == e.SHA256 {
			return i.disk.syncDir(i.disk.config())
		}
	}
	content, err := i.disk.loadObject(e.SHA256)
	if err != nil {
		return err
	}
	return i.disk.put(filepath.Join(i.disk.config(), e.Name), content, info)
}

// finishOf finishes an install that was cut short by the end of the process. A
// file of the newest generation is undone where config/ still has what the
// generation before it names; anything else there was written by somebody else,
// and Check tells.
func (i *Installer) finishOf(newest, before *Generation) error {
	i.undone = make(map[string]bool)
	for _, e := range newest.Files {
		k, _ := Lookup(e.Name)
		old := before.entry(e.Name)
		if !k.Policy.installable() || old != nil && old.SHA256 == e.SHA256 {
			continue
		}
		have, _, err := hashOf(i.disk.config(), e.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if old == nil {
				i.undone[e.Name] = true
			}
		case errors.Is(err, ErrTarget) || errors.Is(err, ErrTooLarge):
		case err != nil:
			return err
		case old != nil && have == old.SHA256:
			i.undone[e.Name] = true
		}
	}
	i.current = newest
	if len(i.undone) == 0 {
		return nil
	}
	if err := i.disk.makeConfig(); err != nil {
		return err
	}
	return i.finish()
}

// Check returns the names of installed files that do not have the content any
// more that was installed, or are gone: somebody else writes in this store. Files
// whose size and times are as they were are not read again.
func (i *Installer) Check() ([]string, error) {
	i.writing.Lock()
	defer i.writing.Unlock()
	return i.check()
}

func (i *Installer) check() ([]string, error) {
	i.mu.Lock()
	current := i.current
	i.mu.Unlock()
	if current == nil {
		return nil, nil
	}
	var foreign []string
	for _, e := range current.Files {
		k, _ := Lookup(e.Name)
		if i.undone[e.Name] || !k.Policy.installable() {
			continue
		}
		ok, err := i.intact(e)
		if err != nil {
			return nil, err
		}
		if !ok {
			foreign = append(foreign, e.Name)
		}
	}
	return foreign, nil
}

// intact reports whether config/ has e. The stamp is taken from before the file
// is read: a writer that comes in between changes it.
func (i *Installer) intact(e Entry) (bool, error) {
	info, err := i.disk.target(e.Name)
	if errors.Is(err, ErrTarget) || err == nil && info == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	seen := stampOf(info)
	if i.stamps[e.Name] == seen && seen != (stamp{}) {
		return true, nil
	}
	have, _, err := hashOf(i.disk.config(), e.Name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrTarget) || errors.Is(err, ErrTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if have != e.SHA256 {
		delete(i.stamps, e.Name)
		return false, nil
	}
	// A file that changed just now may change again without its times telling.
	if i.opts.Now().Sub(time.Unix(0, seen.change)) > settled {
		i.stamps[e.Name] = seen
	}
	return true, nil
}

// settled is more than the resolution of the times that file systems keep.
const settled = 2 * time.Second

func stampOf(info fs.FileInfo) stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{}
	}
	return stamp{size: info.Size(), ino: st.Ino, modify: st.Mtim.Nano(), change: st.Ctim.Nano()}
}

// Repair puts back the installed version of every file that Check names, and
// returns those names. What stood there is lost.
func (i *Installer) Repair() ([]string, error) {
	i.writing.Lock()
	defer i.writing.Unlock()
	if err := i.finish(); err != nil {
		return nil, err
	}
	foreign, err := i.check()
	if err != nil || len(foreign) == 0 {
		return nil, err
	}
	if err := i.disk.makeConfig(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	current := i.current
	i.mu.Unlock()
	for _, name := range foreign {
		if err := i.place(*current.entry(name)); err != nil {
			return nil, fmt.Errorf("repair config files: %w", err)
		}
	}
	return foreign, nil
}
