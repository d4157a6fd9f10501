package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
)

func TestState_RoundTrip(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadState(dir); !errors.Is(err, ErrNoState) {
		t.Fatalf("no state: %v", err)
	}
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.Map(rapid.Int64Min(-1), func(n int64) wire.PhyOffset { return wire.PhyOffset(n) })
		want := State{
			Cluster: rapid.String().Draw(t, "cluster"), BrokerName: rapid.String().Draw(t, "name"),
			SegmentSize: wire.ByteSize(rapid.Int64Min(1).Draw(t, "size")),
			Start:       offset.Draw(t, "start"), VerifiedEnd: offset.Draw(t, "end"), LastMessage: offset.Draw(t, "last"),
			Epoch: rapid.Int64().Draw(t, "epoch"), Promoted: rapid.Bool().Draw(t, "promoted"),
			Boot: "b", Unsynced: rapid.Bool().Draw(t, "unsynced"), HistoryFrom: offset.Draw(t, "history"),
		}
		want.Cluster, want.BrokerName = strings.ToValidUTF8(want.Cluster, ""), strings.ToValidUTF8(want.BrokerName, "")
		if err := writeState(dir, want); err != nil {
			t.Fatal(err)
		}
		want.Format = stateFormat
		got, err := ReadState(dir)
		if err != nil || got != want {
			t.Fatal(err, cmp.Diff(want, got))
		}
	})
	left, err := os.ReadDir(filepath.Join(AgentDir(dir), "tmp"))
	if err != nil || len(left) > 0 {
		t.Fatal(left, err)
	}
}

// TestState_EveryPrefixAndEveryFlippedBit is an error, never another state.
func TestState_EveryPrefixAndEveryFlippedBit(t *testing.T) {
	dir := t.TempDir()
	want := State{Cluster: "c", BrokerName: "broker-a", SegmentSize: 1 << 30, VerifiedEnd: 12345, Epoch: 3}
	if err := writeState(dir, want); err != nil {
		t.Fatal(err)
	}
	want.Format = stateFormat
	whole, err := os.ReadFile(statePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte) {
		t.Helper()
		writeFile(t, statePath(dir), string(b))
		got, err := ReadState(dir)
		if err == nil && got != want {
			t.Fatalf("%q gives %+v", b, got)
		}
		if errors.Is(err, ErrNoState) {
			t.Fatalf("%q counts as no state, and so as a directory to begin in", b)
		}
	}
	for n := range len(whole) - 1 {
		check(whole[:n])
		if _, err := ReadState(dir); err == nil && n < len(whole)-1 {
			t.Fatalf("%d bytes of %d are a state", n, len(whole))
		}
	}
	for i := range whole {
		for bit := range 8 {
			b := []byte(string(whole))
			b[i] ^= 1 << bit
			check(b)
		}
	}
	check(append([]byte(string(whole)), whole...))
}

// stateText seals any text as a state is sealed.
func stateText(inner string) string {
	return fmt.Sprintf(`{"crc32c":"%08x","state":%s}`, crc32.Checksum([]byte(inner), castagnoli), inner)
}

func TestState_FutureFormatIsRefusedByName(t *testing.T) {
	dir := t.TempDir()
	opt := Options{Dir: dir, SegmentSize: 65536}
	closeStore(t, openStore(t, opt))
	writeFile(t, statePath(dir), stateText(`{"format":2,"everything":"else"}`))
	for _, err := range []error{second(ReadState(dir)), second(tryOpen(opt))} {
		if !errors.Is(err, ErrStateFormat) || !strings.Contains(err.Error(), "it is 2, known is 1") {
			t.Errorf("%v", err)
		}
	}
	writeFile(t, statePath(dir), stateText(`{"format":"x"}`))
	var typ *json.UnmarshalTypeError
	if _, err := ReadState(dir); !errors.As(err, &typ) {
		t.Errorf("%v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestState_DamagedStateStopsOpen: nothing in the directory is changed by then.
func TestState_DamagedStateStopsOpen(t *testing.T) {
	dir := t.TempDir()
	log := makeLog(31, 65536, 0, 10, anyMessage)
	closeStore(t, replicate(t, dir, log))
	whole, err := os.ReadFile(statePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, statePath(dir), string(whole[:len(whole)/2]))
	writeFile(t, filepath.Join(dir, "checkpoint"), "x")
	opt := Options{Dir: dir, SegmentSize: log.size, Disturbed: true}
	if _, err := tryOpen(opt); err == nil {
		t.Fatal("opened")
	}
	if !exists(filepath.Join(dir, "checkpoint")) {
		t.Fatal("the store was touched")
	}
	writeFile(t, statePath(dir), string(whole))
	s := openStore(t, opt)
	if e := s.Ends(); e.Verified != log.end() {
		t.Fatalf("ends %+v", e)
	}
	closeStore(t, s)
}

// TestState_LeftoversOfKilledWritersGo, and nothing else does.
func TestState_LeftoversOfKilledWritersGo(t *testing.T) {
	dir := t.TempDir()
	tmp := filepath.Join(AgentDir(dir), "tmp")
	for _, name := range []string{".state.json123", "00000000000000065536", "topics.json.123", ".consumerOffset.json9"} {
		writeFile(t, filepath.Join(tmp, name), "x")
	}
	closeStore(t, openStore(t, Options{Dir: dir, SegmentSize: 65536}))
	entries, err := os.ReadDir(tmp)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
}

func TestState_KeepsWhoWasFollowed(t *testing.T) {
	dir := t.TempDir()
	opt := Options{Dir: dir, SegmentSize: 65536, Cluster: "c", BrokerName: "b"}
	s := openStore(t, opt)
	s.MissHistory(65536)
	if err := s.saveState(); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = openStore(t, Options{Dir: dir, SegmentSize: 65536}) // as a command does that follows nobody
	// Without a segment, what was missing of the old log is no more.
	if st := s.State(); st.Cluster != "c" || st.BrokerName != "b" || st.HistoryFrom != 0 {
		t.Fatalf("state %+v", st)
	}
	closeStore(t, s)
}

// FuzzReadState: whatever is in the file, it is a sealed state or an error.
func FuzzReadState(f *testing.F) {
	f.Add([]byte(stateText(`{"format":1}`)))
	dir := f.TempDir()
	if err := os.MkdirAll(AgentDir(dir), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(statePath(dir), b, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := ReadState(dir)
		if err != nil && s != (State{}) {
			t.Fatalf("%+v with error %v", s, err)
		}
		if err == nil && s.Format != stateFormat {
			t.Fatalf("format %d", s.Format)
		}
	})
}

// A note that did not get to disk is written when it is made again, since what
// follows counts on it (I1, I3).
func TestState_NotesAreTriedAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{Dir: t.TempDir(), SegmentSize: 64 << 10})
	defer closeStore(t, s)
	dir := s.Dir()
	for name, note := range map[string]struct {
		make func() error
		has  func(State) bool
	}{
		"provisional bytes": {s.ExpectProvisional, func(st State) bool { return st.Provisional }},
		"an epoch":          {func() error { return s.AdoptEpoch(7) }, func(st State) bool { return st.Epoch == 7 }},
	} {
		tmp := filepath.Join(AgentDir(dir), "tmp")
		if err := os.RemoveAll(tmp); err != nil {
			t.Fatal(err)
		}
		writeFile(t, tmp, "in the way")
		if err := note.make(); err == nil {
			t.Fatalf("%s: noted without a place for it", name)
		}
		if err := os.Remove(tmp); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := note.make(); err != nil {
				t.Fatal(err)
			}
			if st, err := ReadState(dir); err != nil || !note.has(st) {
				t.Errorf("%s: on disk is %+v, %v", name, st, err)
			}
		}
	}
}
