package forge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteConfig writes content to DIR/config/NAME as a broker of that generation
// persists a config file, and so in no safe way:
//
//	Style4x     write NAME.tmp; copy NAME to NAME.bak; delete NAME; rename NAME.tmp
//	Style5x     copy NAME to NAME.bak; empty NAME and write it
//	StyleNewer  rename NAME to NAME.bak; write NAME; each synced with the directory
//
// The copy is left out where there is no NAME. If step is there, it is called
// after each change of the directory that a reader can see, with its name: "FILE
// empty", "FILE half", "FILE whole", "NAME deleted", "NAME renamed". An error it
// returns ends WriteConfig there, with that error, as if the broker died.
func WriteConfig(dir, name string, content []byte, style Style, step func(change string) error) error {
	if step == nil {
		step = func(string) error { return nil }
	}
	c := configWriter{dir: filepath.Join(dir, "config"), name: name, step: step}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("write config %s: %w", name, err)
	}
	var err error
	switch style {
	case Style4x:
		err = c.write4x(content)
	case Style5x:
		err = c.write5x(content)
	case StyleNewer:
		err = c.writeNewer(content)
	default:
		err = fmt.Errorf("no style %d", style)
	}
	if err != nil {
		return fmt.Errorf("write config %s: %w", name, err)
	}
	return nil
}

type configWriter struct {
	dir, name string
	step      func(change string) error
}

func (c configWriter) path(suffix string) string { return filepath.Join(c.dir, c.name+suffix) }

func (c configWriter) write4x(content []byte) error {
	if err := c.rewrite(".tmp", content); err != nil {
		return err
	}
	if err := c.backUp(); err != nil {
		return err
	}
	if err := os.Remove(c.path("")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := c.step(c.name + " deleted"); err != nil {
		return err
	}
	if err := os.Rename(c.path(".tmp"), c.path("")); err != nil {
		return err
	}
	return c.step(c.name + " renamed")
}

func (c configWriter) write5x(content []byte) error {
	if err := c.backUp(); err != nil {
		return err
	}
	return c.rewrite("", content)
}

func (c configWriter) writeNewer(content []byte) error {
	err := os.Rename(c.path(""), c.path(".bak"))
	switch {
	case err == nil:
		if err := c.syncDir(); err != nil {
			return err
		}
		if err := c.step(c.name + " renamed"); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := c.rewrite("", content); err != nil {
		return err
	}
	return c.syncDir()
}

// backUp copies the file to its .bak, if there is one.
func (c configWriter) backUp() error {
	before, err := os.ReadFile(c.path(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.rewrite(".bak", before)
}

// rewrite empties a file and writes it in two halves.
func (c configWriter) rewrite(suffix string, content []byte) error {
	f, err := os.OpenFile(c.path(suffix), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	err = c.writeHalves(f, c.name+suffix, content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (c configWriter) writeHalves(f *os.File, name string, content []byte) error {
	if err := c.step(name + " empty"); err != nil {
		return err
	}
	half := len(content) / 2
	if _, err := f.Write(content[:half]); err != nil {
		return err
	}
	if err := c.step(name + " half"); err != nil {
		return err
	}
	if _, err := f.Write(content[half:]); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return c.step(name + " whole")
}

func (c configWriter) syncDir() error {
	d, err := os.Open(c.dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}
