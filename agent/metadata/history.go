package metadata

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// Generation is a set of config files that stood in config/ together. Its
// positions were covered by the verified log when it was installed.
type Generation struct {
	// Number counts the generations of this store, from 1 on.
	Number uint64 `json:"generation"`
	// Made is when it was installed.
	Made time.Time `json:"made"`
	// Origin says where the contents come from.
	Origin Origin `json:"origin"`
	// Files are the entries by name, in the order of installation.
	Files []Entry `json:"files"`
}

// Origin says what made a generation.
type Origin string

// The origins.
const (
	// FromSource: a snapshot of the source was installed.
	FromSource Origin = "source"
	// Found: the files stood in config/ when the store was first opened.
	Found Origin = "found"
	// Restored: an earlier generation was put back.
	Restored Origin = "restored"
)

// Entry is one file of a generation.
type Entry struct {
	Name        string                `json:"name"`
	Size        wire.ByteSize         `json:"size"`
	SHA256      Hash                  `json:"sha256"`
	DataVersion *remoting.DataVersion `json:"dataVersion,omitempty"`
	// SourceEnd and TakenAt are those of the snapshot that brought the content. A
	// file that was found has SourceEnd 0.
	SourceEnd wire.PhyOffset `json:"sourceEnd"`
	TakenAt   time.Time      `json:"takenAt"`
	// Entries is the number of entries in all tables of a JSON file.
	Entries int `json:"entries"`
}

// ErrNoGeneration is matched by the error for a generation that is not kept.
var ErrNoGeneration = errors.New("no such generation of config files")

// entry returns the entry of that name, nil where there is none.
func (g *Generation) entry(name string) *Entry {
	if g == nil {
		return nil
	}
	for i := range g.Files {
		if g.Files[i].Name == name {
			return &g.Files[i]
		}
	}
	return nil
}

// set adds or replaces an entry and keeps the order of installation.
func (g *Generation) set(e Entry) {
	if old := g.entry(e.Name); old != nil {
		*old = e
		return
	}
	g.Files = append(g.Files, e)
	slices.SortStableFunc(g.Files, func(a, b Entry) int { return rank(a.Name) - rank(b.Name) })
}

// rank is the place of a name in the order of installation.
func rank(name string) int {
	return slices.IndexFunc(known, func(k Known) bool { return k.Name == name })
}

// successor returns a copy with the next number, to be changed.
func (g *Generation) successor(number uint64, made time.Time, origin Origin) *Generation {
	next := &Generation{Number: number, Made: made, Origin: origin}
	if g != nil {
		next.Files = slices.Clone(g.Files)
	}
	return next
}

func generationName(number uint64) string { return fmt.Sprintf("%020d", number) }

// saveGeneration writes g and its sum.
func (d *disk) saveGeneration(g *Generation) error {
	line, err := json.Marshal(g)
	if err != nil {
		return fmt.Errorf("generation %d of config files: %w", g.Number, err)
	}
	sum := Hash(sha256.Sum256(line))
	text := fmt.Appendf(nil, "%s\n%v\n", line, sum)
	return d.put(filepath.Join(d.generations(), generationName(g.Number)), text, nil)
}

// loadGeneration reads a generation; the error matches ErrNoGeneration where the
// file does not exist, and ErrHash where it is damaged.
func (d *disk) loadGeneration(number uint64) (*Generation, error) {
	text, err := readRegular(d.generations(), generationName(number))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%d: %w", number, ErrNoGeneration)
	}
	if err != nil {
		return nil, fmt.Errorf("generation %d of config files: %w", number, err)
	}
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	if want := Hash(sha256.Sum256(line)); string(rest) != want.String()+"\n" {
		return nil, fmt.Errorf("generation %d of config files: %w", number, ErrHash)
	}
	g := new(Generation)
	if err := json.Unmarshal(line, g); err != nil {
		return nil, fmt.Errorf("generation %d of config files: %w", number, err)
	}
	if g.Number != number {
		return nil, fmt.Errorf("generation %d of config files calls itself %d: %w", number, g.Number, ErrHash)
	}
	for _, e := range g.Files {
		if _, ok := Lookup(e.Name); !ok {
			return nil, fmt.Errorf("generation %d of config files: %q: %w", number, e.Name, ErrName)
		}
	}
	return g, nil
}

// numbers lists the generations that are kept, in ascending order. Files with
// other names are not ours and are left alone.
func (d *disk) numbers() ([]uint64, error) {
	entries, err := os.ReadDir(d.generations())
	if err != nil {
		return nil, fmt.Errorf("config history: %w", err)
	}
	var list []uint64
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 64)
		if err == nil && e.Name() == generationName(n) {
			list = append(list, n)
		}
	}
	return list, nil
}

// saveObject keeps a content under its hash; one that is there already is not
// written again.
func (d *disk) saveObject(h Hash, content []byte) error {
	have, _, err := hashOf(d.objects(), h.String())
	if err == nil && have == h {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("config history: %w", err)
	}
	return d.put(filepath.Join(d.objects(), h.String()), content, nil)
}

// loadObject returns the content of that hash.
func (d *disk) loadObject(h Hash) ([]byte, error) {
	b, err := readRegular(d.objects(), h.String())
	if err != nil {
		return nil, fmt.Errorf("config history: %w", err)
	}
	if sha256.Sum256(b) != h {
		return nil, fmt.Errorf("config history: object %w %v", ErrHash, h)
	}
	return b, nil
}

// prune drops generations beyond the last keep, or beyond keepBytes of contents,
// but never the newest two: the newest is what stands in config/, the one before
// it is needed to finish an install. Contents that nobody names go with them.
func (d *disk) prune(keep int, keepBytes wire.ByteSize) error {
	numbers, err := d.numbers()
	if err != nil {
		return err
	}
	used := make(map[string]bool)
	var total wire.ByteSize
	kept := 0
	for _, n := range slices.Backward(numbers) {
		g, err := d.loadGeneration(n)
		if err == nil && (kept < 2 || kept < keep && total <= keepBytes) {
			kept++
			for _, e := range g.Files {
				if h := e.SHA256.String(); !used[h] {
					used[h] = true
					total += e.Size
				}
			}
			continue
		}
		if err := d.remove(filepath.Join(d.generations(), generationName(n))); err != nil {
			return err
		}
	}
	objects, err := os.ReadDir(d.objects())
	if err != nil {
		return fmt.Errorf("config history: %w", err)
	}
	for _, e := range objects {
		if !used[e.Name()] {
			if err := d.remove(filepath.Join(d.objects(), e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
