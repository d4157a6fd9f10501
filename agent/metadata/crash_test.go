package metadata

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/wire"
)

// A world is a store with version 1 of three files in it and version 2 offered.
type world struct {
	dir   string
	clock *clock
	disk  *disk
	i     *Installer
	old   []File
	new   []File
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), clock: newClock()}
	groups := func(v int) File {
		return mustFile(t, "subscriptionGroup.json", fmt.Appendf(nil, `{"dataVersion":{"counter":%d,"timestamp":%d},"subscriptionGroupTable":{"g1":{}}}`, v, v))
	}
	w.old = []File{mustFile(t, "topics.json", topics(1, 5)), groups(1), mustFile(t, "consumerOffset.json", offsets(1))}
	w.new = []File{mustFile(t, "topics.json", topics(2, 6)), groups(2), mustFile(t, "consumerOffset.json", offsets(2)), mustFile(t, "delayOffset.json", []byte(`{"offsetTable":{1:1}}`))}
	w.disk = &disk{root: w.dir}
	var err error
	if w.i, err = newInstaller(w.disk, w.clock.options()); err != nil {
		t.Fatal(err)
	}
	offered(t, w.i, w.clock.snapshot(10, w.old...))
	installed(t, w.i, 10, "topics.json", "subscriptionGroup.json", "consumerOffset.json")
	return w
}

// check looks at config/ as a broker would that is booted at this moment.
func (w *world) check(t testing.TB, where string) {
	t.Helper()
	newSeen := true
	for _, f := range w.new { // in the order of installation
		got := content(t, w.dir, f.Name)
		isNew := got == string(f.Content)
		old := slices.IndexFunc(w.old, func(o File) bool { return o.Name == f.Name })
		switch {
		case isNew && !newSeen:
			t.Fatalf("%s: %s is new, and what is installed before it is not", where, f.Name)
		case !isNew && old >= 0 && got != string(w.old[old].Content):
			t.Fatalf("%s: %s is neither old nor new: %.80q", where, f.Name, got)
		case !isNew && old < 0 && got != "":
			t.Fatalf("%s: %s is torn: %.80q", where, f.Name, got)
		}
		newSeen = newSeen && isNew
	}
	for _, name := range listing(t, w.dir, "config") {
		if _, ok := Lookup(name); !ok {
			t.Fatalf("%s: config/ holds %s", where, name)
		}
	}
}

var errInjected = errors.New("injected")

// failAt makes the step of that number fail, and all later ones too if the
// process is to have died there. It returns a counter.
func (w *world) failAt(k int, dead bool) *int {
	n := 0
	w.disk.before = func(string, string) error {
		n++
		if n == k || dead && n > k {
			return errInjected
		}
		return nil
	}
	return &n
}

// Each step of an install fails once. The same Installer goes on when the cause
// is gone.
func TestI5_FailAtEveryStepAndRetry(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t)
		offered(t, w.i, w.clock.snapshot(20, w.new...))
		steps := w.failAt(k, false)
		_, err := w.i.Install(20)
		where := fmt.Sprintf("step %d failed", k)
		w.check(t, where)
		if err != nil && !errors.Is(err, errInjected) {
			t.Fatalf("%s: %v", where, err)
		}
		if *steps < k {
			if err != nil || k < 40 {
				t.Fatalf("%d steps, %v", *steps, err)
			}
			return
		}
		if err == nil {
			t.Fatalf("%s: no error", where)
		}
		w.disk.before = nil
		if _, err := w.i.Install(20); err != nil {
			t.Fatalf("%s, again: %v", where, err)
		}
		w.complete(t, where)
	}
}

// complete asserts that version 2 stands there, that Check agrees and that
// nothing is left over.
func (w *world) complete(t testing.TB, where string) {
	t.Helper()
	for _, f := range w.new {
		wantContent(t, w.dir, f.Name, f.Content)
	}
	if foreign, err := w.i.Check(); err != nil || foreign != nil {
		t.Fatalf("%s: Check: %q, %v", where, foreign, err)
	}
	if left := listing(t, w.dir, ".haagent", "tmp"); left != nil {
		t.Fatalf("%s: left over %q", where, left)
	}
	if n, err := w.i.Install(20); err != nil || n != nil {
		t.Fatalf("%s: one more Install: %q, %v", where, n, err)
	}
}

// The process dies at each step, and once more at each step of the start after
// it. Starts finish what was decided and forget what was not.
func TestI5_DieAtEveryStepAndRestart(t *testing.T) {
	for k := 1; ; k++ {
		w := newWorld(t)
		offered(t, w.i, w.clock.snapshot(20, w.new...))
		steps := w.failAt(k, true)
		if _, err := w.i.Install(20); *steps < k {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		where := fmt.Sprintf("died at step %d", k)
		w.check(t, where)
		for again := 1; ; again++ {
			w.disk = &disk{root: w.dir}
			steps := w.failAt(again, true)
			i, err := newInstaller(w.disk, w.clock.options())
			w.check(t, fmt.Sprintf("%s, then at %d", where, again))
			if *steps < again {
				if err != nil {
					t.Fatalf("%s: restart: %v", where, err)
				}
				w.i = i
				break
			}
		}
		w.disk.before = nil
		if foreign, err := w.i.Check(); err != nil || foreign != nil {
			t.Fatalf("%s: after the restart somebody else wrote %q, %v", where, foreign, err)
		}
		offered(t, w.i, w.clock.snapshot(20, w.new...))
		if _, err := w.i.Install(20); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		w.complete(t, where)
	}
}

// Going back fails at each step, and is finished by the next try or the next start.
func TestI5_FailAtEveryStepOfGoingBack(t *testing.T) {
	for what, back := range map[string]func(i *Installer) ([]string, error){
		"restore": func(i *Installer) ([]string, error) { return i.Restore(1) },
		"rewind":  func(i *Installer) ([]string, error) { return i.Rewind(150) },
		"repair":  func(i *Installer) ([]string, error) { return i.Repair() },
	} {
		for _, dead := range []bool{false, true} {
			for k := 1; ; k++ {
				dir, i, c := grown(t, 2, Options{})
				if what == "repair" {
					for _, name := range []string{"topics.json", "consumerOffset.json"} {
						if err := os.Remove(filepath.Join(dir, "config", name)); err != nil {
							t.Fatal(err)
						}
					}
				}
				w := &world{dir: dir, disk: i.disk}
				steps := w.failAt(k, dead)
				_, err := back(i)
				if *steps < k {
					if err != nil || k < 5 {
						t.Fatalf("%s: %d steps, %v", what, *steps, err)
					}
					break
				}
				if !errors.Is(err, errInjected) {
					t.Fatalf("%s: step %d: %v", what, k, err)
				}
				for _, name := range listing(t, dir, "config") {
					mustFile(t, name, []byte(content(t, dir, name))) // whole, and nothing else
				}
				w.disk.before = nil
				if dead {
					i = open(t, dir, c.options())
				}
				if _, err := back(i); err != nil {
					t.Fatalf("%s: step %d, again: %v", what, k, err)
				}
				version, positions := map[string]int{"restore": 1, "rewind": 2, "repair": 2}[what], map[string]int{"restore": 1, "rewind": 1, "repair": 2}[what]
				wantContent(t, dir, "topics.json", topics(version, 3))
				wantContent(t, dir, "consumerOffset.json", offsets(positions))
				if foreign, err := i.Check(); err != nil || foreign != nil {
					t.Fatalf("%s: step %d: Check: %q, %v", what, k, foreign, err)
				}
			}
		}
	}
}

// killLoopDir tells a re-executed test binary to install for ever.
const killLoopDir = "HAAGENT_TEST_INSTALL_FOREVER"

// loopVersion is what the killed process installs in round n.
func loopVersion(n int) ([]File, error) {
	top, err := NewFile("topics.json", topics(n, 50))
	if err != nil {
		return nil, err
	}
	positions, err := NewFile("consumerOffset.json", offsets(n))
	return []File{positions, top}, err
}

// installForever prints each version once it is installed, until it is killed.
func installForever(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	i, err := NewInstaller(dir, Options{Keep: 3})
	fail(err)
	foreign, err := i.Check()
	fail(err)
	if foreign != nil {
		fail(fmt.Errorf("somebody else wrote %q", foreign))
	}
	n := 1
	if e := i.current.entry("topics.json"); e != nil {
		n = int(e.DataVersion.Counter) + 1
	}
	for ; ; n++ {
		files, err := loopVersion(n)
		fail(err)
		fail(i.Offer(Snapshot{TakenAt: i.opts.Now(), SourceEnd: wire.PhyOffset(n), Files: files}))
		_, err = i.Install(wire.PhyOffset(n))
		fail(err)
		fmt.Println(n)
	}
}

// A process that installs as fast as it can is killed again and again. After each
// kill a broker would find two whole files, the positions never newer than the
// topics, no version that is older than one that was reported, and no strangers.
func TestFault50_KillLoop(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	reported := 0
	for round := range 25 {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), killLoopDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		// The kill falls at another point of the next install each time, by the
		// number of reported installs and by how long killing takes.
		for n := 0; n <= round%4 && lines.Scan(); n++ {
			if _, err := fmt.Sscan(lines.Text(), &reported); err != nil {
				t.Fatalf("round %d: the installing process says %q", round, lines.Text())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &reported); err != nil {
				t.Fatalf("round %d: the installing process says %q", round, lines.Text())
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatalf("round %d: it ended by itself", round)
		}
		top := mustFile(t, "topics.json", []byte(content(t, dir, "topics.json"))).DataVersion.Counter
		positions := content(t, dir, "consumerOffset.json")
		var at int64
		_, numbers, _ := strings.Cut(positions, "{0:")
		if _, err := fmt.Sscanf(numbers, "%d,", &at); err != nil || at > top || at < int64(reported) {
			t.Fatalf("round %d: positions of version %d, topics of version %d, reported %d, %v", round, at, top, reported, err)
		}
		mustFile(t, "consumerOffset.json", []byte(positions))
		if names := listing(t, dir, "config"); !slices.Equal(names, []string{"consumerOffset.json", "topics.json"}) {
			t.Fatalf("round %d: config/ holds %q", round, names)
		}
	}
	i := open(t, dir, Options{Keep: 3})
	if left := listing(t, dir, ".haagent", "tmp"); left != nil {
		t.Errorf("left over %q", left)
	}
	if foreign, err := i.Check(); err != nil || foreign != nil {
		t.Errorf("Check: %q, %v", foreign, err)
	}
	if kept := listing(t, dir, ".haagent", "metadata", "generations"); len(kept) > 4 {
		t.Errorf("%d generations are kept", len(kept))
	}
}

func TestNewInstaller_NeedsTheRoot(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := NewInstaller(missing, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing root: %v", err)
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the root was made: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewInstaller(file, Options{}); err == nil {
		t.Error("a file is no root")
	}
}
