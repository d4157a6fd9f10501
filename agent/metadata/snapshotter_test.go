package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// quick is for files that do not settle while a test looks at them.
var quick = ReadOptions{Tries: 1}

func endAt(end wire.PhyOffset) func(context.Context) wire.PhyOffset {
	return func(context.Context) wire.PhyOffset { return end }
}

// taken makes one attempt and returns the latest snapshot.
func taken(t testing.TB, s *Snapshotter) Snapshot {
	t.Helper()
	if _, err := s.snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	latest, ok := s.Latest()
	if !ok {
		t.Fatal("no snapshot")
	}
	return latest
}

func written(t tb, dir, name string, content []byte) {
	t.Helper()
	if err := forge.WriteConfig(dir, name, content, forge.Style5x, nil); err != nil {
		t.Fatal(err)
	}
}

func file(t testing.TB, s Snapshot, name string) File {
	t.Helper()
	for _, f := range s.Files {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("%s is not in snapshot %d", name, s.Generation)
	return File{}
}

// later is a clock that is ahead of the file system's, so that files have
// settled.
func later() *clock { return &clock{time.Now().Add(time.Minute)} }

func TestSnapshotter_SharesAndDoesNotReadWhatDidNotChange(t *testing.T) {
	dir, c := t.TempDir(), later()
	written(t, dir, "topics.json", topics(1, 3))
	written(t, dir, "consumerOffset.json", offsets(1))
	s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(100), Now: c.Now})
	first := taken(t, s)
	if s.cache.reads != 2 || first.SourceEnd != 100 || len(first.Files) != 2 || first.TakenAt.After(c.now) || c.now.Sub(first.TakenAt) >= time.Millisecond {
		t.Fatalf("%d reads, %+v", s.cache.reads, first)
	}
	c.advance(time.Second)
	second := taken(t, s)
	if s.cache.reads != 2 || second.Generation <= first.Generation || second.TakenAt.Sub(first.TakenAt) != time.Second {
		t.Fatalf("nothing changed: %d reads, generation %d after %d, taken at %v after %v", s.cache.reads, second.Generation, first.Generation, second.TakenAt, first.TakenAt)
	}
	written(t, dir, "consumerOffset.json", offsets(2))
	third := taken(t, s)
	if s.cache.reads != 3 || string(file(t, third, "consumerOffset.json").Content) != string(offsets(2)) {
		t.Fatalf("one file changed: %d reads", s.cache.reads)
	}
	// The same content in a new file, and a full reading: read, but held once.
	written(t, dir, "topics.json", topics(1, 3))
	fourth := taken(t, s)
	c.advance(2 * DefaultReread)
	fifth := taken(t, s)
	if s.cache.reads != 6 {
		t.Errorf("%d reads", s.cache.reads)
	}
	for k, other := range []Snapshot{second, third, fourth, fifth} {
		if &file(t, first, "topics.json").Content[0] != &file(t, other, "topics.json").Content[0] {
			t.Errorf("snapshot %d holds the unchanged content another time", k+2)
		}
	}
}

// The clock of the file system has steps: a file that was changed just now is
// read again until it has settled.
func TestSnapshotter_DoesNotTrustTimesOfJustNow_Fault80(t *testing.T) {
	dir, c := t.TempDir(), &clock{time.Now()}
	written(t, dir, "topics.json", topics(1, 3))
	s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(0), Now: c.Now})
	for range 3 {
		taken(t, s)
	}
	if s.cache.reads != 3 {
		t.Errorf("%d reads of a file that may still change", s.cache.reads)
	}
	c.advance(time.Minute)
	for range 3 {
		taken(t, s)
	}
	if s.cache.reads != 4 {
		t.Errorf("%d reads after it has settled", s.cache.reads)
	}
}

// Equal size and a modification time that is set back. The change time tells; and
// where even that does not, the full reading does.
func TestSnapshotter_EqualSizeAndTimes_Fault80(t *testing.T) {
	dir, c := t.TempDir(), later()
	path := filepath.Join(dir, "config", "topics.json")
	written(t, dir, "topics.json", topics(1, 3))
	s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(0), Now: c.Now})
	taken(t, s)
	for v := 2; v <= 9; v++ {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, topics(v, 3), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		now, err := os.Stat(path)
		if err != nil || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()) {
			t.Fatalf("%d bytes of %v, want %d of %v", now.Size(), now.ModTime(), info.Size(), info.ModTime())
		}
		if v%2 == 0 { // as if the change time had not moved either
			old := s.cache.files["topics.json"]
			old.seen = stampOf(now)
			s.cache.files["topics.json"] = old
			if got := file(t, taken(t, s), "topics.json"); got.DataVersion.Counter != int64(v-1) {
				t.Fatalf("version %d is seen, and nothing tells", v)
			}
			c.advance(DefaultReread)
		}
		if got := file(t, taken(t, s), "topics.json"); got.DataVersion.Counter != int64(v) {
			t.Fatalf("version %d is not seen: %v", v, got.DataVersion)
		}
	}
}

// A source's agent is started again, with its clock right, or set back: replicas
// take its snapshots.
func TestSnapshotter_RestartIsNoStepBack(t *testing.T) {
	for what, jump := range map[string]time.Duration{"at once": 0, "later": time.Hour, "clock set back": -time.Hour} {
		t.Run(what, func(t *testing.T) {
			src, rep, c := t.TempDir(), t.TempDir(), later()
			i := open(t, rep, Options{})
			var generation uint64
			var end wire.PhyOffset = 1000
			for v := 1; v <= 3; v++ {
				written(t, src, "topics.json", topics(v, 3))
				s := NewSnapshotter(SnapshotterOptions{Dir: src, End: endAt(end), Now: c.Now})
				for k := range 5 { // faster than the clock counts
					got := taken(t, s)
					if got.Generation <= generation && (k > 0 || jump > 0) {
						t.Errorf("generation %d after %d", got.Generation, generation)
					}
					generation = got.Generation
					offered(t, i, got)
				}
				if _, err := i.Install(0); err != nil {
					t.Fatal(err)
				}
				wantContent(t, rep, "topics.json", topics(v, 3))
				c.advance(jump)
				end += wire.PhyOffset(v)
			}
		})
	}
}

func TestSnapshotter_StatusTellsWhatIsLeftOut(t *testing.T) {
	dir, c := t.TempDir(), later()
	var text bytes.Buffer
	s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(7), Now: c.Now, Read: quick, Log: slog.New(slog.NewTextHandler(&text, nil))})
	if st := s.Status(); st.Age >= 0 || st.SourceEnd != wire.NoOffset || st.Generation != 0 || st.Err != nil {
		t.Errorf("before the first: %+v", st)
	}
	for range 3 {
		if _, err := s.snapshot(t.Context()); !errors.Is(err, os.ErrNotExist) || !errors.Is(s.Status().Err, os.ErrNotExist) {
			t.Fatalf("no config directory: %v", err)
		}
	}
	if _, ok := s.Latest(); ok {
		t.Error("a snapshot of nothing")
	}
	written(t, dir, "topics.json", topics(1, 3))
	written(t, dir, "consumerOffset.json", offsets(1))
	taken(t, s)
	// One file is half written by a broker that died, the other is gone.
	half := topics(2, 3)[:40]
	if err := os.WriteFile(filepath.Join(dir, "config", "topics.json"), half, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", ".bak"} {
		if err := os.Remove(filepath.Join(dir, "config", "consumerOffset.json"+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	for range 4 {
		c.advance(10 * time.Second)
		if got := taken(t, s); len(got.Files) != 0 {
			t.Fatalf("%d files", len(got.Files))
		}
	}
	st := s.Status()
	if len(st.Skipped) != 1 || st.Skipped[0].Name != "topics.json" || !errors.Is(st.Skipped[0].Err, ErrIncomplete) || st.Err != nil || st.Age != 0 || st.SourceEnd != 7 || st.Tables != JSONTables {
		t.Errorf("%+v", st)
	}
	if len(st.Files) != 2 {
		t.Fatalf("%+v", st.Files)
	}
	for _, f := range st.Files {
		if !f.Stale || f.Age != 40*time.Second || f.Reason == "" || f.DataVersion != nil != (f.Name == "topics.json") {
			t.Errorf("%+v", f)
		}
	}
	// The file at rest was read once, and the log did not repeat itself.
	if s.cache.reads != 3 {
		t.Errorf("%d reads", s.cache.reads)
	}
	written(t, dir, "topics.json", topics(2, 3))
	written(t, dir, "consumerOffset.json", offsets(2))
	taken(t, s)
	if st := s.Status(); len(st.Skipped) != 0 || len(st.Files) != 2 || st.Files[0].Stale || st.Files[0].Age != 0 {
		t.Errorf("%+v", st)
	}
	for line, want := range map[string]int{"no snapshot": 1, "are taken again": 1, "is left out": 1, "is in the snapshots again": 1} {
		if got := strings.Count(text.String(), line); got != want {
			t.Errorf("%q is logged %d times:\n%s", line, got, &text)
		}
	}
}

func TestSnapshotter_TooMuchTogether(t *testing.T) {
	var files []File
	for _, name := range []string{"topics.json", "consumerOffset.json", "delayOffset.json", "timercheck"} {
		files = append(files, File{Name: name, Content: make([]byte, MaxSnapshot/2-1)})
	}
	files[3].Content = files[3].Content[:2]
	kept, skipped := fit(files)
	if len(kept) != 3 || len(skipped) != 1 || skipped[0].Name != "delayOffset.json" || !errors.Is(skipped[0].Err, ErrTooLarge) {
		t.Errorf("kept %d, skipped %v", len(kept), skipped)
	}
}

func TestSnapshotter_ListenersGetAnEdge(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, "topics.json", topics(1, 3))
	s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(0)})
	a, stopA := s.Listen()
	b, stopB := s.Listen()
	defer stopB()
	taken(t, s)
	taken(t, s)
	if len(a) != 1 || len(b) != 1 {
		t.Errorf("%d and %d edges", len(a), len(b))
	}
	<-a
	stopA()
	taken(t, s)
	if len(a) != 0 {
		t.Error("an edge after the end")
	}
	// What Latest hands out is the caller's own list.
	got, _ := s.Latest()
	got.Files[0] = File{}
	if again, _ := s.Latest(); again.Files[0].Name != "topics.json" {
		t.Error("the list is shared")
	}
}

// answering answers as the broker of that version does, with these properties.
func answering(t testing.TB, version, properties string, codes *[]remoting.RequestCode) Ask {
	return func(_ context.Context, code remoting.RequestCode) (remoting.Command, error) {
		*codes = append(*codes, code)
		if code == remoting.GetBrokerConfig {
			return remoting.Command{Body: []byte(properties), Version: versions[version]}, nil
		}
		return answerOf(t, version, code), nil
	}
}

func TestSnapshotter_TablesInRocksDB_Fault54(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, "topics.json", topics(1, 3)) // old: of before the switch
	written(t, dir, "consumerFilter.json", []byte("{}"))
	database := filepath.Join(dir, "config", "topics")
	if err := os.Mkdir(database, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(database, "CURRENT"), []byte("MANIFEST-000005\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	s := NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(0)})
	if databases, err := s.snapshot(t.Context()); !errors.Is(err, ErrDatabases) || !databases || !errors.Is(s.Status().Err, ErrDatabases) || s.Status().Tables != ImportedTables {
		t.Errorf("nobody to ask: %v, %+v", err, s.Status())
	}
	if _, ok := s.Latest(); ok {
		t.Error("nobody to ask, and a snapshot")
	}

	var codes []remoting.RequestCode
	s = NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(5), Ask: answering(t, "5.3.3", "storeType=defaultRocksDB\n", &codes)})
	first, second := taken(t, s), taken(t, s)
	want, err := FromStock(remoting.GetAllTopicConfig, answerOf(t, "5.3.3", remoting.GetAllTopicConfig))
	if err != nil || file(t, first, "topics.json").SHA256 != want[0].SHA256 || first.SourceEnd != 5 {
		t.Errorf("topics are not the broker's: %v, end %v", err, first.SourceEnd)
	}
	for k := range first.Files {
		if &first.Files[k].Content[0] != &second.Files[k].Content[0] {
			t.Errorf("%s is held twice", first.Files[k].Name)
		}
	}
	st := s.Status()
	if len(st.Skipped) != 1 || st.Skipped[0].Name != "consumerFilter.json" || !errors.Is(st.Skipped[0].Err, ErrDatabases) || st.Tables != ImportedTables || st.Err != nil {
		t.Errorf("%+v", st)
	}

	// Databases of an earlier setup: the files are right.
	s = NewSnapshotter(SnapshotterOptions{Dir: dir, End: endAt(5), Ask: answering(t, "5.3.3", "storeType=default\n", &codes)})
	if got := taken(t, s); string(file(t, got, "topics.json").Content) != string(topics(1, 3)) || s.Status().Tables != JSONTables {
		t.Errorf("%+v", s.Status())
	}
	// A broker that does not answer.
	silent := fmt.Errorf("no route")
	s = NewSnapshotter(SnapshotterOptions{Dir: dir, Ask: func(context.Context, remoting.RequestCode) (remoting.Command, error) {
		return remoting.Command{}, silent
	}})
	if _, err := s.snapshot(t.Context()); !errors.Is(err, silent) || s.Status().Tables != 0 {
		t.Errorf("silent broker: %v, %+v", err, s.Status())
	}
}

// Positions of which it is not known how much log they need are not taken in, and
// nothing else waits for them.
func TestOffer_UnknownEndOfTheSource_Fault51(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	i := open(t, dir, c.options())
	tf, of := mustFile(t, "topics.json", topics(1, 3)), mustFile(t, "consumerOffset.json", offsets(5))
	offered(t, i, c.snapshot(wire.NoOffset, tf, of))
	installed(t, i, 1<<60, "topics.json")
	offered(t, i, c.snapshot(100, tf, of)) // the same contents, now with an end
	installed(t, i, 99)
	if st := status(t, i, "consumerOffset.json"); st.Waits != 100 {
		t.Errorf("%+v", st)
	}
	offered(t, i, c.snapshot(wire.NoOffset, tf, mustFile(t, "consumerOffset.json", offsets(6))))
	installed(t, i, 100, "consumerOffset.json")
	wantContent(t, dir, "consumerOffset.json", offsets(5))
	// Installed contents are confirmed, whatever the end.
	offered(t, i, c.snapshot(wire.NoOffset, tf, of))
	if st := status(t, i, "consumerOffset.json"); st.Age != 0 || st.Stale {
		t.Errorf("%+v", st)
	}
	// An end that was known keeps its say about what is older.
	old := c.snapshot(99, tf)
	offered(t, i, c.snapshot(wire.NoOffset, tf))
	if err := i.Offer(old); !errors.Is(err, ErrOlder) {
		t.Errorf("older: %v", err)
	}
}
