package metadata

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/haagent/haagent/wire"
)

// fileCache remembers what ReadDir read last, so that a content that is still the
// same is held once, and a file that did not change is not read again.
type fileCache struct {
	now func() time.Time
	// reread is after how long a file is read again whatever its times say.
	reread time.Duration
	files  map[string]cachedFile
	reads  int           // how often a content was read, for tests
	spent  time.Duration // on reading and checking, all in all
}

// cachedFile is the outcome of the last read that met a file at rest: what is in
// it, or why that is not to be believed.
type cachedFile struct {
	file File
	err  error
	seen stamp     // zero where the next look has to read again
	at   time.Time // of the read
}

// read is readSettled with a memory.
func (c *fileCache) read(dir, name string) (file File, err error) {
	f, before, err := openRegular(dir, name)
	if err != nil {
		delete(c.files, name)
		return File{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	now, seen := c.now(), stampOf(before)
	old := c.files[name]
	if age := now.Sub(old.at); old.seen == seen && seen != (stamp{}) && age >= 0 && age < c.reread {
		return old.file, old.err
	}
	c.reads++
	start := time.Now()
	defer func() { c.spent += time.Since(start) }()
	file, size, err := c.take(f, before, name, old.file)
	if !atRest(err) {
		return File{}, err
	}
	if err := unchanged(dir, name, before, size); err != nil {
		return File{}, err
	}
	next := cachedFile{file: file, err: err, at: now}
	// A file that changed just now may change again without its times telling.
	if now.Sub(time.Unix(0, seen.change)) > settled {
		next.seen = seen
	}
	if err != nil {
		next.file = old.file // what comes next may be that again
	}
	c.files[name] = next
	return file, err
}

// atRest reports whether a content was read to its end, believed or not.
func atRest(err error) bool {
	var bad *JSONError
	return err == nil || errors.As(err, &bad)
}

// take reads f, of which old was the last believed content, and returns old
// itself where nothing changed.
func (c *fileCache) take(f *os.File, before fs.FileInfo, name string, old File) (File, int, error) {
	if old.Content != nil && before.Size() == int64(len(old.Content)) {
		sum := sha256.New()
		n, err := io.Copy(sum, io.LimitReader(f, before.Size()+1))
		if err != nil {
			return File{}, 0, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		if n == before.Size() && Hash(sum.Sum(nil)) == old.SHA256 {
			return old, int(n), nil
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return File{}, 0, fmt.Errorf("read %s: %w", f.Name(), err)
		}
	}
	content, err := readFrom(f, before)
	if err != nil {
		return File{}, 0, err
	}
	file, err := NewFile(name, content)
	return file, len(content), err
}

// share returns f with the content of the last read where that is the same.
func (c *fileCache) share(f File) File {
	if old := c.files[f.Name].file; old.Content != nil && old.SHA256 == f.SHA256 {
		return old
	}
	c.files[f.Name] = cachedFile{file: f}
	return f
}

// fit leaves out what would make a snapshot too large to be taken.
func fit(files []File) ([]File, []Skipped) {
	var kept []File
	var skipped []Skipped
	var total wire.ByteSize
	for _, f := range files {
		if n := wire.ByteSize(len(f.Content)); total+n <= MaxSnapshot {
			total += n
			kept = append(kept, f)
		} else {
			skipped = append(skipped, Skipped{f.Name, fmt.Errorf("%w: %v beside the other files, which may hold %v together", ErrTooLarge, n, MaxSnapshot)})
		}
	}
	return kept, skipped
}
