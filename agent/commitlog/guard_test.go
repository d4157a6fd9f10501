package commitlog_test

import (
	"errors"
	"hash/crc32"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// sink keeps the compiler from leaving reads out.
var sink byte

// openCut maps a file and then cuts it short under the map.
func openCut(t *testing.T, size, left int64) *commitlog.View {
	t.Helper()
	path := segmentPath(t.TempDir(), 0)
	writeFile(t, path, int(size))
	v, err := commitlog.OpenView(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Truncate(path, left); err != nil {
		t.Fatal(err)
	}
	return v
}

// Memory behind the end of a file that was cut short faults; the process survives
// it, in Go code as in assembly, and goes on.
func TestFault73_FileCutShort(t *testing.T) {
	v := openCut(t, 64<<10, 4096)
	for name, read := range map[string]func() error{
		"index":    func() error { sink = v.Bytes()[8192]; return nil },
		"copy":     func() error { copy(make([]byte, v.Size()), v.Bytes()); return nil },
		"checksum": func() error { crc32.ChecksumIEEE(v.Bytes()); return nil },
		"load":     func() error { commitlog.LoadSize(v.Bytes()[8192:]); return nil },
		"parse": func() error {
			var rec commitlog.Record
			return commitlog.Parse(v.Bytes()[8192:], 8192, 1<<20, &rec)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var fault *commitlog.FaultError
			if err := commitlog.Guard(read); !errors.As(err, &fault) || fault.Addr == 0 || fault.Unwrap() == nil {
				t.Fatalf("got %v, want a FaultError", err)
			}
			if err := commitlog.Guard(func() error { sink = v.Bytes()[4095]; return nil }); err != nil {
				t.Errorf("the part that is left: %v", err)
			}
		})
	}
}

func TestGuard_ReturnsWhatTheFunctionReturns(t *testing.T) {
	if err := commitlog.Guard(func() error { return os.ErrClosed }); err != os.ErrClosed {
		t.Error(err)
	}
	if err := commitlog.Guard(func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestGuard_OtherPanicsPass(t *testing.T) {
	var nothing *commitlog.Record
	for name, f := range map[string]func() error{
		"value":       func() error { panic("of our own") },
		"error":       func() error { panic(os.ErrClosed) },
		"nil pointer": func() error { nothing.Size++; return nil },
		"index":       func() error { sink = []byte{}[len(os.Args)]; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not pass")
				}
			}()
			err := commitlog.Guard(f)
			t.Errorf("Guard returned %v", err)
		})
	}
}

func TestGuard_PutsTheSettingBack(t *testing.T) {
	v := openCut(t, 8192, 0)
	fault := func() error { sink = v.Bytes()[0]; return nil }
	for _, before := range []bool{false, true} {
		func() {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(before))
			err := commitlog.Guard(func() error {
				if err := commitlog.Guard(fault); err == nil {
					t.Error("no fault inside")
				}
				return fault() // the outer guard still stands
			})
			if err == nil {
				t.Error("no fault outside")
			}
			if now := debug.SetPanicOnFault(before); now != before {
				t.Errorf("the setting is %t, was %t", now, before)
			}
		}()
	}
}

func TestView(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, forge.Options{Dir: dir, SegmentSize: 64 * wire.KiB})
	path := segmentPath(w.CommitLogDir(), 0)
	v, err := commitlog.OpenView(path)
	if err != nil {
		t.Fatal(err)
	}
	if v.Size() != 64*wire.KiB || v.Path() != path {
		t.Errorf("%s of %d", v.Path(), v.Size())
	}
	for _, advise := range []func() error{v.AdviseSequential, v.AdviseRandom, v.AdviseWillNeed, v.AdviseDone} {
		if err := advise(); err != nil {
			t.Error(err)
		}
	}
	mustAppend(t, w, forge.Message{Topic: "t", Body: []byte("stored after the map was made")})
	mustParse(t, v.Bytes(), 0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	mustParse(t, v.Bytes(), 0)
	for range 2 {
		if err := v.Close(); err != nil || v.Bytes() != nil {
			t.Errorf("closed: %v, %d bytes", err, len(v.Bytes()))
		}
	}
	if err := v.AdviseDone(); err != nil {
		t.Error(err)
	}
}

func TestOpenView_Refuses(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir+"/file", 100)
	writeFile(t, dir+"/empty", 0)
	if err := os.Symlink(dir+"/file", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	makeFIFO(t, dir+"/fifo")
	for _, name := range []string{"link", "fifo", "missing", "."} {
		if v, err := commitlog.OpenView(dir + "/" + name); err == nil {
			t.Errorf("%s was mapped: %d bytes, %v", name, v.Size(), v.Close())
		}
	}
	v, err := commitlog.OpenView(dir + "/empty")
	if err != nil || v.Size() != 0 || v.AdviseSequential() != nil || v.Close() != nil {
		t.Errorf("an empty file: %v", err)
	}
}

// Views keep no descriptor: thousands of segments can be open.
func TestView_KeepsNoDescriptor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("descriptors are counted on Linux only")
		return
	}
	path := t.TempDir() + "/segment"
	writeFile(t, path, 4096)
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := count()
	for range 50 {
		v, err := commitlog.OpenView(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors more", after-before)
	}
}
