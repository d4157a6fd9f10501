package metadata

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
)

// contentsOf draws a state of a source: names with versions.
func contentsOf(t *rapid.T) map[string]int {
	names := rapid.SampledFrom([]string{"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json", "timercheck"})
	return rapid.MapOfN(names, rapid.IntRange(1, 3), 0, 5).Draw(t, "files")
}

func snapshotOf(t tb, generation uint64, state map[string]int, end wire.PhyOffset) Snapshot {
	s := Snapshot{Generation: generation, TakenAt: time.UnixMilli(int64(generation) * 1000), SourceEnd: end}
	for _, k := range known {
		v, ok := state[k.Name]
		switch {
		case !ok:
		case k.binary:
			s.Files = append(s.Files, mustFile(t, k.Name, bytes.Repeat([]byte{byte(v)}, v*100)))
		default:
			s.Files = append(s.Files, mustFile(t, k.Name, topics(v, 5*v)))
		}
	}
	return s
}

// Any series of snapshots, cut in any way, arrives as it was, and costs no more
// bytes than changed.
func TestParcel_AnySeriesArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var out Outbox
		var in Inbox
		before := map[string]int{}
		generation := uint64(0)
		for range rapid.IntRange(1, 6).Draw(t, "snapshots") {
			generation += rapid.Uint64Range(1, 1<<40).Draw(t, "step")
			state := contentsOf(t)
			s := snapshotOf(t, generation, state, wire.PhyOffset(rapid.Int64Range(-1, 1<<50).Draw(t, "end")))
			var changed wire.ByteSize
			for _, f := range s.Files {
				if before[f.Name] != state[f.Name] {
					changed += wire.ByteSize(len(f.Content))
				}
			}
			again := out
			if p := again.Pack(s); p.Follows() != changed {
				t.Fatalf("%v follow, %v changed", p.Follows(), changed)
			}
			wantSame(t, deliver(t, &out, &in, s, wire.ByteSize(rapid.IntRange(1, 5000).Draw(t, "chunk"))), s)
			before = state
		}
	})
}

// Whatever is lost, doubled, swapped or flipped on the way: what comes out is
// exactly what a snapshot was, or an error and nothing.
func TestInbox_DamagedStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var out Outbox
		var sent []Snapshot
		var frames []any
		for g := range uint64(rapid.IntRange(1, 3).Draw(t, "snapshots")) {
			s := snapshotOf(t, g+1, contentsOf(t), wire.PhyOffset(g))
			sent = append(sent, s)
			p := out.Pack(s)
			frames = append(frames, p.Manifest)
			for c := range p.Chunks(wire.ByteSize(rapid.IntRange(50, 2000).Draw(t, "chunk"))) {
				frames = append(frames, c)
			}
		}
		k := rapid.IntRange(0, len(frames)-1).Draw(t, "frame")
		switch rapid.SampledFrom([]string{"lost", "doubled", "swapped", "flipped", "short", "ended"}).Draw(t, "damage") {
		case "lost":
			frames = slices.Delete(frames, k, k+1)
		case "doubled":
			frames = slices.Insert(frames, k, frames[k])
		case "swapped":
			j := rapid.IntRange(0, len(frames)-1).Draw(t, "with")
			frames[k], frames[j] = frames[j], frames[k]
		case "flipped":
			if c, ok := frames[k].(Chunk); ok {
				c.Bytes = bytes.Clone(c.Bytes)
				c.Bytes[rapid.IntRange(0, len(c.Bytes)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				frames[k] = c
			} else {
				m := frames[k].(Manifest)
				m.Items = slices.Clone(m.Items)
				for j := range m.Items {
					m.Items[j].Follows = !m.Items[j].Follows
				}
				frames[k] = m
			}
		case "short":
			if c, ok := frames[k].(Chunk); ok {
				c.Bytes = c.Bytes[1:]
				frames[k] = c
			}
		case "ended":
			frames = frames[:k]
		}
		var in Inbox
		var failed error
		for _, frame := range frames {
			var s Snapshot
			var whole bool
			var err error
			if m, ok := frame.(Manifest); ok {
				s, whole, err = in.Begin(m)
			} else {
				s, whole, err = in.Chunk(frame.(Chunk))
			}
			if failed != nil && (err != failed || whole) {
				t.Fatalf("goes on after %v: %v", failed, err)
			}
			if failed = err; whole {
				wantSame(t, s, sent[s.Generation-1])
			}
		}
	})
}

// program turns bytes into calls of an Inbox: each byte says what comes next, and
// takes its arguments from what follows.
type program []byte

func (p *program) next() byte {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

func (p *program) take(n int) []byte {
	n = min(n, len(*p))
	b := (*p)[:n]
	*p = (*p)[n:]
	return b
}

// manifest reads the end of the log, the number of items, then for each a name (a
// place in known, or the name itself), a size and flags: 1 follows, 2 has the hash
// of "[]" and not of "{}", 4 has its size in MiB and neither.
func (p *program) manifest(generation uint64) Manifest {
	m := Manifest{Generation: generation, SourceEnd: wire.PhyOffset(int8(p.next()))}
	for range p.next() % 24 {
		var it Item
		if k := p.next(); int(k) < len(known) {
			it.Name = known[k].Name
		} else {
			it.Name = string(p.take(int(k) % 16))
		}
		it.Size = wire.ByteSize(int8(p.next()))
		if flags := p.next(); flags&4 != 0 {
			it.Size <<= 20
		} else {
			it.Follows = flags&1 != 0
			it.SHA256 = hashed([]byte("{}"))
			if flags&2 != 0 {
				it.SHA256 = hashed([]byte("[]"))
			}
		}
		m.Items = append(m.Items, it)
	}
	return m
}

func FuzzInbox(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		p := program(b)
		var in Inbox
		var generation uint64
		var arrived int
		var failed error
		for len(p) > 0 {
			var s Snapshot
			var whole bool
			var err error
			switch op := p.next(); {
			case op < 64:
				generation += uint64(op % 4)
				s, whole, err = in.Begin(p.manifest(generation))
			default:
				c := Chunk{Index: int(int8(p.next())), Offset: wire.ByteSize(int8(p.next())), Bytes: p.take(int(op) % 8)}
				arrived += len(c.Bytes)
				s, whole, err = in.Chunk(c)
			}
			if failed != nil && err != failed {
				t.Fatalf("goes on after %v: %v", failed, err)
			}
			if failed = err; whole && err != nil {
				t.Fatalf("whole, and %v", err)
			}
			if cap(in.buffer) > 2*arrived+firstBuffer {
				t.Fatalf("%d bytes are held, %d arrived", cap(in.buffer), arrived)
			}
			if !whole {
				continue
			}
			if err := s.verify(func(string, Hash) bool { return false }); err != nil {
				t.Fatalf("not whole: %v", err)
			}
		}
	})
}

func TestFuzzInbox_Corpus(t *testing.T) {
	files, err := os.ReadDir(filepath.Join("testdata", "fuzz", "FuzzInbox"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d seeds, %v", len(files), err)
	}
}

// The seeds reach a whole snapshot: a fuzz target that only ever meets errors
// proves nothing.
func TestFuzzInbox_ReachesWholeSnapshots(t *testing.T) {
	p := program(seedWhole)
	var in Inbox
	p.next()
	if _, whole, err := in.Begin(p.manifest(1)); err != nil || whole {
		t.Fatalf("whole %v, %v", whole, err)
	}
	c := Chunk{Bytes: []byte("{}")}
	if s, whole, err := in.Chunk(c); err != nil || !whole || len(s.Files) != 1 {
		t.Fatal(fmt.Sprint(s, whole, err))
	}
}

// seedWhole is a manifest of topics.json with 2 bytes, and the chunk "{}".
var seedWhole = []byte{1, 0, 1, 0, 2, 1, 66, 0, 0, '{', '}'}
