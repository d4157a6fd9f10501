package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/haagent/haagent/wire"
)

func TestFault51_PositionsWaitForTheLog(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	offered(t, i, c.snapshot(1000, mustFile(t, "consumerOffset.json", offsets(10)), mustFile(t, "topics.json", topics(1, 3))))
	installed(t, i, 0, "topics.json")
	if content(t, dir, "consumerOffset.json") != "" {
		t.Error("positions stand there before the log does")
	}
	s := status(t, i, "consumerOffset.json")
	if !s.Stale || s.Waits != 1000 || !strings.Contains(s.Reason, "1000") || s.Size != 0 {
		t.Errorf("status of what waits: %+v", s)
	}
	installed(t, i, 999)
	installed(t, i, 1000, "consumerOffset.json")
	wantContent(t, dir, "consumerOffset.json", offsets(10))
	if s := status(t, i, "consumerOffset.json"); s.Stale || s.Waits != wire.NoOffset || s.Reason != "" {
		t.Errorf("status of what is installed: %+v", s)
	}
}

// A replica that is always a little behind still gets positions: the earliest
// ones wait along with the latest.
func TestFault51_PositionsAreNotStarved(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	for n := 1; n <= 20; n++ {
		end := wire.PhyOffset(n * 1000)
		offered(t, i, c.snapshot(end, mustFile(t, "consumerOffset.json", offsets(n))))
		verified := end - 1500 // never where the last snapshot was taken
		if _, err := i.Install(verified); err != nil {
			t.Fatal(err)
		}
		if e := i.current.entry("consumerOffset.json"); n > 4 && (e == nil || e.SourceEnd < verified-4000 || e.SourceEnd > verified) {
			t.Fatalf("verified %v, installed %+v", verified, e)
		}
	}
	installed(t, i, 20_000, "consumerOffset.json")
	wantContent(t, dir, "consumerOffset.json", offsets(20))
}

// The same positions read later do not wait for more of the log.
func TestFault51_ConfirmedPositionsKeepTheirPlace(t *testing.T) {
	c := newClock()
	i := open(t, t.TempDir(), c.options())
	for n := 1; n <= 5; n++ {
		offered(t, i, c.snapshot(wire.PhyOffset(n*1000), mustFile(t, "consumerOffset.json", offsets(7))))
	}
	installed(t, i, 1000, "consumerOffset.json")
}

func TestFault52_NoChangeWritesNothing(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	steps := 0
	d := &disk{root: dir, before: func(string, string) error { steps++; return nil }}
	i, err := newInstaller(d, c.options())
	if err != nil {
		t.Fatal(err)
	}
	files := []File{mustFile(t, "topics.json", topics(1, 200)), mustFile(t, "consumerOffset.json", offsets(3))}
	offered(t, i, c.snapshot(10, files...))
	installed(t, i, 10, "topics.json", "consumerOffset.json")
	info, err := os.Stat(filepath.Join(dir, "config", "topics.json"))
	if err != nil {
		t.Fatal(err)
	}
	steps = 0
	for range 30 {
		offered(t, i, c.snapshot(10, files...))
		installed(t, i, 10)
	}
	now, err := os.Stat(filepath.Join(dir, "config", "topics.json"))
	if err != nil {
		t.Fatal(err)
	}
	if steps != 0 || i.Generation() != 1 || stampOf(now) != stampOf(info) {
		t.Errorf("%d steps, generation %d, %+v became %+v", steps, i.Generation(), stampOf(info), stampOf(now))
	}
	// One file changes: the other one is not touched.
	offered(t, i, c.snapshot(20, files[0], mustFile(t, "consumerOffset.json", offsets(4))))
	installed(t, i, 20, "consumerOffset.json")
	if now, err = os.Stat(filepath.Join(dir, "config", "topics.json")); err != nil || stampOf(now) != stampOf(info) {
		t.Errorf("a neighbour's change touched topics.json: %v", err)
	}
	if s := status(t, i, "topics.json"); s.Age != 0 || s.Stale {
		t.Errorf("status %+v", s)
	}
}

func TestFault48_WhatIsNotInTheSnapshotStays(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	offered(t, i, c.snapshot(10, mustFile(t, "topics.json", topics(1, 5)), mustFile(t, "consumerOffset.json", offsets(1))))
	installed(t, i, 10, "topics.json", "consumerOffset.json")
	offered(t, i, c.snapshot(20, mustFile(t, "topics.json", topics(2, 5))))
	offered(t, i, c.snapshot(30))
	installed(t, i, 30, "topics.json")
	wantContent(t, dir, "consumerOffset.json", offsets(1))
	c.advance(2 * DefaultStale)
	if s := status(t, i, "consumerOffset.json"); !s.Stale || s.Age < 2*DefaultStale || !strings.Contains(s.Reason, "not confirmed") {
		t.Errorf("status of a file that is not confirmed: %+v", s)
	}
}

func TestFault45_DeletionsTravel(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	offered(t, i, c.snapshot(10, mustFile(t, "topics.json", topics(1, 5))))
	installed(t, i, 10, "topics.json")
	offered(t, i, c.snapshot(10, mustFile(t, "topics.json", topics(2, 4))))
	installed(t, i, 10, "topics.json")
	wantContent(t, dir, "topics.json", topics(2, 4))
}

// A broker that lost a file in a crash starts its versions anew, with few entries
// or none. Ours stay until it has stood by that for the grace period.
func TestI5_StepsBackAreHeld(t *testing.T) {
	versioned := func(counter, timestamp, entries int) File {
		var b bytes.Buffer
		fmt.Fprintf(&b, `{"dataVersion":{"counter":%d,"timestamp":%d},"topicConfigTable":{`, counter, timestamp)
		for n := range entries {
			fmt.Fprintf(&b, `%s"t%d":{}`, strings.Repeat(",", min(n, 1)), n)
		}
		b.WriteString("}}")
		return mustFile(t, "topics.json", b.Bytes())
	}
	for what, test := range map[string]struct {
		before, after File
		held          bool
	}{
		"newer":                             {versioned(5, 100, 9), versioned(6, 110, 9), false},
		"newer, with fewer entries":         {versioned(5, 100, 9), versioned(6, 110, 2), false},
		"older in every way":                {versioned(5, 100, 9), versioned(4, 90, 9), true},
		"counted anew, nothing missing":     {versioned(5, 100, 9), versioned(0, 200, 9), false},
		"counted anew, more entries":        {versioned(5, 100, 9), versioned(0, 200, 10), false},
		"counted anew, entries are missing": {versioned(5, 100, 9), versioned(0, 200, 8), true},
		"empty":                             {versioned(5, 100, 9), versioned(6, 200, 0), true},
		"empty as before":                   {versioned(5, 100, 0), versioned(6, 200, 0), false},
		"no version, empty":                 {mustFile(t, "topics.json", []byte(`{"t":{"a":1}}`)), mustFile(t, "topics.json", []byte(`{"t":{}}`)), true},
		"no version, fewer entries":         {mustFile(t, "topics.json", []byte(`{"t":{"a":1,"b":1}}`)), mustFile(t, "topics.json", []byte(`{"t":{"a":1}}`)), false},
	} {
		t.Run(what, func(t *testing.T) {
			dir, c := t.TempDir(), newClock()
			i := open(t, dir, c.options())
			offered(t, i, c.snapshot(10, test.before))
			installed(t, i, 10, "topics.json")
			offered(t, i, c.snapshot(20, test.after))
			if !test.held {
				installed(t, i, 20, "topics.json")
				return
			}
			installed(t, i, 20)
			wantContent(t, dir, "topics.json", test.before.Content)
			if s := status(t, i, "topics.json"); !s.Stale || !strings.HasPrefix(s.Reason, "held back") {
				t.Errorf("status %+v", s)
			}
			c.advance(DefaultGrace - time.Minute)
			offered(t, i, c.snapshot(30, test.after))
			installed(t, i, 30)
			c.advance(time.Minute)
			installed(t, i, 30, "topics.json")
			wantContent(t, dir, "topics.json", test.after.Content)
		})
	}
}

func TestI5_AStepBackThatEndsIsForgotten(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	empty := mustFile(t, "consumerOffset.json", []byte(`{"offsetTable":{}}`))
	offered(t, i, c.snapshot(10, mustFile(t, "consumerOffset.json", offsets(1))))
	installed(t, i, 10, "consumerOffset.json")
	offered(t, i, c.snapshot(20, empty))
	offered(t, i, c.snapshot(30, mustFile(t, "consumerOffset.json", offsets(2)))) // the broker has found its file
	c.advance(2 * DefaultGrace)
	installed(t, i, 25) // covers the empty one, which must not come up again
	wantContent(t, dir, "consumerOffset.json", offsets(1))
	installed(t, i, 30, "consumerOffset.json")
	wantContent(t, dir, "consumerOffset.json", offsets(2))

	// Going back to what stands there ends it as well.
	offered(t, i, c.snapshot(40, empty))
	offered(t, i, c.snapshot(50, mustFile(t, "consumerOffset.json", offsets(2))))
	c.advance(2 * DefaultGrace)
	installed(t, i, 100)
	// Grace counts from the last step back, and can be switched off.
	o := c.options()
	o.Grace = -1
	i = open(t, dir, o)
	offered(t, i, c.snapshot(60, empty))
	installed(t, i, 100, "consumerOffset.json")
}

func TestOffer_OlderSnapshot(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	old := c.snapshot(10, mustFile(t, "topics.json", topics(1, 3)))
	offered(t, i, c.snapshot(20, mustFile(t, "topics.json", topics(2, 3))))
	if err := i.Offer(old); !errors.Is(err, ErrOlder) {
		t.Errorf("an older snapshot: %v", err)
	}
	installed(t, i, 20, "topics.json")
	wantContent(t, dir, "topics.json", topics(2, 3))
	// A source with a slow clock, or with a log that was cut, is believed.
	slow := Snapshot{TakenAt: c.now.Add(-time.Hour), SourceEnd: 30, Files: []File{mustFile(t, "topics.json", topics(3, 3))}}
	offered(t, i, slow)
	i.Rebase()
	offered(t, i, old)
}

// Readers see whole files of rising versions, whatever is being installed.
func TestFault44_ReadersSeeWholeRisingVersions(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	const versions = 40
	offered(t, i, c.snapshot(0, mustFile(t, "topics.json", topics(1, 200))))
	installed(t, i, 0, "topics.json")
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			last := int64(0)
			for ctx.Err() == nil {
				b, err := os.ReadFile(filepath.Join(dir, "config", "topics.json"))
				if err != nil {
					t.Error(err)
					return
				}
				f, err := NewFile("topics.json", b)
				if err != nil {
					t.Error(err)
					return
				}
				if v := f.DataVersion.Counter; v < last || entriesIn(b) != 200+int(v-1) {
					t.Errorf("version %d with %d topics after version %d", v, entriesIn(b), last)
					return
				} else {
					last = v
				}
			}
		})
	}
	for v := 2; v <= versions; v++ {
		offered(t, i, c.snapshot(0, mustFile(t, "topics.json", topics(v, 199+v))))
		installed(t, i, 0, "topics.json")
		if names := listing(t, dir, "config"); !slices.Equal(names, []string{"topics.json"}) {
			t.Fatalf("config/ holds %q", names)
		}
	}
	stop()
	wg.Wait()
}

func TestInstall_ModeAndOwner(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	mode := func() os.FileMode {
		info, err := os.Stat(filepath.Join(dir, "config", "topics.json"))
		if err != nil {
			t.Fatal(err)
		}
		if root, err := os.Stat(dir); err != nil || info.Sys().(*syscall.Stat_t).Uid != root.Sys().(*syscall.Stat_t).Uid {
			t.Errorf("owner of the file is not the owner of the store: %v", err)
		}
		return info.Mode()
	}
	offered(t, i, c.snapshot(0, mustFile(t, "topics.json", topics(1, 1))))
	installed(t, i, 0, "topics.json")
	if m := mode(); m != 0o644 {
		t.Errorf("mode of a new file is %v", m)
	}
	if err := os.Chmod(filepath.Join(dir, "config", "topics.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	offered(t, i, c.snapshot(0, mustFile(t, "topics.json", topics(2, 1))))
	installed(t, i, 0, "topics.json")
	if m := mode(); m != 0o600 {
		t.Errorf("mode of a replaced file became %v", m)
	}
	for _, private := range []string{".haagent/metadata/objects", ".haagent/metadata/generations", ".haagent/tmp"} {
		info, err := os.Stat(filepath.Join(dir, private))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", private, info.Mode(), err)
		}
	}
}

func TestInstall_HistoryOnlyFilesRideAlong(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	timer := mustFile(t, "timercheck", []byte{0, 0, 1, 2})
	offered(t, i, c.snapshot(0, timer))
	installed(t, i, 0)
	if i.Generation() != 0 {
		t.Error("a file that is never installed made a generation")
	}
	offered(t, i, c.snapshot(0, timer, mustFile(t, "topics.json", topics(1, 1))))
	installed(t, i, 0, "topics.json")
	if names := listing(t, dir, "config"); !slices.Equal(names, []string{"topics.json"}) {
		t.Errorf("config/ holds %q", names)
	}
	g, err := Generations(dir)
	if err != nil || len(g) != 1 || g[0].entry("timercheck") == nil || g[0].entry("timercheck").SHA256 != timer.SHA256 {
		t.Errorf("generations %+v, %v", g, err)
	}
	if foreign, err := i.Check(); err != nil || foreign != nil {
		t.Errorf("Check: %q, %v", foreign, err)
	}
	for _, s := range i.Status() {
		if s.Name == "timercheck" {
			t.Errorf("status of a file that is never installed: %+v", s)
		}
	}
}

func TestStatus(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	if s := i.Status(); s != nil {
		t.Errorf("status of an empty store: %+v", s)
	}
	f := mustFile(t, "topics.json", topics(3, 2))
	offered(t, i, c.snapshot(0, f))
	if s := status(t, i, "topics.json"); !s.Stale || s.Reason != "about to be installed" {
		t.Errorf("before Install: %+v", s)
	}
	installed(t, i, 0, "topics.json")
	c.advance(30 * time.Second)
	want := FileStatus{Name: "topics.json", Size: wire.ByteSize(len(f.Content)), SHA256: f.SHA256, DataVersion: f.DataVersion, Age: 30 * time.Second, Waits: wire.NoOffset}
	if diff := cmp.Diff([]FileStatus{want}, i.Status()); diff != "" {
		t.Error(diff)
	}
	// After a restart the age goes on from when the content was read.
	c.advance(40 * time.Second)
	i = open(t, dir, c.options())
	if s := status(t, i, "topics.json"); s.Age != 70*time.Second || !s.Stale {
		t.Errorf("after a restart: %+v", s)
	}
	offered(t, i, c.snapshot(0, f))
	if s := status(t, i, "topics.json"); s.Age != 0 || s.Stale {
		t.Errorf("confirmed: %+v", s)
	}
	// A clock that was set back makes nothing younger than now.
	c.advance(-time.Hour)
	if s := status(t, i, "topics.json"); s.Age != 0 {
		t.Errorf("clock set back: %+v", s)
	}
}
