package metadata

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// ErrUnsettled is matched by the error for a file that changed, was missing or
// was not whole each time it was looked at.
var ErrUnsettled = errors.New("config file did not settle")

// ReadOptions tune ReadDir. The zero value of each field means its default.
type ReadOptions struct {
	// Tries is how often a file that is being written is looked at, 10 by default.
	Tries int
	// Pause is about the time between the tries, 50 ms by default.
	Pause time.Duration
	// Backups allows NAME.bak in the place of a NAME that is missing, empty or not
	// whole after all tries, as a broker does at its start. A broker that runs has
	// the truth in memory and writes NAME anew, its .bak is of another time: set
	// this only where no broker runs.
	Backups bool

	// read is readSettled, or what remembers earlier reads.
	read func(dir, name string) (File, error)
}

// Skipped is a known file that stands in the directory and was not read.
type Skipped struct {
	Name string
	Err  error
}

// ConfigDir returns where the config files of a store are.
func ConfigDir(dir string) string { return filepath.Join(dir, "config") }

// ReadDir reads the config files of a store whose root is dir while a broker may
// be writing them. Only known names are opened, links, FIFOs and the like are
// not. Whatever the broker's way of writing is, a file is taken only if it is
// whole and did not change while it was read; files of which only a .bak exists
// for the moment count as being written. A file that does not exist at all is
// neither in the files nor in the skipped ones. The error is that of ctx, or of a
// directory that cannot be read.
func ReadDir(ctx context.Context, dir string, o ReadOptions) ([]File, []Skipped, error) {
	if o.Tries == 0 {
		o.Tries = 10
	}
	if o.Pause == 0 {
		o.Pause = 50 * time.Millisecond
	}
	if o.read == nil {
		o.read = func(dir, name string) (File, error) { return readSettled(dir, name, name) }
	}
	config := ConfigDir(dir)
	if _, err := os.ReadDir(config); err != nil {
		return nil, nil, fmt.Errorf("config directory: %w", err)
	}
	found := make(map[string]File)
	failed := make(map[string]error)
	var open []string
	for _, k := range known {
		if k.Policy != Never {
			open = append(open, k.Name)
		}
	}
	for try := 1; ; try++ {
		var again []string
		for _, name := range open {
			f, err := o.read(config, name)
			switch {
			case err == nil:
				found[name] = f
				delete(failed, name)
			case errors.Is(err, fs.ErrNotExist) && !exists(config, name+".bak") && failed[name] == nil:
				// Not there, and not about to be.
			case errors.Is(err, ErrTarget) || errors.Is(err, ErrTooLarge):
				failed[name] = err
			default:
				failed[name] = err
				again = append(again, name)
			}
		}
		if open = again; len(open) == 0 || try == o.Tries {
			break
		}
		// Not the same each time: a broker that writes as regularly as that would be
		// met at the same step again and again.
		if err := pause(ctx, o.Pause*time.Duration(5+3*try%7)/8); err != nil {
			return nil, nil, err
		}
	}
	var files []File
	var skipped []Skipped
	for _, k := range known {
		f, ok := found[k.Name]
		err := failed[k.Name]
		if !ok && err != nil && o.Backups && !errors.Is(err, ErrTarget) {
			if b, bakErr := readSettled(config, k.Name+".bak", k.Name); bakErr == nil {
				f, ok = b, true
			} else if !errors.Is(bakErr, fs.ErrNotExist) {
				err = errors.Join(err, bakErr)
			}
		}
		if ok {
			files = append(files, f)
		} else if err != nil {
			skipped = append(skipped, Skipped{k.Name, err})
		}
	}
	return files, skipped, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

func exists(dir, name string) bool {
	info, err := os.Lstat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular()
}

// readSettled reads a file once, for the place of name. It fails if it was not
// the same before and after.
func readSettled(dir, file, name string) (File, error) {
	content, err := readStable(dir, file)
	if err != nil {
		return File{}, err
	}
	return NewFile(name, content)
}

func readStable(dir, name string) (content []byte, err error) {
	f, before, err := openRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if content, err = readFrom(f, before); err != nil {
		return nil, err
	}
	return content, unchanged(dir, name, before, len(content))
}

// unchanged fails if a file of which size bytes were read is not what it was
// before.
func unchanged(dir, name string, before fs.FileInfo, size int) error {
	path := filepath.Join(dir, name)
	after, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: replaced while it was read", path, ErrUnsettled)
	}
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	if stampOf(after) != stampOf(before) || after.Size() != int64(size) {
		return fmt.Errorf("%s: %w: changed while it was read", path, ErrUnsettled)
	}
	return nil
}
