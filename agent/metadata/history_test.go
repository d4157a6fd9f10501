package metadata

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/wire"
)

// grown returns a store into which versions 1 to n were installed, each with a
// log end of 100 times its number.
func grown(t testing.TB, n int, o Options) (string, *Installer, *clock) {
	t.Helper()
	dir, c := t.TempDir(), newClock()
	o.Now = c.Now
	i := open(t, dir, o)
	grow(t, i, c, 1, n)
	return dir, i, c
}

func grow(t testing.TB, i *Installer, c *clock, from, to int) {
	t.Helper()
	for v := from; v <= to; v++ {
		offered(t, i, c.snapshot(wire.PhyOffset(100*v), mustFile(t, "topics.json", topics(v, 3)), mustFile(t, "consumerOffset.json", offsets(v))))
		installed(t, i, wire.PhyOffset(100*v), "topics.json", "consumerOffset.json")
	}
}

func numbersOf(g []Generation) []uint64 {
	var list []uint64
	for _, x := range g {
		list = append(list, x.Number)
	}
	return list
}

func TestGenerations_TheLast32AreKept(t *testing.T) {
	dir, i, c := grown(t, 40, Options{})
	g, err := Generations(dir)
	if err != nil || len(g) != DefaultKeep || g[0].Number != 9 || g[31].Number != 40 || i.Generation() != 40 {
		t.Fatalf("generations %v, current %d, %v", numbersOf(g), i.Generation(), err)
	}
	if n := len(listing(t, dir, ".haagent", "metadata", "objects")); n != 2*DefaultKeep {
		t.Errorf("%d contents are kept", n)
	}
	for k, x := range g {
		v := k + 9
		if e := x.entry("consumerOffset.json"); x.Origin != FromSource || e.SourceEnd != wire.PhyOffset(100*v) || e.Entries != 1 || e.Size != wire.ByteSize(len(offsets(v))) {
			t.Errorf("generation %d: %+v", x.Number, x)
		}
	}
	// A restart goes on with the next number.
	i = open(t, dir, Options{Now: c.Now})
	grow(t, i, c, 41, 41)
	if i.Generation() != 41 {
		t.Errorf("generation after a restart is %d", i.Generation())
	}
}

func TestGenerations_BoundByBytes(t *testing.T) {
	one := wire.ByteSize(len(topics(1, 3)) + len(offsets(1)))
	dir, _, _ := grown(t, 20, Options{KeepBytes: 5 * one})
	g, err := Generations(dir)
	if err != nil || len(g) < 5 || len(g) > 7 || g[len(g)-1].Number != 20 {
		t.Errorf("generations %v, %v", numbersOf(g), err)
	}
	dir, _, _ = grown(t, 20, Options{KeepBytes: 1})
	if g, err = Generations(dir); err != nil || !slices.Equal(numbersOf(g), []uint64{19, 20}) {
		t.Errorf("generations %v, %v", numbersOf(g), err)
	}
}

func TestRestore(t *testing.T) {
	dir, _, c := grown(t, 5, Options{})
	names, err := Restore(dir, 2)
	if err != nil || !slices.Equal(names, []string{"topics.json", "consumerOffset.json"}) {
		t.Fatalf("Restore: %q, %v", names, err)
	}
	wantContent(t, dir, "topics.json", topics(2, 3))
	wantContent(t, dir, "consumerOffset.json", offsets(2))
	g, err := Generations(dir)
	if err != nil || g[len(g)-1].Number != 6 || g[len(g)-1].Origin != Restored {
		t.Errorf("generations %+v, %v", g, err)
	}
	// What stood there can be had back, and the same once more changes nothing.
	if names, err := Restore(dir, 5); err != nil || len(names) != 2 {
		t.Errorf("Restore: %q, %v", names, err)
	}
	wantContent(t, dir, "topics.json", topics(5, 3))
	if names, err := Restore(dir, 5); err != nil || names != nil {
		t.Errorf("Restore of what stands there: %q, %v", names, err)
	}
	// A file that was written over is put back too, though its generation stands.
	if err := os.WriteFile(filepath.Join(dir, "config", "topics.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := Restore(dir, 5); err != nil || !slices.Equal(names, []string{"topics.json"}) {
		t.Errorf("Restore over a stranger: %q, %v", names, err)
	}
	wantContent(t, dir, "topics.json", topics(5, 3))
	for _, number := range []uint64{0, 99} {
		if _, err := Restore(dir, number); !errors.Is(err, ErrNoGeneration) {
			t.Errorf("Restore(%d): %v", number, err)
		}
	}
	// The source is believed again at its next word.
	i := open(t, dir, c.options())
	grow(t, i, c, 6, 6)
}

func TestRestore_DamagedContentChangesNothing(t *testing.T) {
	dir, _, _ := grown(t, 3, Options{})
	object := filepath.Join(dir, ".haagent", "metadata", "objects", mustFile(t, "consumerOffset.json", offsets(1)).SHA256.String())
	if err := os.WriteFile(object, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(dir, 1); !errors.Is(err, ErrHash) {
		t.Errorf("Restore: %v", err)
	}
	wantContent(t, dir, "topics.json", topics(3, 3))
	wantContent(t, dir, "consumerOffset.json", offsets(3))
}

// A log that was cut back takes the positions beyond it along.
func TestFault26_RewindAfterACutBack(t *testing.T) {
	dir, i, c := grown(t, 5, Options{})
	offered(t, i, c.snapshot(600, mustFile(t, "consumerOffset.json", offsets(6)))) // of the log that is gone
	names, err := i.Rewind(350)
	if err != nil || !slices.Equal(names, []string{"consumerOffset.json"}) {
		t.Fatalf("Rewind: %q, %v", names, err)
	}
	wantContent(t, dir, "consumerOffset.json", offsets(3))
	wantContent(t, dir, "topics.json", topics(5, 3))
	installed(t, i, 1<<40)
	if names, err := i.Rewind(350); err != nil || names != nil {
		t.Errorf("Rewind again: %q, %v", names, err)
	}
	if names, err := i.Rewind(99); !errors.Is(err, ErrAhead) || names != nil {
		t.Errorf("Rewind below everything: %q, %v", names, err)
	}
	// The new source starts below what was offered before, and is believed.
	offered(t, i, c.snapshot(360, mustFile(t, "consumerOffset.json", offsets(4))))
	installed(t, i, 360, "consumerOffset.json")

	if names, err := open(t, t.TempDir(), Options{}).Rewind(0); err != nil || names != nil {
		t.Errorf("Rewind of an empty store: %q, %v", names, err)
	}
}

func TestCheck_SeesForeignWriters(t *testing.T) {
	for what, write := range map[string]func(path string) error{
		"in place, same size and times": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b = bytes.Replace(b, []byte(`"perm":6`), []byte(`"perm":4`), 1)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				return err
			}
			return os.Chtimes(path, time.Time{}, info.ModTime())
		},
		"replaced": func(path string) error {
			if err := os.WriteFile(path+".x", []byte("{}"), 0o600); err != nil {
				return err
			}
			return os.Rename(path+".x", path)
		},
		"removed": os.Remove,
		"a link": func(path string) error {
			if err := os.Rename(path, path+".x"); err != nil {
				return err
			}
			return os.Symlink(path+".x", path)
		},
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"huge":    func(path string) error { return os.Truncate(path, int64(MaxFile)+1) },
	} {
		t.Run(what, func(t *testing.T) {
			dir, i, c := grown(t, 2, Options{})
			c.now = time.Now().Add(time.Hour) // stamps are trusted
			for range 2 {
				if foreign, err := i.Check(); err != nil || foreign != nil {
					t.Fatalf("Check: %q, %v", foreign, err)
				}
			}
			path := filepath.Join(dir, "config", "topics.json")
			if err := write(path); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if foreign, err := i.Check(); err != nil || !slices.Equal(foreign, []string{"topics.json"}) {
					t.Fatalf("Check: %q, %v", foreign, err)
				}
			}
			// A new process sees it as well, and does not mend it by itself.
			if foreign, err := open(t, dir, c.options()).Check(); err != nil || !slices.Equal(foreign, []string{"topics.json"}) {
				t.Fatalf("Check after a restart: %q, %v", foreign, err)
			}
			names, err := i.Repair()
			if what == "a link" {
				if !errors.Is(err, ErrTarget) {
					t.Fatalf("Repair: %q, %v", names, err)
				}
				return
			}
			if err != nil || !slices.Equal(names, []string{"topics.json"}) {
				t.Fatalf("Repair: %q, %v", names, err)
			}
			wantContent(t, dir, "topics.json", topics(2, 3))
			if names, err := i.Repair(); err != nil || names != nil {
				t.Errorf("Repair again: %q, %v", names, err)
			}
		})
	}
	if foreign, err := open(t, t.TempDir(), Options{}).Check(); err != nil || foreign != nil {
		t.Errorf("Check of an empty store: %q, %v", foreign, err)
	}
}

// A stranger's file is replaced by what the source says next.
func TestInstall_OverAStranger(t *testing.T) {
	dir, i, c := grown(t, 2, Options{})
	if err := os.WriteFile(filepath.Join(dir, "config", "topics.json"), []byte(`{"mine":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	grow(t, i, c, 3, 3)
	wantContent(t, dir, "topics.json", topics(3, 3))
	if foreign, err := i.Check(); err != nil || foreign != nil {
		t.Errorf("Check: %q, %v", foreign, err)
	}
}

func TestNewInstaller_FindsFiles(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	config := filepath.Join(dir, "config")
	if err := os.Mkdir(config, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"topics.json": string(topics(7, 3)), "topics.json.bak": string(topics(6, 3)), "consumerOffset.json": `{"offsetTable":{`,
		"other.json": "{}", "timermetrics": "{}",
	} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("other.json", filepath.Join(config, "delayOffset.json")); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	o := c.options()
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	i := open(t, dir, o)
	g, err := Generations(dir)
	if err != nil || len(g) != 1 || g[0].Origin != Found || len(g[0].Files) != 1 || g[0].Files[0].Name != "topics.json" || i.Generation() != 1 {
		t.Fatalf("generations %+v, %v", g, err)
	}
	if n := strings.Count(log.String(), "is passed over"); n != 2 {
		t.Errorf("%d files are said to be passed over:\n%s", n, log.String())
	}
	if foreign, err := i.Check(); err != nil || foreign != nil {
		t.Errorf("Check: %q, %v", foreign, err)
	}
	offered(t, i, c.snapshot(10, mustFile(t, "topics.json", topics(7, 3)), mustFile(t, "consumerOffset.json", offsets(1))))
	installed(t, i, 10, "consumerOffset.json")
	offered(t, i, c.snapshot(10, mustFile(t, "topics.json", topics(8, 3))))
	installed(t, i, 10, "topics.json")
	if names, err := i.Restore(1); err != nil || !slices.Equal(names, []string{"topics.json"}) {
		t.Errorf("what was found is put back: %q, %v", names, err)
	}
	for _, name := range []string{"topics.json.bak", "other.json", "timermetrics"} {
		if content(t, dir, name) == "" {
			t.Errorf("%s is gone", name)
		}
	}
}

func TestNewInstaller_DamagedHistory(t *testing.T) {
	for what, damage := range map[string]func(b []byte) []byte{
		"empty":  func([]byte) []byte { return nil },
		"half":   func(b []byte) []byte { return b[:len(b)/2] },
		"a bit":  func(b []byte) []byte { b[20] ^= 1; return b },
		"no sum": func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] },
		"other name": func(b []byte) []byte {
			return signed(bytes.Replace(b, []byte(`"topics.json"`), []byte(`"../topics"`), 1))
		},
		"other number": func(b []byte) []byte {
			return signed(bytes.Replace(b, []byte(`"generation":4`), []byte(`"generation":9`), 1))
		},
		"not JSON": func([]byte) []byte { return signed([]byte("[]\n")) },
	} {
		t.Run(what, func(t *testing.T) {
			dir, _, c := grown(t, 4, Options{})
			path := filepath.Join(dir, ".haagent", "metadata", "generations", generationName(4))
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			o := c.options()
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			i := open(t, dir, o)
			if i.Generation() != 3 || !strings.Contains(log.String(), "cannot be read") {
				t.Errorf("generation %d, log %q", i.Generation(), log.String())
			}
			// What stands there is not what generation 3 says: that is told, not undone.
			if foreign, err := i.Check(); err != nil || len(foreign) != 2 {
				t.Errorf("Check: %q, %v", foreign, err)
			}
			wantContent(t, dir, "topics.json", topics(4, 3))
			grow(t, i, c, 5, 5)
			if g, err := Generations(dir); err != nil || !slices.Equal(numbersOf(g), []uint64{1, 2, 3, 5}) {
				t.Errorf("generations %v, %v", numbersOf(g), err)
			}
		})
	}
}

// signed gives the first line of a generation its sum again.
func signed(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return fmt.Appendf(nil, "%s\n%v\n", line, hashed(line))
}

func hashed(b []byte) Hash { return sha256.Sum256(b) }

func TestGenerations_ForeignFilesAreLeftAlone(t *testing.T) {
	dir, _, _ := grown(t, 2, Options{Keep: 2})
	for _, name := range []string{"README", "3", "00000000000000000009.bak", "-0000000000000000001"} {
		if err := os.WriteFile(filepath.Join(dir, ".haagent", "metadata", "generations", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := open(t, dir, Options{Keep: 2})
	c := newClock()
	c.advance(time.Hour)
	grow(t, i, c, 3, 6)
	g, err := Generations(dir)
	if err != nil || !slices.Equal(numbersOf(g), []uint64{5, 6}) || len(listing(t, dir, ".haagent", "metadata", "generations")) != 6 {
		t.Errorf("generations %v, %v", numbersOf(g), err)
	}
	if _, err := Generations(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("generations of no store: %v", err)
	}
}

func TestHash_Text(t *testing.T) {
	h := hashed([]byte("x"))
	b, err := h.MarshalText()
	if err != nil || string(b) != h.String() || len(b) != 64 {
		t.Fatalf("%s, %v", b, err)
	}
	var back Hash
	if err := back.UnmarshalText(b); err != nil || back != h {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range []string{"", "00", strings.Repeat("0", 63) + "x", strings.Repeat("0", 66)} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
