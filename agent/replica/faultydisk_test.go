package replica

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// faultyDisk is the real disk, of which one call fails once. It keeps account of
// what the kernel has lost: bytes written since the last sync of their file when
// a sync of it fails, until they are written again.
type faultyDisk struct {
	osDisk

	mu       sync.Mutex
	calls    []string // names of all calls, in order; guarded by mu
	fail     func(call int, name string) bool
	hold     func(name string) // called before each call, and may block it
	byRename bool
	birth    func(path string) // called when a segment was born
	dirty    map[string][]span // written, not synced, by path; guarded by mu
	lost     map[string][]span // guarded by mu
	failures int               // guarded by mu
}

// span is a range of bytes of a file.
type span struct{ from, to int64 }

func newFaultyDisk(dir string, fail func(call int, name string) bool) *faultyDisk {
	if fail == nil {
		fail = func(int, string) bool { return false }
	}
	return &faultyDisk{
		osDisk: osDisk{tmp: AgentDir(dir) + "/tmp"}, fail: fail,
		dirty: map[string][]span{}, lost: map[string][]span{},
	}
}

// call counts a call and says whether it is to fail.
func (d *faultyDisk) call(name string) error {
	if d.hold != nil {
		d.hold(name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, name)
	if d.fail(len(d.calls), name) {
		d.failures++
		return fmt.Errorf("injected into call %d (%s): %w", len(d.calls), name, unix.EIO)
	}
	return nil
}

func (d *faultyDisk) count(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, c := range d.calls {
		if c == name {
			n++
		}
	}
	return n
}

func (d *faultyDisk) create(path string, size wire.ByteSize) (segmentFile, error) {
	if err := d.call("create"); err != nil {
		return nil, err
	}
	create := d.osDisk.create
	if d.byRename {
		create = d.createByRename
	}
	f, err := create(path, size)
	if err != nil {
		return nil, err
	}
	if d.birth != nil {
		d.birth(path)
	}
	return &faultyFile{segmentFile: f, disk: d, path: path}, nil
}

func (d *faultyDisk) open(path string) (segmentFile, error) {
	if err := d.call("open"); err != nil {
		return nil, err
	}
	f, err := d.osDisk.open(path)
	if err != nil {
		return nil, err
	}
	return &faultyFile{segmentFile: f, disk: d, path: path}, nil
}

func (d *faultyDisk) syncDir(dir string) error {
	if err := d.call("syncDir"); err != nil {
		return err
	}
	return d.osDisk.syncDir(dir)
}

// lostBelow returns what of the log below end is lost, of segments that still
// exist and begin where base says.
func (d *faultyDisk) lostBelow(end wire.PhyOffset, base func(path string) wire.PhyOffset) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []string
	for path, spans := range d.lost {
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		for _, s := range spans {
			if from := base(path).Add(wire.ByteSize(s.from)); s.from < s.to && from < end {
				found = append(found, fmt.Sprintf("%s from %d", path, from))
			}
		}
	}
	return found
}

// dirtyBelow returns what of the log below end was written and never synced.
func (d *faultyDisk) dirtyBelow(end wire.PhyOffset) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []string
	for path, spans := range d.dirty {
		base, err := commitlog.ParseName(filepath.Base(path))
		if err != nil {
			return []string{err.Error()}
		}
		for _, s := range spans {
			if from := base.Add(wire.ByteSize(s.from)); from < end {
				found = append(found, fmt.Sprintf("%s from %d", path, from))
			}
		}
	}
	return found
}

type faultyFile struct {
	segmentFile
	disk *faultyDisk
	path string
}

// writev fails as a kernel may: everything is there, but only half is admitted.
func (f *faultyFile) writev(bufs [][]byte, off int64) (int, error) {
	injected := f.disk.call("writev")
	n, err := f.segmentFile.writev(bufs, off)
	f.disk.wrote(f.path, span{off, off + int64(n)})
	if injected != nil {
		return n / 2, injected
	}
	return n, err
}

func (f *faultyFile) zero(off, n int64) error {
	if err := f.disk.call("zero"); err != nil {
		return err
	}
	f.disk.wrote(f.path, span{off, off + n})
	return f.segmentFile.zero(off, n)
}

// datasync fails as the kernel does: what was to be written is given up, and
// the next call knows nothing of it.
func (f *faultyFile) datasync() error {
	err := f.disk.call("datasync")
	f.disk.mu.Lock()
	if err != nil {
		f.disk.lost[f.path] = append(f.disk.lost[f.path], f.disk.dirty[f.path]...)
	}
	delete(f.disk.dirty, f.path)
	f.disk.mu.Unlock()
	if err != nil {
		return err
	}
	return f.segmentFile.datasync()
}

// wrote notes that s is dirty, and so not lost any more.
func (d *faultyDisk) wrote(path string, s span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty[path] = append(d.dirty[path], s)
	var left []span
	for _, l := range d.lost[path] {
		left = append(left, span{l.from, min(l.to, s.from)}, span{max(l.from, s.to), l.to})
	}
	d.lost[path] = slices.DeleteFunc(left, func(s span) bool { return s.from >= s.to })
}
