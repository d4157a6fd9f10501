package replica

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// births are the two ways in which a segment may be born.
func births(dir string) map[string]func(path string, size wire.ByteSize) (segmentFile, error) {
	d := osDisk{tmp: filepath.Join(dir, "tmp")}
	return map[string]func(string, wire.ByteSize) (segmentFile, error){"unnamed": d.create, "renamed": d.createByRename}
}

func TestI6_SegmentsAreBornWhole(t *testing.T) {
	for name := range births("") {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			create := births(dir)[name]
			path := filepath.Join(dir, commitlog.Name(0))
			f, err := create(path, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var st unix.Stat_t
			if err := unix.Stat(path, &st); err != nil || st.Size != 1<<20 {
				t.Fatalf("%+v, %v", st, err)
			}
			// All its blocks are there, so that no write runs into a full disk later.
			if st.Blocks*512 < st.Size {
				t.Fatalf("%d blocks of 512 for %d bytes", st.Blocks, st.Size)
			}
			if st.Mode&0o777 != 0o644&^umask() {
				t.Fatalf("mode %o", st.Mode)
			}
			// Nobody's file is overwritten, and nothing is left of the attempt.
			if _, err := create(path, 1<<20); !errors.Is(err, os.ErrExist) {
				t.Fatalf("created over another: %v", err)
			}
			if left, err := os.ReadDir(filepath.Join(dir, "tmp")); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(left, err)
			}
			// More than any disk has: nothing is there afterwards.
			next := filepath.Join(dir, commitlog.Name(1<<20))
			if _, err := create(next, 1<<60); err == nil || exists(next) {
				t.Fatalf("an impossible size: %v", err)
			}
			if left, err := os.ReadDir(filepath.Join(dir, "tmp")); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(left, err)
			}
			if _, err := create(filepath.Join(dir, "no", "dir"), 1<<20); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("without a directory: %v", err)
			}
		})
	}
}

func umask() uint32 {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return uint32(mask)
}

// TestI6_OtherFileSystemIsRefused where only renaming could help: the log is
// elsewhere than the place for temporary files.
func TestI6_OtherFileSystemIsRefused(t *testing.T) {
	dir, shm := t.TempDir(), t.TempDir()
	var here, there unix.Statfs_t
	if err := errors.Join(unix.Statfs(dir, &here), unix.Statfs("/dev/shm", &there)); err != nil {
		t.Fatal(err)
	}
	if here.Fsid == there.Fsid {
		t.Fatal("the test needs a TMPDIR that is not on /dev/shm")
	}
	shm, err := os.MkdirTemp("/dev/shm", "haagent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(shm); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(shm, commitlog.Name(0))
	d := osDisk{tmp: filepath.Join(dir, "tmp")}
	if _, err := d.createByRename(path, 4096); !errors.Is(err, unix.EXDEV) || exists(path) {
		t.Fatalf("renamed: %v", err)
	}
	f, err := d.create(path, 4096)
	if err != nil {
		t.Fatalf("unnamed: %v", err)
	}
	// tmpfs punches instead of zeroing.
	if _, err := f.writev([][]byte{bytes.Repeat([]byte{7}, 4096)}, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.zero(10, 4000), f.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || len(b) != 4096 || bytes.Count(b, []byte{7}) != 96 {
		t.Fatalf("%d bytes, %d left: %v", len(b), bytes.Count(b, []byte{7}), err)
	}
}

// TestWritev_AnyBuffers: what is written is what was given, whatever the cut.
func TestWritev_AnyBuffers(t *testing.T) {
	dir := t.TempDir()
	d := osDisk{tmp: filepath.Join(dir, "tmp")}
	path := filepath.Join(dir, commitlog.Name(0))
	f, err := d.create(path, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rapid.Check(t, func(t *rapid.T) {
		bufs := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 0, 700).Draw(t, "bufs")
		off := rapid.Int64Range(0, 1<<15).Draw(t, "offset")
		want := bytes.Join(bufs, nil)
		n, err := f.writev(bufs, off)
		if err != nil || n != len(want) {
			t.Fatalf("%d of %d: %v", n, len(want), err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got[off:off+int64(n)], want) {
			t.Fatalf("not what was written: %v", err)
		}
		from := rapid.Int64Range(0, 1<<15).Draw(t, "zero from")
		length := rapid.Int64Range(-1, 1<<15).Draw(t, "zero")
		if err := f.zero(from, length); err != nil {
			t.Fatal(err)
		}
		zeroed, err := os.ReadFile(path)
		if err != nil || len(zeroed) != 1<<16 {
			t.Fatalf("%d bytes, %v", len(zeroed), err)
		}
		if length > 0 {
			clear(got[from : from+length])
		}
		if !bytes.Equal(got, zeroed) {
			t.Fatal("not what was to be zeroed")
		}
	})
}

func TestWriteZeros(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	before := bytes.Repeat([]byte{7}, 1<<20)
	writeFile(t, path, string(before))
	f, err := osDisk{}.open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.(*osFile).writeZeros(1000, 600<<10); err != nil {
		t.Fatal(err)
	}
	clear(before[1000 : 1000+600<<10])
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Fatalf("not what was to be zeroed: %v", err)
	}
}

func TestWritev_Fails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	writeFile(t, path, "0123456789")
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f := newOSFile(r)
	if n, err := f.writev([][]byte{{1}}, 0); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Fatalf("%d, %v", n, err)
	}
	if err := f.zero(0, 5); !errors.Is(err, unix.EBADF) {
		t.Fatalf("%v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.datasync(); !errors.Is(err, unix.EBADF) {
		t.Fatalf("%v", err)
	}
	if err := syncDir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%v", err)
	}
}

// TestRenameBirth_WholeReplica: a file system without unnamed files.
func TestRenameBirth_WholeReplica(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(61, 9000, 0, 60, anyMessage)
	disk := newFaultyDisk(dir, nil)
	disk.byRename = true
	opt := Options{Dir: dir, SegmentSize: log.size, disk: disk}
	s := openStore(t, opt)
	if err := s.Begin(0); err != nil {
		t.Fatal(err)
	}
	feed(t, s, log, 0, log.end())
	// A broker has made the next one: it is not overwritten.
	last := segmentsOf(t, dir, log.size)
	next := filepath.Join(CommitLogDir(dir), commitlog.Name(last[len(last)-1].End()))
	writeFile(t, next, "somebody else's")
	junk := make([]byte, log.size)
	if err := s.Append(log.end(), [][]byte{junk}); !errors.Is(err, ErrDisturbed) {
		t.Fatalf("append: %v", err)
	}
	if b, err := os.ReadFile(next); err != nil || string(b) != "somebody else's" {
		t.Fatalf("%q, %v", b, err)
	}
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	checkPrefix(t, dir, log, log.end())
}
