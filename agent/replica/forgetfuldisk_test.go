package replica

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// pageSize is the unit in which a kernel writes files back.
const pageSize = 4096

// forgetfulDisk is the real disk, with account of what of it would be there after
// a power cut: the pages of segments and the entries of the log's directory as
// they were at their last sync, and each version that they have had since.
// state.json is written whole and synced each time; the mark of the verified end
// never is.
type forgetfulDisk struct {
	osDisk
	dir   string
	names map[string]*kept // as processes see them, those removed since included
	sure  map[string]*kept // as they are on the disk for certain
	marks [][]byte         // what the mark has been; nil: there was none
}

// kept is a segment file, of which somebody may have removed the name.
type kept struct {
	link   string // under which it cannot get lost
	synced []byte
	pages  map[int64][][]byte // versions since the last sync, by number
}

func newForgetfulDisk(t tb, dir string) *forgetfulDisk {
	t.Helper()
	d := &forgetfulDisk{
		osDisk: osDisk{tmp: filepath.Join(AgentDir(dir), "tmp")}, dir: CommitLogDir(dir),
		names: map[string]*kept{}, sure: map[string]*kept{}, marks: [][]byte{nil},
	}
	segments, err := commitlog.List(d.dir)
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, seg := range segments {
		k, err := d.keep(seg.Path)
		if err != nil {
			t.Fatalf("keep: %v", err)
		}
		d.sure[filepath.Base(seg.Path)] = k
	}
	d.remember(t, dir)
	return d
}

// keep begins the account of a file.
func (d *forgetfulDisk) keep(path string) (*kept, error) {
	aside := d.dir + ".kept"
	if err := os.MkdirAll(aside, 0o755); err != nil {
		return nil, err
	}
	link, err := os.CreateTemp(aside, "segment")
	if err != nil {
		return nil, err
	}
	k := &kept{link: link.Name(), pages: map[int64][][]byte{}}
	if k.synced, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	d.names[filepath.Base(path)] = k
	return k, errors.Join(link.Close(), os.Remove(k.link), os.Link(path, k.link))
}

func (d *forgetfulDisk) create(path string, size wire.ByteSize) (segmentFile, error) {
	f, err := d.osDisk.create(path, size)
	if err != nil {
		return nil, err
	}
	k, err := d.keep(path)
	return &forgetfulFile{segmentFile: f, kept: k}, err
}

func (d *forgetfulDisk) open(path string) (segmentFile, error) {
	f, err := d.osDisk.open(path)
	if err != nil {
		return nil, err
	}
	return &forgetfulFile{segmentFile: f, kept: d.names[filepath.Base(path)]}, nil
}

func (d *forgetfulDisk) syncDir(dir string) error {
	d.sure = map[string]*kept{}
	for name, k := range d.names {
		if exists(filepath.Join(d.dir, name)) {
			d.sure[name] = k
		}
	}
	return d.osDisk.syncDir(dir)
}

// remember notes what the mark is now.
func (d *forgetfulDisk) remember(t tb, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(AgentDir(dir), "verified"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("mark: %v", err)
	}
	if !slices.Equal(b, d.marks[len(d.marks)-1]) {
		d.marks = append(d.marks, b)
	}
}

// survivor makes a directory below parent of what a power cut leaves of dir.
func (d *forgetfulDisk) survivor(t *rapid.T, parent, dir string) string {
	t.Helper()
	to := mustMkdir(t, parent)
	if err := os.MkdirAll(CommitLogDir(to), 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	names := map[string]bool{}
	for name := range d.names {
		names[name] = true
	}
	for name := range d.sure {
		names[name] = true
	}
	for _, name := range sortedKeys(names) {
		now := d.names[name]
		if !exists(filepath.Join(d.dir, name)) {
			now = nil
		}
		k := d.sure[name]
		if k != now && rapid.Bool().Draw(t, "entry "+name) {
			k = now
		}
		if k != nil {
			writeFile(t, filepath.Join(CommitLogDir(to), name), string(k.survivor(t)))
		}
	}
	writeFile(t, filepath.Join(to, abortName), "")
	b, err := os.ReadFile(statePath(dir))
	if err != nil {
		t.Fatalf("state: %v", err)
	}
	writeFile(t, statePath(to), string(b))
	if mark := rapid.SampledFrom(d.marks).Draw(t, "mark"); mark != nil {
		writeFile(t, filepath.Join(AgentDir(to), "verified"), string(mark))
	}
	return to
}

// survivor returns what a power cut leaves of the file.
func (k *kept) survivor(t *rapid.T) []byte {
	b := slices.Clone(k.synced)
	for _, page := range sortedKeys(k.pages) {
		versions := k.pages[page]
		// The newest one and the one on disk are the likely ones.
		i := rapid.OneOf(rapid.SampledFrom([]int{-1, len(versions) - 1}), rapid.IntRange(-1, len(versions)-1)).Draw(t, "version")
		if i >= 0 {
			copy(b[page*pageSize:], versions[i])
		}
	}
	return b
}

type forgetfulFile struct {
	segmentFile
	kept *kept
}

func (f *forgetfulFile) writev(bufs [][]byte, off int64) (int, error) {
	n, err := f.segmentFile.writev(bufs, off)
	return n, errors.Join(err, f.kept.wrote(off, int64(n)))
}

func (f *forgetfulFile) zero(off, n int64) error {
	return errors.Join(f.segmentFile.zero(off, n), f.kept.wrote(off, n))
}

func (f *forgetfulFile) datasync() (err error) {
	if err = f.segmentFile.datasync(); err == nil {
		f.kept.pages = map[int64][][]byte{}
		f.kept.synced, err = os.ReadFile(f.kept.link)
	}
	return err
}

// wrote notes a new version of each page that [off, off+n) touches.
func (k *kept) wrote(off, n int64) error {
	if n <= 0 {
		return nil
	}
	b, err := os.ReadFile(k.link)
	if err != nil {
		return err
	}
	for page := off / pageSize; page*pageSize < off+n; page++ {
		k.pages[page] = append(k.pages[page], b[page*pageSize:min((page+1)*pageSize, int64(len(b)))])
	}
	return nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}
