package metadata

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killLoopDir); dir != "" {
		installForever(dir)
	}
	goleak.VerifyTestMain(m)
}

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// topics returns a topics.json with n topics of a certain version.
func topics(version, n int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n\t\"dataVersion\":{\n\t\t\"counter\":%d,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":%d\n\t},\n\t\"topicConfigTable\":{", version, 1_700_000_000_000+version)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n\t\t\"topic-%d\":{\n\t\t\t\"attributes\":{},\n\t\t\t\"perm\":6,\n\t\t\t\"topicName\":\"topic-%d\",\n\t\t\t\"writeQueueNums\":%d\n\t\t}", i, i, version)
	}
	b.WriteString("\n\t}\n}")
	return []byte(b.String())
}

// offsets returns a consumerOffset.json of 4.x in which all positions are at.
func offsets(at int) []byte {
	return fmt.Appendf(nil, "{\n\t\"offsetTable\":{\n\t\t\"orders@g1\":{0:%d,1:%d\n\t\t}\n\t}\n}", at, at)
}

func mustFile(t tb, name string, content []byte) File {
	t.Helper()
	f, err := NewFile(name, content)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// clock is a time that only moves when told.
type clock struct{ now time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }
func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }
func (c *clock) options() Options        { return Options{Now: c.Now} }
func (c *clock) snapshot(end wire.PhyOffset, files ...File) Snapshot {
	c.advance(time.Second)
	return Snapshot{TakenAt: c.now, SourceEnd: end, Files: files}
}

func open(t tb, dir string, o Options) *Installer {
	t.Helper()
	i, err := NewInstaller(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func offered(t tb, i *Installer, s Snapshot) {
	t.Helper()
	if err := i.Offer(s); err != nil {
		t.Fatal(err)
	}
}

// installed calls Install and compares the names it returns.
func installed(t tb, i *Installer, verified wire.PhyOffset, want ...string) {
	t.Helper()
	got, err := i.Install(verified)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("Install(%v) changed %q, want %q", verified, got, want)
	}
}

// content returns what stands in config/, "" where nothing does.
func content(t tb, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "config", name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

func wantContent(t tb, dir, name string, want []byte) {
	t.Helper()
	if got := content(t, dir, name); got != string(want) {
		t.Fatalf("config/%s holds %d bytes %.80q, want %d bytes %.80q", name, len(got), got, len(want), want)
	}
}

// listing returns the names below a directory of the store.
func listing(t tb, elem ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(elem...))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// status returns the status of one file.
func status(t tb, i *Installer, name string) FileStatus {
	t.Helper()
	for _, s := range i.Status() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no status of %s", name)
	return FileStatus{}
}
