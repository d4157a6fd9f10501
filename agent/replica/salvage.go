package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// salvageDir makes a new folder for bytes that are cut back.
func (s *Store) salvageDir() (string, error) {
	target, err := freshDir(filepath.Join(AgentDir(s.opt.Dir), "salvage"), s.opt.Now())
	if err != nil {
		return "", fmt.Errorf("make room for salvage: %w", err)
	}
	return target, nil
}

// salvageSegments moves whole segments out of the log, newest first. The caller
// syncs the directory of the log.
func (s *Store) salvageSegments(segments []commitlog.Segment) error {
	if len(segments) == 0 {
		return nil
	}
	target, err := s.salvageDir()
	if err != nil {
		return err
	}
	for i := len(segments) - 1; i >= 0; i-- {
		to := filepath.Join(target, filepath.Base(segments[i].Path))
		if err := moveFile(segments[i].Path, to); err != nil {
			return fmt.Errorf("salvage segment: %w", err)
		}
	}
	return syncDir(target)
}

// Rewound returns how many verified bytes Options.Rewind has cut off. They are below
// DIR/.haagent/salvage.
func (s *Store) Rewound() wire.ByteSize { return s.rewound }

// salvageTail copies the bytes of seg from end to the last one that is not zero,
// and at least all that were verified.
func (s *Store) salvageTail(seg commitlog.Segment, end wire.PhyOffset) (err error) {
	view, err := commitlog.OpenView(seg.Path)
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	return commitlog.Guard(func() error {
		all := view.Bytes()[end.Sub(seg.Base):]
		rest := bytes.TrimRight(all, "\x00")
		if whole := min(s.had, seg.End()).Sub(end); whole > wire.ByteSize(len(rest)) {
			rest = all[:whole]
		}
		if len(rest) == 0 {
			return nil
		}
		target, err := s.salvageDir()
		if err != nil {
			return err
		}
		if err := writeNew(filepath.Join(target, "from-"+commitlog.Name(end)), bytes.NewReader(rest)); err != nil {
			return fmt.Errorf("salvage: %w", err)
		}
		return syncDir(target)
	})
}

// moveFile renames a file, or copies it where the target is on another file
// system; the original goes once the copy is on disk.
func moveFile(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	err = writeNew(to, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(to)); err != nil {
		return err
	}
	return os.Remove(from)
}

// writeNew writes and syncs a file that does not exist yet. What it could not
// finish it removes.
func writeNew(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
