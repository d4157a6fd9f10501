package verify_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const size = 64 * wire.KiB

// build makes a store of n messages of 500 bytes, about 130 a segment.
func build(t *testing.T, dir string, start wire.PhyOffset, n int) wire.PhyOffset {
	t.Helper()
	w := open(t, dir, start)
	for range n {
		grow(t, w)
	}
	end := w.End()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return end
}

func open(t *testing.T, dir string, start wire.PhyOffset) *forge.Writer {
	t.Helper()
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: size, Start: start})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func grow(t *testing.T, w *forge.Writer) {
	t.Helper()
	body := make([]byte, 400)
	for i := range body {
		body[i] = 'x'
	}
	if _, err := w.Append(forge.Message{Topic: "orders", Body: body, Properties: "KEYS\x01k\x02", StoreTimestamp: 1_700_000_000_000}); err != nil {
		t.Fatal(err)
	}
}

// overwrite changes bytes at an offset of the log at dir.
func overwrite(t *testing.T, dir string, at wire.PhyOffset, b ...byte) {
	t.Helper()
	base := at.SegmentBase(size)
	f, err := os.OpenFile(filepath.Join(dir, "commitlog", commitlog.Name(base)), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(b, int64(at.Sub(base)))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir string, base wire.PhyOffset) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "commitlog", commitlog.Name(base))); err != nil {
		t.Fatal(err)
	}
}

// boundary returns where the n-th message of a built store begins.
func boundary(t *testing.T, dir string, n int) wire.PhyOffset {
	t.Helper()
	sc, err := commitlog.NewScanner(filepath.Join(dir, "commitlog"), size, wire.NoOffset)
	if err != nil {
		t.Fatal(err)
	}
	for range n + 1 {
		if !sc.Next() {
			t.Fatal(sc.Err())
		}
	}
	at := sc.Record().PhyOffset
	if err := sc.Close(); err != nil {
		t.Fatal(err)
	}
	return at
}

// One store: what is counted, where it ends, and where the first bad place is.
func TestStore(t *testing.T) {
	const messages = 400
	for name, c := range map[string]struct {
		spoil     func(t *testing.T, dir string) wire.PhyOffset // returns where the trouble is
		bad, torn bool
	}{
		"whole": {spoil: func(*testing.T, string) wire.PhyOffset { return wire.NoOffset }},
		"damaged body": {bad: true, spoil: func(t *testing.T, dir string) wire.PhyOffset {
			at := boundary(t, dir, 200)
			overwrite(t, dir, at+100, 'y')
			return at
		}},
		"damaged size": {bad: true, spoil: func(t *testing.T, dir string) wire.PhyOffset {
			at := boundary(t, dir, 10)
			overwrite(t, dir, at, 0x7f, 0xff, 0xff, 0xff)
			return at
		}},
		"other place": {bad: true, spoil: func(t *testing.T, dir string) wire.PhyOffset {
			at := boundary(t, dir, 300)
			overwrite(t, dir, at+35, 1)
			return at
		}},
		"torn": {torn: true, spoil: func(t *testing.T, dir string) wire.PhyOffset {
			at := boundary(t, dir, messages-1)
			overwrite(t, dir, at+200, make([]byte, 300)...)
			return at
		}},
		"hole": {bad: true, spoil: func(t *testing.T, dir string) wire.PhyOffset {
			remove(t, dir, wire.PhyOffset(size))
			return wire.PhyOffset(size)
		}},
		"zeros in the middle": {bad: true, spoil: func(t *testing.T, dir string) wire.PhyOffset {
			at := boundary(t, dir, 200)
			overwrite(t, dir, at, make([]byte, 600)...)
			return at
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			end := build(t, dir, 0, messages)
			at := c.spoil(t, dir)
			calls := 0
			r, err := verify.Store(t.Context(), dir, func(at, of wire.PhyOffset) { calls++ })
			if err != nil {
				t.Fatal(err)
			}
			if r.Min != 0 || r.SegmentSize != size || r.Dir != dir || r.Segments == 0 {
				t.Errorf("report %+v", r)
			}
			if (r.Bad != nil) != c.bad || (r.Torn != nil) != c.torn {
				t.Fatalf("bad %+v, torn %+v", r.Bad, r.Torn)
			}
			want := end
			place := r.Torn
			if c.bad {
				place = r.Bad
			}
			if place != nil {
				want = at
				if place.PhyOffset != at || place.Reason == "" || place.File == "" {
					t.Errorf("place %+v, want %d", place, at)
				}
			} else if r.Messages != messages {
				t.Errorf("%d messages", r.Messages)
			}
			if name != "hole" && r.End != want {
				t.Errorf("end %d, want %d", r.End, want)
			}
		})
	}
}

// What is no store, or holds what no broker boots with, is an error.
func TestStore_NotToBeLookedAt(t *testing.T) {
	if _, err := verify.Store(t.Context(), filepath.Join(t.TempDir(), "missing"), nil); !errors.Is(err, verify.ErrNoStore) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := verify.Store(t.Context(), t.TempDir(), nil); !errors.Is(err, verify.ErrNoStore) {
		t.Errorf("empty: %v", err)
	}
	dir := t.TempDir()
	build(t, dir, 0, 10)
	if err := os.WriteFile(filepath.Join(dir, "commitlog", "notes.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	var foreign *commitlog.ForeignFileError
	if _, err := verify.Store(t.Context(), dir, nil); !errors.As(err, &foreign) {
		t.Errorf("foreign file: %v", err)
	}
	other := t.TempDir()
	build(t, other, 0, 10)
	if _, err := verify.Compare(t.Context(), other, dir, nil); !errors.As(err, &foreign) {
		t.Errorf("compared with a foreign file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	large := t.TempDir()
	build(t, large, 0, 5000)
	if _, err := verify.Store(ctx, large, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A segment that is just being born is waited for.
func TestStore_SegmentBeingBorn(t *testing.T) {
	dir := t.TempDir()
	end := build(t, dir, 0, 10)
	path := filepath.Join(dir, "commitlog", commitlog.Name(2*wire.PhyOffset(size)))
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var born sync.WaitGroup
	born.Go(func() {
		pause := time.NewTimer(50 * time.Millisecond)
		<-pause.C
		if err := os.Truncate(path, int64(size)); err != nil {
			t.Error(err)
		}
	})
	r, err := verify.Store(t.Context(), dir, nil)
	born.Wait()
	if err != nil || r.End != end || r.Bad != nil {
		t.Errorf("%+v, %v", r, err)
	}
	// One that stays empty keeps brokers from booting.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var length *commitlog.LengthError
	if _, err := verify.Store(t.Context(), dir, nil); !errors.As(err, &length) || length.Path != path {
		t.Errorf("never born: %v", err)
	}
}

// A store that never got a message is a store; its log directory is one too.
func TestStore_EmptyAndBareLog(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "commitlog"), 0o750); err != nil {
		t.Fatal(err)
	}
	if r, err := verify.Store(t.Context(), dir, nil); err != nil || r.Segments != 0 || r.Messages != 0 || r.Bad != nil {
		t.Errorf("%+v, %v", r, err)
	}
	end := build(t, dir, 3*wire.PhyOffset(size), 300)
	for _, d := range []string{dir, filepath.Join(dir, "commitlog")} {
		r, err := verify.Store(t.Context(), d, nil)
		if err != nil || r.Min != 3*wire.PhyOffset(size) || r.End != end || r.Messages != 300 || r.Bad != nil || r.Torn != nil {
			t.Errorf("%s: %+v, %v", d, r, err)
		}
	}
}

// Two stores: identical, one a prefix, and the first byte that differs.
func TestCompare(t *testing.T) {
	const messages = 400
	for name, c := range map[string]struct {
		change    func(t *testing.T, dir string, end wire.PhyOffset) (identical, different wire.PhyOffset)
		count     int
		start     wire.PhyOffset
		different bool
	}{
		"identical": {count: messages, change: func(_ *testing.T, _ string, end wire.PhyOffset) (wire.PhyOffset, wire.PhyOffset) {
			return end, wire.NoOffset
		}},
		"prefix": {count: 150, change: func(_ *testing.T, _ string, end wire.PhyOffset) (wire.PhyOffset, wire.PhyOffset) {
			return end, wire.NoOffset
		}},
		"flag differs": {count: messages, different: true, change: func(t *testing.T, dir string, _ wire.PhyOffset) (wire.PhyOffset, wire.PhyOffset) {
			at := boundary(t, dir, 250) + 19 // FLAG, which no checksum covers
			overwrite(t, dir, at, 9)
			return at, at
		}},
		"first message differs": {count: messages, different: true, change: func(t *testing.T, dir string, _ wire.PhyOffset) (wire.PhyOffset, wire.PhyOffset) {
			at := boundary(t, dir, 0) + 19
			overwrite(t, dir, at, 9)
			return at, at
		}},
		"damaged": {count: messages, different: true, change: func(t *testing.T, dir string, _ wire.PhyOffset) (wire.PhyOffset, wire.PhyOffset) {
			at := boundary(t, dir, 250)
			overwrite(t, dir, at+100, 'y')
			return at, wire.NoOffset
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := t.TempDir(), t.TempDir()
			build(t, a, 0, messages)
			end := build(t, b, 0, c.count)
			identical, different := c.change(t, b, end)
			got, err := verify.Compare(t.Context(), a, b, nil)
			if err != nil || got.IdenticalTo != identical || got.Different != different || got.From != 0 || got.Same() == c.different {
				t.Errorf("%+v, %v; want identical to %d, different at %d", got, err, identical, different)
			}
			// The order of the two says nothing about what they hold.
			back, err := verify.Compare(t.Context(), b, a, nil)
			if err != nil || back.IdenticalTo != identical || back.Different != different || back.Same() != got.Same() {
				t.Errorf("the other way round: %+v, %v", back, err)
			}
		})
	}
}

// A replica may begin later than its source, or have nothing in common with it.
func TestCompare_Beginnings(t *testing.T) {
	a, b, far := t.TempDir(), t.TempDir(), t.TempDir()
	end := build(t, a, 0, 400)
	build(t, b, 0, 400)
	remove(t, b, 0)
	build(t, far, 16*wire.PhyOffset(size), 10)
	if c, err := verify.Compare(t.Context(), a, b, nil); err != nil || !c.Same() || c.From != wire.PhyOffset(size) || c.IdenticalTo != end {
		t.Errorf("later: %+v, %v", c, err)
	}
	if c, err := verify.Compare(t.Context(), a, far, nil); err != nil || c.Same() || c.Different != wire.NoOffset {
		t.Errorf("nothing in common: %+v, %v", c, err)
	}
}

// A source may grow while it is compared with its replica.
func TestCompare_GrowingSource(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	build(t, a, 0, 300)
	end := build(t, b, 0, 300)
	w := open(t, a, 0)
	over := make(chan struct{})
	var growing sync.WaitGroup
	growing.Go(func() {
		for range 2000 {
			select {
			case <-over:
				return
			default:
				grow(t, w)
			}
		}
	})
	for range 10 {
		c, err := verify.Compare(t.Context(), a, b, nil)
		if err != nil || !c.Same() || c.IdenticalTo != end || c.A.End < end {
			t.Errorf("%+v, %v", c, err)
		}
	}
	close(over)
	growing.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
