package metadata

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/haagent/haagent/wire"
)

// deliver sends s and returns what comes out at the other end. The receiver's
// bytes are overwritten after each call, as those of a frame are.
func deliver(t tb, out *Outbox, in *Inbox, s Snapshot, chunk wire.ByteSize) Snapshot {
	t.Helper()
	p := out.Pack(s)
	got, whole, err := in.Begin(p.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	clear(p.Items) // as the buffer of a frame is used again
	p = Parcel{Manifest: Manifest{Items: in.now.Items}, files: s.Files}
	for c := range p.Chunks(chunk) {
		if whole {
			t.Fatalf("whole before the chunk at %d of file %d", c.Offset, c.Index)
		}
		frame := bytes.Clone(c.Bytes)
		if got, whole, err = in.Chunk(Chunk{Index: c.Index, Offset: c.Offset, Bytes: frame}); err != nil {
			t.Fatal(err)
		}
		clear(frame)
	}
	if !whole {
		t.Fatalf("all is sent, and snapshot %d is not whole", s.Generation)
	}
	return got
}

func wantSame(t tb, got, want Snapshot) {
	t.Helper()
	if got.Generation != want.Generation || !got.TakenAt.Equal(want.TakenAt) || got.SourceEnd != want.SourceEnd || len(got.Files) != len(want.Files) {
		t.Fatalf("snapshot %d of %v at %v with %d files, want %d of %v at %v with %d", got.Generation, got.TakenAt, got.SourceEnd, len(got.Files),
			want.Generation, want.TakenAt, want.SourceEnd, len(want.Files))
	}
	for k, f := range got.Files {
		if w := want.Files[k]; f.Name != w.Name || f.SHA256 != w.SHA256 || !bytes.Equal(f.Content, w.Content) {
			t.Fatalf("file %d is %s %v, want %s %v", k, f.Name, f.SHA256, w.Name, w.SHA256)
		}
	}
	if err := got.verify(func(string, Hash) bool { return false }); err != nil {
		t.Fatal(err)
	}
}

func TestParcel_SendsOnlyWhatChanged(t *testing.T) {
	var out Outbox
	var in Inbox
	at := time.UnixMilli(1_700_000_000_123)
	s := Snapshot{Generation: 5, TakenAt: at, SourceEnd: 100, Files: []File{
		mustFile(t, "topics.json", topics(1, 3)), mustFile(t, "consumerOffset.json", offsets(7)), mustFile(t, "timercheck", []byte{1, 2}),
	}}
	wantSame(t, deliver(t, &out, &in, s, 10), s)

	next := s
	next.Generation, next.SourceEnd = 6, 101
	next.Files = slices.Clone(s.Files)
	next.Files[1] = mustFile(t, "consumerOffset.json", offsets(8))
	again := out // to look at what is sent
	if p := again.Pack(next); p.Follows() != wire.ByteSize(len(next.Files[1].Content)) || p.Items[0].Follows || !p.Items[1].Follows || p.Items[2].Follows {
		t.Errorf("one file changed, sent is %+v", p.Items)
	}
	got := deliver(t, &out, &in, next, 1<<16)
	wantSame(t, got, next)

	// Nothing changed: the manifest alone confirms, and memory is shared.
	quiet := next
	quiet.Generation, quiet.TakenAt = 9, at.Add(time.Second)
	again = out
	if p := again.Pack(quiet); p.Follows() != 0 {
		t.Errorf("nothing changed, %v are sent", p.Follows())
	}
	confirmed := deliver(t, &out, &in, quiet, 1)
	wantSame(t, confirmed, quiet)
	if &confirmed.Files[0].Content[0] != &got.Files[0].Content[0] {
		t.Error("an unchanged content is held twice")
	}

	// A file that was away for one snapshot is sent anew, as is all to a new peer.
	away := quiet
	away.Generation, away.Files = 10, quiet.Files[1:]
	wantSame(t, deliver(t, &out, &in, away, 100), away)
	back := quiet
	back.Generation = 11
	again = out
	if p := again.Pack(back); !p.Items[0].Follows || p.Items[1].Follows {
		t.Errorf("one file came back, sent is %+v", p.Items)
	}
	wantSame(t, deliver(t, &out, &in, back, 100), back)
	wantSame(t, deliver(t, new(Outbox), new(Inbox), back, 100), back)
	// None at all is a snapshot too.
	none := Snapshot{Generation: 12, TakenAt: at, SourceEnd: wire.NoOffset}
	wantSame(t, deliver(t, &out, &in, none, 100), none)
}

func item(f File, follows bool) Item {
	return Item{Name: f.Name, Size: wire.ByteSize(len(f.Content)), SHA256: f.SHA256, Follows: follows}
}

func TestInbox_RefusesManifests_Faults4And88(t *testing.T) {
	f, g := mustFile(t, "topics.json", topics(1, 3)), mustFile(t, "topics.json", topics(2, 3))
	named := func(name string) Item { i := item(f, true); i.Name = name; return i }
	sized := func(name string, n wire.ByteSize) Item { i := item(f, true); i.Name, i.Size = name, n; return i }
	shorter := item(f, false)
	shorter.Size--
	for what, test := range map[string]struct {
		m   Manifest
		err error
	}{
		"upwards":          {Manifest{Items: []Item{named("../x")}}, ErrName},
		"absolute":         {Manifest{Items: []Item{named("/etc/passwd")}}, ErrName},
		"into the log":     {Manifest{Items: []Item{named("commitlog/evil")}}, ErrName},
		"around":           {Manifest{Items: []Item{named("config/../commitlog/1")}}, ErrName},
		"no name":          {Manifest{Items: []Item{named("")}}, ErrName},
		"NUL":              {Manifest{Items: []Item{named("topics.json\x00")}}, ErrName},
		"dot":              {Manifest{Items: []Item{named("./topics.json")}}, ErrName},
		"other case":       {Manifest{Items: []Item{named("Topics.json")}}, ErrName},
		"backup":           {Manifest{Items: []Item{named("topics.json.bak")}}, ErrName},
		"never replicated": {Manifest{Items: []Item{named("timerwheel")}}, ErrName},
		"checkpoint":       {Manifest{Items: []Item{named("checkpoint")}}, ErrName},
		"twice":            {Manifest{Items: []Item{item(f, true), item(g, true)}}, ErrName},
		"negative size":    {Manifest{Items: []Item{sized("topics.json", -1)}}, ErrParcel},
		"empty":            {Manifest{Items: []Item{sized("topics.json", 0)}}, ErrParcel},
		"large":            {Manifest{Items: []Item{sized("topics.json", MaxFile+1)}}, ErrTooLarge},
		"huge":             {Manifest{Items: []Item{sized("topics.json", math.MaxInt64)}}, ErrTooLarge},
		"large together": {Manifest{Items: []Item{sized("topics.json", MaxFile), sized("consumerOffset.json", MaxFile),
			sized("delayOffset.json", 1)}}, ErrTooLarge},
		"negative end":      {Manifest{SourceEnd: -2, Items: []Item{item(f, true)}}, ErrParcel},
		"never sent":        {Manifest{Items: []Item{{Name: "consumerFilter.json", Size: 2, SHA256: hashed([]byte("{}"))}}}, ErrParcel},
		"other hash named":  {Manifest{Items: []Item{item(g, false)}}, ErrParcel},
		"other size named":  {Manifest{Items: []Item{shorter}}, ErrParcel},
		"hash of another":   {Manifest{Items: []Item{{Name: "delayOffset.json", Size: wire.ByteSize(len(f.Content)), SHA256: f.SHA256}}}, ErrParcel},
		"more than known":   {Manifest{Items: make([]Item, 64)}, ErrParcel},
		"same generation":   {Manifest{Generation: 7, Items: []Item{item(f, false)}}, ErrParcel},
		"earlier":           {Manifest{Generation: 6, Items: []Item{item(f, false)}}, ErrParcel},
		"second in the row": {Manifest{Items: []Item{item(f, false), named("x")}}, ErrName},
	} {
		t.Run(what, func(t *testing.T) {
			var in Inbox
			deliver(t, new(Outbox), &in, Snapshot{Generation: 7, Files: []File{f}}, 1000)
			if test.m.Generation == 0 {
				test.m.Generation = 8
			}
			_, whole, err := in.Begin(test.m)
			if !errors.Is(err, test.err) || whole {
				t.Fatalf("whole %v, %v, want %v", whole, err, test.err)
			}
			wantUseless(t, &in, err)
		})
	}
}

// wantUseless checks that nothing comes out of an Inbox that failed.
func wantUseless(t *testing.T, in *Inbox, err error) {
	t.Helper()
	f := mustFile(t, "topics.json", topics(9, 1))
	for range 2 {
		if _, whole, again := in.Begin(Manifest{Generation: 100, Items: []Item{item(f, true)}}); again != err || whole {
			t.Errorf("manifest after the error: whole %v, %v", whole, again)
		}
		if _, whole, again := in.Chunk(Chunk{Bytes: f.Content}); again != err || whole {
			t.Errorf("chunk after the error: whole %v, %v", whole, again)
		}
	}
	if in.files != nil || in.buffer != nil || in.last.Files != nil {
		t.Error("memory is held after the error")
	}
}

func TestInbox_RefusesChunks(t *testing.T) {
	f, g := mustFile(t, "topics.json", topics(1, 30)), mustFile(t, "subscriptionGroup.json", []byte(`{"a":{}}`))
	kept := mustFile(t, "timercheck", []byte{1})
	half := Item{Name: "delayOffset.json", Size: 1, SHA256: hashed([]byte("{")), Follows: true}
	wrong := item(g, true)
	wrong.SHA256[31] ^= 1
	n := wire.ByteSize(len(f.Content))
	all := []Item{item(f, true), item(kept, false), item(g, true)}
	for what, test := range map[string]struct {
		items  []Item
		chunks []Chunk
		err    error
	}{
		"no manifest":    {nil, []Chunk{{0, 0, []byte("x")}}, ErrParcel},
		"empty":          {all, []Chunk{{0, 0, nil}}, ErrParcel},
		"gap":            {all, []Chunk{{0, 0, f.Content[:10]}, {0, 11, f.Content[11:12]}}, ErrParcel},
		"overlap":        {all, []Chunk{{0, 0, f.Content[:10]}, {0, 9, f.Content[9:12]}}, ErrParcel},
		"again":          {all, []Chunk{{0, 0, f.Content[:10]}, {0, 0, f.Content[:10]}}, ErrParcel},
		"not at 0":       {all, []Chunk{{0, 1, f.Content[1:]}}, ErrParcel},
		"negative":       {all, []Chunk{{0, -1, f.Content[:1]}}, ErrParcel},
		"negative index": {all, []Chunk{{-1, 0, f.Content[:1]}}, ErrParcel},
		"behind the end": {all, []Chunk{{0, 0, append(bytes.Clone(f.Content), ' ')}}, ErrParcel},
		"far behind":     {all, []Chunk{{0, 0, f.Content[:1]}, {0, math.MaxInt64, f.Content[:1]}}, ErrParcel},
		"next too early": {all, []Chunk{{0, 0, f.Content[:n-1]}, {2, 0, g.Content}}, ErrParcel},
		"not following":  {all, []Chunk{{0, 0, f.Content}, {1, 0, kept.Content}}, ErrParcel},
		"last first":     {all, []Chunk{{2, 0, g.Content}}, ErrParcel},
		"no such file":   {all, []Chunk{{3, 0, g.Content}}, ErrParcel},
		"other content":  {[]Item{wrong}, []Chunk{{0, 0, g.Content}}, ErrHash},
		"not whole":      {[]Item{half}, []Chunk{{0, 0, []byte("{")}}, ErrIncomplete},
		"after the last": {[]Item{item(g, true)}, []Chunk{{0, 0, g.Content}, {0, 8, []byte(" ")}}, ErrParcel},
	} {
		t.Run(what, func(t *testing.T) {
			var in Inbox
			deliver(t, new(Outbox), &in, Snapshot{Generation: 1, Files: []File{kept}}, 1000)
			if test.items != nil {
				if _, _, err := in.Begin(Manifest{Generation: 2, Items: test.items}); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			for k, c := range test.chunks {
				var whole bool
				if _, whole, err = in.Chunk(c); err != nil && k < len(test.chunks)-1 || whole && what != "after the last" {
					t.Fatalf("chunk %d: whole %v, %v", k, whole, err)
				}
			}
			if !errors.Is(err, test.err) {
				t.Fatalf("%v, want %v", err, test.err)
			}
			wantUseless(t, &in, err)
		})
	}
}

func TestInbox_ManifestInTheMiddle(t *testing.T) {
	f := mustFile(t, "topics.json", topics(1, 30))
	var in Inbox
	m := Manifest{Generation: 1, Items: []Item{item(f, true)}}
	if _, _, err := in.Begin(m); err != nil {
		t.Fatal(err)
	}
	m.Generation = 2
	_, _, err := in.Begin(m)
	if !errors.Is(err, ErrParcel) {
		t.Fatal(err)
	}
	wantUseless(t, &in, err)
}

// Peers that announce the largest snapshot there is, send a little and stop: each
// holds no more than twice what it sent, and a page or so.
func TestInbox_MemoryGrowsWithWhatArrives_Fault4(t *testing.T) {
	items := []Item{
		{Name: "topics.json", Size: MaxFile, Follows: true},
		{Name: "consumerOffset.json", Size: MaxSnapshot - MaxFile, Follows: true},
	}
	const sent = 70 << 10
	inboxes := make([]*Inbox, 100)
	before := allocated()
	for k := range inboxes {
		inboxes[k] = new(Inbox)
		if _, _, err := inboxes[k].Begin(Manifest{Generation: 1, Items: items}); err != nil {
			t.Fatal(err)
		}
		for at := 0; at < sent; at += 10 << 10 {
			if _, _, err := inboxes[k].Chunk(Chunk{Offset: wire.ByteSize(at), Bytes: make([]byte, 10<<10)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if per := (allocated() - before) / wire.ByteSize(len(inboxes)); per > 5*sent {
		t.Errorf("%v for each peer that sent %v", per, wire.ByteSize(sent))
	}
	runtime.KeepAlive(inboxes)
}

// allocated is all that was ever allocated.
func allocated() wire.ByteSize {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return wire.ByteSize(m.TotalAlloc)
}
