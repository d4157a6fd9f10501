package replica

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFault23_I7_SecondLockIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	if err := CheckLock(dir); err != nil || exists(dir) {
		t.Fatalf("checking where nothing is: %v", err)
	}
	lock, err := AcquireLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AcquireLock(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	if err := CheckLock(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("check: %v", err)
	}
	// A POSIX lock would be gone with the first descriptor of the file.
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := AcquireLock(dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if err := CheckLock(dir); err != nil {
		t.Fatalf("check after release: %v", err)
	}
	if lock, err = AcquireLock(dir); err != nil {
		t.Fatalf("after release: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestFault23_I7_OtherProcessHoldsTheLock in the way of a JVM (a POSIX lock) and
// in ours. The POSIX holder is named; fault 70: what is left of it when it is
// killed is in nobody's way.
func TestFault23_I7_OtherProcessHoldsTheLock(t *testing.T) {
	for _, how := range []string{"posix", "ofd"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			cmd, _, out := startRole(t, "hold:"+dir+":"+how)
			if line, err := out.ReadString('\n'); line != "locked\n" {
				t.Fatalf("%q, %v", line, err)
			}
			_, err := AcquireLock(dir)
			if !errors.Is(err, ErrLocked) {
				t.Fatalf("lock: %v", err)
			}
			if name := "process " + strconv.Itoa(cmd.Process.Pid); how == "posix" && !strings.Contains(err.Error(), name) {
				t.Fatalf("%v does not name %s", err, name)
			}
			if err := errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait())); err != nil {
				t.Fatal(err)
			}
			if !exists(filepath.Join(dir, "lock")) {
				t.Fatal("no lock file is left")
			}
			writeFile(t, filepath.Join(dir, "abort"), "4711")
			closeStore(t, openStore(t, Options{Dir: dir, SegmentSize: 65536}))
		})
	}
}

// TestI7_OthersSeeTheLock: a JVM asks for a POSIX lock, from another process.
func TestI7_OthersSeeTheLock(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Options{Dir: dir, SegmentSize: 65536})
	for _, how := range []string{"posix", "ofd"} {
		cmd, _, out := startRole(t, "hold:"+dir+":"+how)
		if line, err := out.ReadString('\n'); err == nil {
			t.Fatalf("%s: another process got the lock: %q", how, line)
		}
		if err := cmd.Wait(); ignoreExit(err) != nil || err == nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	cmd, in, out := startRole(t, "hold:"+dir+":posix")
	if line, err := out.ReadString('\n'); err != nil {
		t.Fatalf("after close: %q, %v", line, err)
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
}

func TestLock_FailsForOtherReasons(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lock"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{file: unix.ENOTDIR, dir: unix.EISDIR} {
		if _, err := AcquireLock(path); !errors.Is(err, want) || errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
