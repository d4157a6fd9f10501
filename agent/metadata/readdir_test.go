package metadata

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/forge"
)

var styles = map[string]forge.Style{"4.x": forge.Style4x, "5.x": forge.Style5x, "newer": forge.StyleNewer}

// A broker that takes a second for each step of its way of writing: a reader gets
// the old or the new file, whole, whenever it looks.
func TestFault48_ReadDir_SlowMotion(t *testing.T) {
	for name, style := range styles {
		for offset := range 40 { // a tenth of a second between the readers' starts
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				if err := forge.WriteConfig(dir, "topics.json", topics(1, 50), style, nil); err != nil {
					t.Fatal(err)
				}
				synctest.Test(t, func(t *testing.T) {
					done := make(chan error, 1)
					go func() {
						done <- forge.WriteConfig(dir, "topics.json", topics(2, 60), style, func(string) error {
							<-time.After(time.Second)
							return nil
						})
					}()
					<-time.After(time.Duration(offset) * 100 * time.Millisecond)
					files, skipped, err := ReadDir(t.Context(), dir, ReadOptions{Tries: 200, Pause: 50 * time.Millisecond})
					if err != nil || len(skipped) != 0 || len(files) != 1 {
						t.Fatalf("after %v00 ms: %d files, skipped %v, %v", offset, len(files), skipped, err)
					}
					if got := string(files[0].Content); got != string(topics(1, 50)) && got != string(topics(2, 60)) {
						t.Errorf("after %v00 ms: neither old nor new: %.60q", offset, got)
					}
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

var errDied = errors.New("died")

// A broker that dies at each step of its way of writing. Without a broker the
// .bak counts, as it does for the broker's next start; with one it never does.
func TestFault48_ReadDir_BrokerDies(t *testing.T) {
	for name, style := range styles {
		for k := 1; ; k++ {
			dir := t.TempDir()
			for v := 1; v <= 2; v++ {
				if err := forge.WriteConfig(dir, "topics.json", topics(v, 50), style, nil); err != nil {
					t.Fatal(err)
				}
			}
			n, where := 0, ""
			err := forge.WriteConfig(dir, "topics.json", topics(3, 60), style, func(change string) error {
				if n++; n == k {
					where = name + ": died after " + change
					return errDied
				}
				return nil
			})
			if err == nil {
				if k < 3 {
					t.Errorf("%s: only %d steps", name, k)
				}
				break
			}
			// Whole or not, what is read is one of the versions.
			for _, backups := range []bool{false, true} {
				files, skipped, err := ReadDir(t.Context(), dir, ReadOptions{Tries: 2, Pause: time.Millisecond, Backups: backups})
				if err != nil || len(files)+len(skipped) != 1 {
					t.Fatalf("%s: %d files, skipped %v, %v", where, len(files), skipped, err)
				}
				if backups && len(files) == 0 {
					t.Errorf("%s: nothing is read: %v", where, skipped)
				}
				if len(files) == 0 {
					continue
				}
				main, err := os.ReadFile(filepath.Join(dir, "config", "topics.json"))
				fromMain := err == nil && string(main) == string(files[0].Content)
				if v := files[0].DataVersion.Counter; v < 1 || v > 3 || !backups && !fromMain {
					t.Errorf("%s: version %d, from the main file %v", where, v, fromMain)
				}
			}
		}
	}
}

func TestFault50_ReadDir_OnlyKnownPlainFiles(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	if err := os.MkdirAll(filepath.Join(config, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	good := string(topics(1, 3))
	for name, content := range map[string]string{
		"topics.json": good, "topics.json.tmp": "{", "topics.json.bak": string(topics(0, 3)), "topics.json~": good, ".topics.json.swp": "x",
		"#topics.json#": good, "other.json": good, "sub/topics.json": good, "timercheck": "\x00\x01", "subscriptionGroup.json.bak": "{}",
	} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, make := range map[string]func(path string) error{
		"consumerOffset.json":     func(path string) error { return os.Symlink("topics.json", path) },
		"delayOffset.json":        func(path string) error { return os.Symlink("/dev/zero", path) },
		"consumerFilter.json":     func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"messageRequestMode.json": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		if err := make(filepath.Join(config, name)); err != nil {
			t.Fatal(err)
		}
	}
	files, skipped, err := ReadDir(t.Context(), dir, ReadOptions{Tries: 2, Pause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var names, left []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	for _, s := range skipped {
		left = append(left, s.Name)
		if s.Name == "subscriptionGroup.json" != errors.Is(s.Err, os.ErrNotExist) || s.Name != "subscriptionGroup.json" && !errors.Is(s.Err, ErrTarget) {
			t.Errorf("%s: %v", s.Name, s.Err)
		}
	}
	if !slices.Equal(names, []string{"topics.json", "timercheck"}) || string(files[0].Content) != good {
		t.Errorf("read %q", names)
	}
	if want := []string{"subscriptionGroup.json", "messageRequestMode.json", "consumerFilter.json", "consumerOffset.json", "delayOffset.json"}; !slices.Equal(left, want) {
		t.Errorf("skipped %q, want %q", left, want)
	}
	// Where no broker runs the backup stands for the missing file.
	files, _, err = ReadDir(t.Context(), dir, ReadOptions{Tries: 1, Backups: true})
	if err != nil || !slices.ContainsFunc(files, func(f File) bool { return f.Name == "subscriptionGroup.json" }) {
		t.Errorf("with backups: %d files, %v", len(files), err)
	}
}

func TestReadDir_EmptyAndLargeFiles(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := ReadDir(t.Context(), dir, ReadOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no config directory: %v", err)
	}
	config := filepath.Join(dir, "config")
	if err := os.Mkdir(config, 0o755); err != nil {
		t.Fatal(err)
	}
	files, skipped, err := ReadDir(t.Context(), dir, ReadOptions{})
	if err != nil || files != nil || skipped != nil {
		t.Errorf("empty directory: %v, %v, %v", files, skipped, err)
	}
	for name, size := range map[string]int64{"topics.json": 0, "consumerOffset.json": int64(MaxFile) + 1} {
		path := filepath.Join(config, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	files, skipped, err = ReadDir(t.Context(), dir, ReadOptions{Tries: 3, Pause: time.Millisecond})
	if err != nil || files != nil || len(skipped) != 2 || !errors.Is(skipped[0].Err, ErrIncomplete) || !errors.Is(skipped[1].Err, ErrTooLarge) {
		t.Errorf("empty and large files: %v, %v, %v", files, skipped, err)
	}
	// An unfinished file is not waited for when nobody waits any more.
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, _, err := ReadDir(ctx, dir, ReadOptions{Pause: time.Hour}); !errors.Is(err, stopped) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestFault54_Databases(t *testing.T) {
	dir := t.TempDir()
	if list, err := Databases(dir); err != nil || list != nil {
		t.Errorf("empty store: %q, %v", list, err)
	}
	for _, name := range []string{"topics/CURRENT", "consumerOffsets/CURRENT", "rdb/CURRENT", "subscriptionGroups/other", "unknown/CURRENT"} {
		path := filepath.Join(dir, "config", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("MANIFEST-000005\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config", "metadata"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := Databases(dir)
	for i := range list {
		list[i] = strings.TrimPrefix(list[i], dir)
	}
	if want := []string{"/config/topics", "/config/consumerOffsets", "/config/rdb"}; err != nil || !slices.Equal(list, want) {
		t.Errorf("got %q, %v, want %q", list, err, want)
	}
}

func TestFault54_TablesOf(t *testing.T) {
	for _, test := range []struct {
		storeType, manager string
		want               Tables
	}{
		{"", "", JSONTables},
		{"default", "v1", JSONTables},
		{"defaultRocksDB", "", ImportedTables},
		{"DEFAULTROCKSDB", "v1", ImportedTables},
		{"default", "v2", DatabaseTables},
		{"defaultRocksDB", "v2", DatabaseTables},
	} {
		properties := map[string]string{"storeType": test.storeType, "configManagerVersion": test.manager}
		got := TablesOf(properties)
		if got != test.want || (got.Advice() == "") != (got == JSONTables) {
			t.Errorf("%v: %v, advice %q", properties, got, got.Advice())
		}
	}
}
