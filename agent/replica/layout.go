package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
)

// Names below the store root.
const (
	commitLogName = "commitlog"
	configName    = "config"
	agentName     = ".haagent"
	abortName     = "abort"
)

// brokerDerived are the files that a broker makes for itself from the log when
// it runs. On a replica they would make a booting broker believe that its
// queues are up to date.
var brokerDerived = []string{"checkpoint", "consumequeue", "index"}

// AgentDir returns the directory below the store root that belongs to haagent.
func AgentDir(dir string) string { return filepath.Join(dir, agentName) }

// CommitLogDir returns the default place of the segments of the store at dir.
func CommitLogDir(dir string) string { return filepath.Join(dir, commitLogName) }

// Kind says what a directory is to a replica.
type Kind int

// The kinds of directory.
const (
	KindEmpty    Kind = iota // missing, empty, or holding a lock file at most
	KindReplica              // has our state.json
	KindStore                // has segments but no state of ours: some broker's own store
	KindLogless              // a store's other files, no segments: may become a replica
	KindNotStore             // holds other things: never touched
)

// Classify looks at dir (and at logDir, where the segments are) without
// changing anything.
func Classify(dir, logDir string) (Kind, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return KindEmpty, nil
	}
	if err != nil {
		return KindNotStore, fmt.Errorf("look into store directory: %w", err)
	}
	if _, err := os.Stat(statePath(dir)); err == nil {
		return KindReplica, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return KindNotStore, fmt.Errorf("look for replica state: %w", err)
	}
	segments, err := os.ReadDir(logDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return KindNotStore, fmt.Errorf("look into commitlog directory: %w", err)
	}
	if len(segments) > 0 {
		return KindStore, nil
	}
	known, other := false, false
	for _, e := range entries {
		switch e.Name() {
		case commitLogName, configName, agentName, abortName, "checkpoint", "consumequeue", "index":
			known = true
		case "lock", "lost+found":
		default:
			other = true
		}
	}
	switch {
	case known:
		return KindLogless, nil
	case other:
		return KindNotStore, nil
	}
	return KindEmpty, nil
}

// brokerTraces returns which files a broker that ran on dir has left there.
func brokerTraces(dir string) []string {
	var found []string
	for _, name := range brokerDerived {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			found = append(found, name)
		}
	}
	return found
}

// setAside moves the named entries of dir to a new folder below
// .haagent/set-aside and returns that folder. Nothing is deleted.
func setAside(dir string, now time.Time, names ...string) (string, error) {
	target, err := freshDir(filepath.Join(AgentDir(dir), "set-aside"), now)
	if err != nil {
		return "", fmt.Errorf("make room to set files aside: %w", err)
	}
	for _, name := range names {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(target, filepath.Base(name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("set %s aside: %w", name, err)
		}
	}
	return target, syncDir(dir)
}

// freshDir makes a directory below parent that is named after now and did not
// exist before.
func freshDir(parent string, now time.Time) (string, error) {
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return "", err
	}
	stamp := now.UTC().Format("20060102T150405.000000000Z")
	for i := 0; ; i++ {
		path := filepath.Join(parent, stamp)
		if i > 0 {
			path = fmt.Sprintf("%s-%d", path, i)
		}
		if err := os.Mkdir(path, 0o750); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
}

// Resync sets the log, the config and whatever a broker derived from them aside
// below DIR/.haagent, so that replication starts anew on an empty directory.
// The caller holds the store lock. It returns where the old files are.
func Resync(dir, logDir string, now time.Time) (string, error) {
	names := append([]string{commitLogName, configName, abortName}, brokerDerived...)
	target, err := setAside(dir, now, names...)
	if err != nil {
		return "", err
	}
	if logDir != CommitLogDir(dir) {
		segments, err := commitlog.List(logDir)
		if err != nil {
			return "", fmt.Errorf("list segments to set aside: %w", err)
		}
		if len(segments) > 0 {
			aside := logDir + ".set-aside-" + filepath.Base(target)
			if err := os.Rename(logDir, aside); err != nil {
				return "", fmt.Errorf("set the log aside: %w", err)
			}
		}
	}
	if err := os.Remove(statePath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("forget the replica's state: %w", err)
	}
	return target, syncDir(AgentDir(dir))
}
