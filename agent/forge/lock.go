//go:build unix

package forge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// takeLock opens DIR/lock and locks its first byte, as a broker does.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock store: %w", err)
	}
	if err := lockByte(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock store %s: %w", dir, err), f.Close())
	}
	if _, err := f.WriteAt([]byte("lock"), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("lock store: %w", err), f.Close())
	}
	return f, nil
}

// writeAbort creates the file that says that the store was not closed: empty in
// 4.x, later with the process id, and what was in it before in a second file.
func writeAbort(dir string, style Style) error {
	content := ""
	if style != Style4x {
		content = strconv.Itoa(os.Getpid())
	}
	path := filepath.Join(dir, "abort")
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write abort: %w", err)
	}
	if style != Style4x {
		if err := os.WriteFile(path+".bak", before, 0o644); err != nil {
			return fmt.Errorf("write abort: %w", err)
		}
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return fmt.Errorf("write abort: %w", err)
	}
	return nil
}

func removeAbort(dir string) error {
	if err := os.Remove(filepath.Join(dir, "abort")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove abort: %w", err)
	}
	return nil
}

func segmentPath(dir string, base wire.PhyOffset) string {
	return filepath.Join(dir, commitlog.Name(base))
}
