package commitlog_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

func TestNames(t *testing.T) {
	for base, want := range map[wire.PhyOffset]string{
		0:             "00000000000000000000",
		1 << 30:       "00000000001073741824",
		math.MaxInt64: "09223372036854775807",
	} {
		if got := commitlog.Name(base); got != want {
			t.Errorf("Name(%d) = %s, want %s", base, got, want)
		}
	}
	for _, bad := range []string{
		"", "0", "0000000000000000000", "000000000000000000000", "0000000000000000000a",
		"-0000000000000000001", "+0000000000000000001", " 0000000000000000001", "0000000000000000000\n",
		"09223372036854775808", "99999999999999999999", "0000000000000000000٣",
		"00000000000000000000.tmp", ".0000000000000000000", "0x000000000000000000",
	} {
		if base, err := commitlog.ParseName(bad); err == nil {
			t.Errorf("ParseName(%q) = %d, want an error", bad, base)
		}
	}
}

func TestNames_ParseIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := wire.PhyOffset(rapid.Int64Min(0).Draw(t, "base"))
		if got, err := commitlog.ParseName(commitlog.Name(base)); got != base || err != nil {
			t.Fatalf("ParseName(Name(%d)) = %d, %v", base, got, err)
		}
		digits := rapid.StringMatching(`[0-9]{20}`).Draw(t, "digits")
		got, err := commitlog.ParseName(digits)
		want, wantErr := strconv.ParseInt(digits, 10, 64)
		if (err == nil) != (wantErr == nil) || err == nil && got != wire.PhyOffset(want) {
			t.Fatalf("ParseName(%s) = %d, %v; ParseInt says %d, %v", digits, got, err, want, wantErr)
		}
	})
}

func writeFile(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestList_MissingAndEmptyDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "missing")} {
		if segs, err := commitlog.List(d); len(segs) != 0 || err != nil {
			t.Errorf("List(%s) = %v, %v, want nothing", d, segs, err)
		}
	}
	file := filepath.Join(dir, "file")
	writeFile(t, file, 1)
	if _, err := commitlog.List(file); err == nil {
		t.Error("List of a regular file is no error")
	}
}

func TestList_Ascending(t *testing.T) {
	dir := t.TempDir()
	for _, base := range []wire.PhyOffset{300, 100, 200, 1 << 40, 0} {
		writeFile(t, segmentPath(dir, base), 100)
	}
	segs, err := commitlog.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var bases []wire.PhyOffset
	for _, s := range segs {
		bases = append(bases, s.Base)
		if s.Size != 100 || s.Path != segmentPath(dir, s.Base) || s.ModTime.IsZero() || s.End() != s.Base+100 {
			t.Errorf("segment %+v", s)
		}
	}
	if diff := cmp.Diff([]wire.PhyOffset{0, 100, 200, 300, 1 << 40}, bases); diff != "" {
		t.Error(diff)
	}
}

func TestList_ForeignFiles(t *testing.T) {
	for name, create := range map[string]func(t *testing.T, path string){
		"topics.json":             func(t *testing.T, path string) { writeFile(t, path, 1) },
		".nfs0001":                func(t *testing.T, path string) { writeFile(t, path, 1) },
		"0000000000000000100":     func(t *testing.T, path string) { writeFile(t, path, 100) },
		"00000000000000000100.gz": func(t *testing.T, path string) { writeFile(t, path, 100) },
		"00000000000000000200": func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"00000000000000000300": func(t *testing.T, path string) {
			if err := os.Symlink(segmentPath(filepath.Dir(path), 0), path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, segmentPath(dir, 0), 100)
			create(t, filepath.Join(dir, name))
			segs, err := commitlog.List(dir)
			var foreign *commitlog.ForeignFileError
			if !errors.As(err, &foreign) || foreign.Path != filepath.Join(dir, name) || !strings.Contains(err.Error(), name) {
				t.Errorf("List gives error %v, want a ForeignFileError for %s", err, name)
			}
			if len(segs) != 1 || segs[0].Base != 0 {
				t.Errorf("List gives segments %v, want the one that is there", segs)
			}
		})
	}
}

func TestCheckSegments(t *testing.T) {
	seg := func(base wire.PhyOffset, size wire.ByteSize) commitlog.Segment {
		return commitlog.Segment{Base: base, Size: size, Path: commitlog.Name(base)}
	}
	for _, test := range []struct {
		name string
		segs []commitlog.Segment
		size wire.ByteSize
		want error
	}{
		{"none", nil, 100, nil},
		{"one", []commitlog.Segment{seg(0, 100)}, 100, nil},
		{"fault 12: not from 0", []commitlog.Segment{seg(300, 100), seg(400, 100)}, 100, nil},
		{"short", []commitlog.Segment{seg(0, 100), seg(100, 99)}, 100, &commitlog.LengthError{Path: commitlog.Name(100), Size: 99, Want: 100}},
		{"empty", []commitlog.Segment{seg(0, 100), seg(100, 0)}, 100, &commitlog.LengthError{Path: commitlog.Name(100), Want: 100}},
		{"long", []commitlog.Segment{seg(0, 200)}, 100, &commitlog.LengthError{Path: commitlog.Name(0), Size: 200, Want: 100}},
		{"fault 14: hole", []commitlog.Segment{seg(0, 100), seg(100, 100), seg(300, 100)}, 100, &commitlog.HoleError{After: 200, Before: 300}},
		{"hole before a short one", []commitlog.Segment{seg(0, 100), seg(200, 99)}, 100, &commitlog.HoleError{After: 100, Before: 200}},
		{"unaligned", []commitlog.Segment{seg(50, 100)}, 100, &commitlog.AlignError{Path: commitlog.Name(50), Base: 50, Size: 100}},
		{"overlapping", []commitlog.Segment{seg(0, 100), seg(50, 100)}, 100, &commitlog.AlignError{Path: commitlog.Name(50), Base: 50, Size: 100}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, commitlog.CheckSegments(test.segs, test.size)); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, size := range []wire.ByteSize{0, -1} {
		if commitlog.CheckSegments(nil, size) == nil {
			t.Errorf("segment size %d is taken", size)
		}
	}
}

func TestGuessSegmentSize(t *testing.T) {
	for _, test := range []struct {
		sizes []wire.ByteSize
		want  wire.ByteSize // 0: an error, unless there are no segments
	}{
		{nil, 0},
		{[]wire.ByteSize{100}, 100},
		{[]wire.ByteSize{100, 100, 100}, 100},
		{[]wire.ByteSize{100, 100, 0}, 100},
		{[]wire.ByteSize{100, 0, 100}, 0},
		{[]wire.ByteSize{100, 99}, 0},
		{[]wire.ByteSize{100, 200}, 0},
	} {
		t.Run(fmt.Sprint(test.sizes), func(t *testing.T) {
			var segs []commitlog.Segment
			for i, size := range test.sizes {
				segs = append(segs, commitlog.Segment{Base: wire.PhyOffset(100 * i), Size: size})
			}
			got, err := commitlog.GuessSegmentSize(segs)
			if got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			var length *commitlog.LengthError
			if wantErr := test.want == 0 && len(segs) > 0; errors.As(err, &length) != wantErr {
				t.Errorf("error %v", err)
			}
		})
	}
}
