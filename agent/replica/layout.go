package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
)

// Names below the store root.
const (
	commitLogName = "commitlog"
	configName    = "config"
	agentName     = ".haagent"
	abortName     = "abort"
	metadataName  = "metadata" // below agentName: generations of the config
)

// brokerDerived are the files that a broker makes for itself from the log when
// it runs, one that finds the store locked included: 4.9.7 leaves the first
// three then, 5.3.3 the timer's as well, 5.5.0 all but timerlog and
// consumequeue_ext. On a replica they would make a booting broker believe that
// its queues, or its timers, are up to date.
var brokerDerived = []string{
	"checkpoint", "consumequeue", "index",
	"timerwheel", "timerlog", filepath.Join(configName, "timercheck"),
	"consumequeue_ext", "compaction", "rocksdbstore",
}

// AgentDir returns the directory below the store root that belongs to haagent.
func AgentDir(dir string) string { return filepath.Join(dir, agentName) }

// CommitLogDir returns the default place of the segments of the store at dir.
func CommitLogDir(dir string) string { return filepath.Join(dir, commitLogName) }

// RememberedLogDir returns where the segments of the store at dir are, if nobody
// says so: a replica remembers it, also as the master's store that it may have
// become; else it is the default place. A state that cannot be read is for others
// to complain of.
func RememberedLogDir(dir string) string {
	st, err := ReadState(dir)
	if err != nil {
		return CommitLogDir(dir)
	}
	return st.LogDir(dir)
}

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

// Names by which a store without segments is known. Those of storeOnly are
// enough by themselves; those of storeToo are found in other places as well.
var (
	storeOnly = []string{commitLogName, agentName, "checkpoint", "consumequeue"}
	storeToo  = []string{configName, abortName, "abort.bak", "index", "timerwheel", "timerlog", "consumequeue_ext", "compaction", "rocksdbstore"}
	anyPlace  = []string{"lock", "lost+found"}
)

// Classify looks at dir (and at logDir, where the segments are) without
// changing anything.
func Classify(dir, logDir string) (Kind, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	return classifyNames(entries), nil
}

// classifyNames judges a directory without segments and without our state.
func classifyNames(entries []fs.DirEntry) Kind {
	only, too, other := false, false, false
	for _, e := range entries {
		switch name := e.Name(); {
		case slices.Contains(storeOnly, name):
			only = true
		case slices.Contains(storeToo, name):
			too = true
		case !slices.Contains(anyPlace, name):
			other = true
		}
	}
	switch {
	case only, too && !other:
		return KindLogless
	case other:
		return KindNotStore
	}
	return KindEmpty
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
// .haagent/set-aside. Nothing is deleted.
func setAside(dir string, now time.Time, names ...string) error {
	target, err := freshDir(filepath.Join(AgentDir(dir), "set-aside"), now)
	if err != nil {
		return fmt.Errorf("make room to set files aside: %w", err)
	}
	return moveAll(dir, target, names)
}

// moveAll moves those of the named entries of dir that there are to target.
func moveAll(dir, target string, names []string) error {
	for _, name := range names {
		err := os.Rename(filepath.Join(dir, name), filepath.Join(target, filepath.Base(name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s aside: %w", name, err)
		}
	}
	return errors.Join(syncDir(target), syncDir(dir))
}

// removeLeftovers removes what a killed process may have left in the directory
// for temporary files: those of state.json, and segments that were never born.
// Others use the directory too, so nothing else is touched.
func removeLeftovers(tmp string) error {
	entries, err := os.ReadDir(tmp)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	for _, e := range entries {
		_, err := commitlog.ParseName(e.Name())
		if err != nil && !strings.HasPrefix(e.Name(), ".state.json") {
			continue
		}
		if err := os.Remove(filepath.Join(tmp, e.Name())); err != nil {
			return fmt.Errorf("remove leftover: %w", err)
		}
	}
	return nil
}

// makeDir makes dir and what is missing above it, durably: what is synced in it
// must not go with its name. A directory that cannot be read cannot be synced.
func makeDir(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { // by others meanwhile is as well
		return err
	}
	if err := syncDir(parent); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// freshDir makes a directory below parent that is named after now and did not
// exist before, durably.
func freshDir(parent string, now time.Time) (string, error) {
	if err := os.MkdirAll(parent, 0o750); err != nil {
		return "", err
	}
	if err := syncDir(filepath.Dir(parent)); err != nil {
		return "", err
	}
	stamp := now.UTC().Format("20060102T150405.000000000Z")
	for i := 0; ; i++ {
		path := filepath.Join(parent, stamp)
		if i > 0 {
			path = fmt.Sprintf("%s-%d", path, i)
		}
		if err := os.Mkdir(path, 0o750); err == nil {
			return path, syncDir(parent)
		} else if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
}

// resyncNames are what Resync moves, in this order. The config goes before the log,
// and its generations before it: a crash between them must not leave those beside
// no log, or an agent would install positions that its new log does not cover. The
// state goes last: until then the directory is known for what it was.
func resyncNames() []string {
	names := append([]string{filepath.Join(agentName, metadataName), configName, commitLogName, abortName}, brokerDerived...)
	return append(names, filepath.Join(agentName, "state.json"))
}

// Resync sets the log, the config with its generations, whatever a broker derived
// from them and the replica's own state aside, so that replication starts anew on
// an empty directory. The caller holds the store lock. It returns where the old
// files are: a folder below DIR/.haagent, and for a log that is elsewhere one
// beside it, named alike. Nothing is deleted. An empty logDir is where the
// replica's state says, else the default.
func Resync(dir, logDir string, now time.Time) (string, error) {
	if logDir == "" {
		logDir = RememberedLogDir(dir)
	}
	target, err := freshDir(filepath.Join(AgentDir(dir), "set-aside"), now)
	if err != nil {
		return "", fmt.Errorf("make room to set files aside: %w", err)
	}
	if logDir != CommitLogDir(dir) {
		// First, because it is what can fail: no mount point can be renamed.
		entries, err := os.ReadDir(logDir)
		if len(entries) > 0 {
			err = os.Rename(logDir, logDir+".set-aside-"+filepath.Base(target))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("set the log aside: %w", err)
		}
	}
	if err := moveAll(dir, target, resyncNames()); err != nil {
		return "", err
	}
	return target, syncDir(AgentDir(dir))
}
