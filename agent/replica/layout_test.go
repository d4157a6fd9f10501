package replica

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

const segment0 = "commitlog/00000000000000000000"

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files string // a name that ends in / is a directory
		want  Kind
		open  error // of Open on it
	}{
		{"nothing", "", KindEmpty, nil},
		{"lock", "lock", KindEmpty, nil},
		{"new file system", "lost+found/", KindEmpty, nil},
		{"commitlog, empty", "commitlog/", KindLogless, nil},
		{"abort of somebody", "abort lock", KindLogless, nil}, // fault 70
		{"config", "config/topics.json config/consumerOffset.json", KindLogless, nil},
		{"broker without a log", "lock abort checkpoint config/topics.json consumequeue/ index/ commitlog/", KindLogless, nil},
		{"5.x without a log", "abort abort.bak checkpoint timerwheel timerlog/ consumequeue/", KindLogless, nil},
		{"salvage only", ".haagent/salvage/x", KindLogless, nil},
		{"store and a note", "commitlog/ notes.txt", KindLogless, nil},
		{"broker", "lock abort checkpoint " + segment0, KindStore, ErrForeignStore},
		{"broker, wrong name", "commitlog/x", KindStore, ErrForeignStore},
		{"state lost", ".haagent/tmp/ abort " + segment0, KindStore, ErrForeignStore},
		{"home", "notes.txt", KindNotStore, ErrNotStore},
		{"repository", "config index HEAD", KindNotStore, ErrNotStore},
		{"site", "index/ config/ main.html", KindNotStore, ErrNotStore},
		{"replica", ".haagent/state.json", KindReplica, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			for _, name := range strings.Fields(tt.files) {
				if path := filepath.Join(dir, name); strings.HasSuffix(name, "/") {
					if err := os.MkdirAll(path, 0o755); err != nil {
						t.Fatal(err)
					}
				} else {
					writeFile(t, path, stateText(`{"format":1,"segmentSize":65536,"start":-1,"verifiedEnd":-1,"lastMessage":-1}`))
				}
			}
			before := tree(t, dir)
			kind, err := Classify(dir, CommitLogDir(dir))
			if err != nil || kind != tt.want {
				t.Fatalf("%v, %v; want %v", kind, err, tt.want)
			}
			if after := tree(t, dir); !slices.Equal(before, after) {
				t.Fatalf("looking changed it: %v, then %v", before, after)
			}
			s, err := tryOpen(Options{Dir: dir, SegmentSize: 65536})
			if !errors.Is(err, tt.open) {
				t.Fatalf("open: %v, want %v", err, tt.open)
			}
			if err != nil {
				after := slices.DeleteFunc(tree(t, dir), func(name string) bool { return name == "lock" })
				before = slices.DeleteFunc(before, func(name string) bool { return name == "lock" })
				if !slices.Equal(before, after) {
					t.Fatalf("refusing changed it: %v, then %v", before, after)
				}
				return
			}
			closeStore(t, s)
			bootable(t, dir)
			checkNothingLost(t, before, tree(t, dir))
		})
	}
}

// tree lists all files below dir.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && path != dir && !e.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// checkNothingLost fails unless the files of before are still there, in their
// places or where files are set aside.
func checkNothingLost(t *testing.T, before, after []string) {
	t.Helper()
	if len(before) == 0 {
		return
	}
	aside := ".haagent/"
	if strings.HasPrefix(before[0], "log/") {
		aside = "log.set-aside-"
	}
	for _, name := range before {
		if !slices.ContainsFunc(after, func(now string) bool {
			return now == name || strings.HasPrefix(now, aside) && strings.HasSuffix(now, "/"+filepath.Base(name))
		}) {
			t.Errorf("%s is gone: %v", name, after)
		}
	}
}

// TestClassify_LogElsewhere: a log is a log where the store root is missing too.
func TestClassify_LogElsewhere(t *testing.T) {
	parent := t.TempDir()
	dir, logDir := filepath.Join(parent, "store"), filepath.Join(parent, "log")
	writeFile(t, filepath.Join(logDir, commitlog.Name(0)), "x")
	if kind, err := Classify(dir, logDir); kind != KindStore || err != nil {
		t.Fatalf("%v, %v", kind, err)
	}
	if _, err := tryOpen(Options{Dir: dir, CommitLogDir: logDir, SegmentSize: 1}); !errors.Is(err, ErrForeignStore) {
		t.Fatalf("%v", err)
	}
	file := filepath.Join(parent, "file")
	writeFile(t, file, "x")
	if _, err := Classify(file, CommitLogDir(file)); !errors.Is(err, unix.ENOTDIR) {
		t.Fatalf("a file: %v", err)
	}
}

func TestOpen_SegmentSize(t *testing.T) {
	log := makeLog(41, 65536, 0, 10, anyMessage)
	dir := t.TempDir()
	closeStore(t, replicate(t, dir, log))
	for _, size := range []wire.ByteSize{0, -1, 65535, 1 << 30} {
		if _, err := tryOpen(Options{Dir: dir, SegmentSize: size}); !errors.Is(err, ErrSegmentSize) {
			t.Errorf("%d: %v", size, err)
		}
	}
}

// TestFault70_StrayLockAndAbort are no reason not to start.
func TestFault70_StrayLockAndAbort(t *testing.T) {
	log := makeLog(42, 65536, 0, 10, anyMessage)
	dir := t.TempDir()
	kill(t, replicate(t, dir, log))
	writeFile(t, filepath.Join(dir, "lock"), "lock")
	writeFile(t, filepath.Join(dir, "abort"), "4711")
	s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
	if e := s.Ends(); e.Verified != log.end() {
		t.Fatalf("ends %+v", e)
	}
	closeStore(t, s)
}

// TestPromote leaves what a broker boots on with every message in it.
func TestPromote(t *testing.T) {
	log := makeLog(43, 9000, 9000, 30, anyMessage)
	dir := t.TempDir()
	opt := Options{Dir: dir, SegmentSize: log.size, Cluster: "c", BrokerName: "b"}
	s := openStore(t, opt)
	if err := s.Begin(log.start); err != nil {
		t.Fatal(err)
	}
	half := log.bounds[21]
	feed(t, s, log, log.start, half)
	// Half a message more (fault 89: the unfinished segment is served as it is).
	if err := s.Append(half, [][]byte{log.at(half, half.Add(60))}); err != nil {
		t.Fatal(err)
	}
	state, err := s.Promote()
	if err != nil {
		t.Fatal(err)
	}
	if !state.Promoted || state.Epoch != 1 || state.VerifiedEnd != half || state.Cluster != "c" {
		t.Fatalf("state %+v", state)
	}
	if got, err := ReadState(dir); err != nil || got != s.State() {
		t.Fatalf("state on disk %+v, %v", got, err)
	}
	checkPrefix(t, dir, log, half)
	bootable(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, disturbed := range []bool{false, true} {
		opt.Disturbed = disturbed
		if _, err := tryOpen(opt); !errors.Is(err, ErrPromoted) {
			t.Fatalf("open: %v", err)
		}
	}
}

// TestPromote_FailsAndIsTriedAgain: the epoch goes up once.
func TestPromote_FailsAndIsTriedAgain(t *testing.T) {
	log := makeLog(44, 65536, 0, 10, anyMessage)
	dir := t.TempDir()
	s := replicate(t, dir, log)
	aside := filepath.Join(dir, "aside")
	if err := os.RemoveAll(filepath.Join(AgentDir(dir), "tmp")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(AgentDir(dir), "tmp"), "in the way of state.json")
	if _, err := s.Promote(); err == nil {
		t.Fatal("promoted")
	}
	if err := os.Rename(filepath.Join(AgentDir(dir), "tmp"), aside); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, log.end(), log.end())
	state, err := s.Promote()
	if err != nil || state.Epoch != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
}

func TestPromote_Empty(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir, SegmentSize: 65536})
	if _, err := s.Promote(); err != nil {
		t.Fatal(err)
	}
	bootable(t, dir)
	if n := len(segmentsOf(t, dir, 65536)); n != 0 {
		t.Fatalf("%d segments", n)
	}
}

// TestOpen_RemembersWhereTheLogIs: a command that is given the store root only
// does not take a replica for an empty one.
func TestOpen_RemembersWhereTheLogIs(t *testing.T) {
	log := makeLog(46, 65536, 0, 10, anyMessage)
	dir, logDir := t.TempDir(), filepath.Join(t.TempDir(), "log")
	opt := Options{Dir: dir, CommitLogDir: logDir, SegmentSize: log.size}
	s := openStore(t, opt)
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, 0, log.end())
	closeStore(t, s)
	opt.CommitLogDir = ""
	s = openStore(t, opt)
	if e := s.Ends(); e.Verified != log.end() || s.CommitLogDir() != logDir {
		t.Fatalf("ends %+v in %s", e, s.CommitLogDir())
	}
	closeStore(t, s)
}

// TestResync sets everything aside, deletes nothing, and leaves a directory to
// begin in; of a promoted replica with a broker's files in it too.
func TestResync(t *testing.T) {
	log := makeLog(45, 9000, 0, 30, anyMessage)
	for _, elsewhere := range []bool{false, true} {
		dir, parent := t.TempDir(), t.TempDir()
		opt := Options{Dir: dir, CommitLogDir: CommitLogDir(dir), SegmentSize: log.size}
		if elsewhere {
			opt.CommitLogDir = filepath.Join(parent, "log")
		}
		s := openStore(t, opt)
		if err := s.Begin(0); err != nil {
			t.Fatal(err)
		}
		feed(t, s, log, 0, log.end())
		if _, err := s.Promote(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"config/topics.json", "checkpoint", "index/i", "consumequeue/t/0/q"} {
			writeFile(t, filepath.Join(dir, name), name)
		}
		before, logBefore := tree(t, dir), tree(t, parent)
		now, logDir := time.Now(), "" // of the state
		var targets []string
		for range 2 { // the second time there is nothing left
			lock, err := AcquireLock(dir)
			if err != nil {
				t.Fatal(err)
			}
			target, err := Resync(dir, logDir, now)
			if err != nil {
				t.Fatal(err)
			}
			logDir = opt.CommitLogDir
			targets = append(targets, target)
			if err := lock.Release(); err != nil {
				t.Fatal(err)
			}
		}
		if targets[0] == targets[1] {
			t.Fatalf("both went to %s", targets[0])
		}
		checkNothingLost(t, before, tree(t, dir))
		checkNothingLost(t, logBefore, append(tree(t, parent), tree(t, dir)...))
		if kind, err := Classify(dir, opt.CommitLogDir); kind != KindLogless || err != nil {
			t.Fatalf("%v, %v", kind, err)
		}
		s = openStore(t, opt)
		if e := s.Ends(); e.Written != wire.NoOffset || s.State().Promoted {
			t.Fatalf("ends %+v, state %+v", e, s.State())
		}
		closeStore(t, s)
	}
}

// TestResync_CutShort: whatever a crash leaves of it is a replica still, and set
// aside by the next one. A log that is gone has taken the config with it: positions
// that it does not cover would be installed anew.
func TestResync_CutShort(t *testing.T) {
	log := makeLog(47, 9000, 0, 30, anyMessage)
	for moved := range resyncNames() {
		dir := t.TempDir()
		s := openStore(t, Options{Dir: dir, SegmentSize: log.size})
		if err := s.Begin(0); err != nil {
			t.Fatal(err)
		}
		feed(t, s, log, 0, log.end())
		closeStore(t, s)
		config := []string{"config/topics.json", ".haagent/metadata/1/topics.json"}
		for _, name := range append(config, "checkpoint") {
			writeFile(t, filepath.Join(dir, name), name)
		}
		before := tree(t, dir)
		target, err := freshDir(filepath.Join(AgentDir(dir), "set-aside"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := moveAll(dir, target, resyncNames()[:moved]); err != nil {
			t.Fatal(err)
		}
		if kind, err := Classify(dir, CommitLogDir(dir)); kind != KindReplica || err != nil {
			t.Errorf("after %d names: %v, %v", moved, kind, err)
		}
		for _, name := range config {
			if exists(filepath.Join(dir, name)) && !exists(CommitLogDir(dir)) {
				t.Errorf("after %d names the log is gone, and %s is not", moved, name)
			}
		}
		if _, err := Resync(dir, "", time.Now()); err != nil {
			t.Fatal(err)
		}
		checkNothingLost(t, before, tree(t, dir))
		if kind, err := Classify(dir, CommitLogDir(dir)); kind != KindLogless || err != nil {
			t.Errorf("after %d names and a whole resync: %v, %v", moved, kind, err)
		}
		for _, name := range append(config, "checkpoint", commitLogName) {
			if exists(filepath.Join(dir, name)) {
				t.Errorf("%s is still there", name)
			}
		}
	}
}

// TestMakeDir_MakesWhatIsMissing: and nothing where a file is in the way.
func TestMakeDir_MakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	for range 2 {
		if err := makeDir(deep); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(deep); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	file := filepath.Join(root, "file")
	writeFile(t, file, "")
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if err := makeDir(dir); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
