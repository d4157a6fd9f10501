package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// pair is a source and a replica with nothing but the two ends of a link between
// them: Snapshotter, Outbox, Inbox, Installer.
type pair struct {
	src, rep string
	s        *Snapshotter
	i        *Installer
	hints    chan struct{}
	verified atomic.Int64 // of the replica's log

	mu      sync.Mutex
	sent    map[string]wire.ByteSize // contents by file
	parcels int
}

func newPair(t *testing.T, o SnapshotterOptions) *pair {
	t.Helper()
	p := &pair{src: t.TempDir(), rep: t.TempDir(), hints: make(chan struct{}, 1), sent: make(map[string]wire.ByteSize)}
	if err := os.Mkdir(filepath.Join(p.src, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.i = open(t, p.rep, Options{})
	if o.End == nil {
		o.End = endAt(0)
	}
	o.Dir, o.Changed = p.src, p.hints
	p.s = NewSnapshotter(o)
	return p
}

// start runs both sides until the test is over.
func (p *pair) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- p.s.Run(ctx) }()
	go func() { done <- p.carry(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
}

// carry brings every snapshot over one connection.
func (p *pair) carry(ctx context.Context) error {
	moved, stop := p.s.Listen()
	defer stop()
	var out Outbox
	var in Inbox
	for {
		if s, ok := p.s.Latest(); ok && s.Generation > in.last.Generation {
			if err := p.bring(&out, &in, s); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-moved:
		}
	}
}

func (p *pair) bring(out *Outbox, in *Inbox, s Snapshot) error {
	parcel := out.Pack(s)
	p.mu.Lock()
	p.parcels++
	for _, it := range parcel.Items {
		if it.Follows {
			p.sent[it.Name] += it.Size
		}
	}
	p.mu.Unlock()
	got, whole, err := in.Begin(parcel.Manifest)
	frame := make([]byte, 0, 64<<10)
	for c := range parcel.Chunks(64 << 10) {
		if err != nil || whole {
			return fmt.Errorf("whole %v before the last chunk: %w", whole, err)
		}
		frame = append(frame[:0], c.Bytes...)
		got, whole, err = in.Chunk(Chunk{Index: c.Index, Offset: c.Offset, Bytes: frame})
	}
	if err != nil || !whole {
		return fmt.Errorf("whole %v after the last chunk: %w", whole, err)
	}
	if err := p.i.Offer(got); err != nil {
		return err
	}
	_, err = p.i.Install(wire.PhyOffset(p.verified.Load()))
	return err
}

func (p *pair) hint() {
	select {
	case p.hints <- struct{}{}:
	default:
	}
}

// traffic returns the content bytes sent so far, by file, and the manifests.
func (p *pair) traffic() (map[string]wire.ByteSize, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := make(map[string]wire.ByteSize)
	for name, n := range p.sent {
		sent[name] = n
	}
	return sent, p.parcels
}

// write is a broker that persists a file; each change of the directory takes a
// while and gives a hint, as a watch would.
func (p *pair) write(name string, content []byte, style forge.Style, each time.Duration) error {
	return forge.WriteConfig(p.src, name, content, style, func(string) error {
		p.hint()
		if each > 0 {
			<-time.After(each)
		}
		return nil
	})
}

// reader looks at one file of the replica as a broker that boots there would.
type reader struct {
	dir, name string
	version   func([]byte) (int, bool) // false: no version that was ever written
	seen      int
	last      []byte
	reads     int
}

// look fails if what stands there is no version, goes back, or went missing.
func (r *reader) look() error {
	b, err := os.ReadFile(filepath.Join(r.dir, "config", r.name))
	if errors.Is(err, os.ErrNotExist) && r.seen == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	r.reads++
	if r.seen > 0 && bytes.Equal(b, r.last) {
		return nil
	}
	if _, err := NewFile(r.name, b); err != nil {
		return fmt.Errorf("after version %d: %w", r.seen, err)
	}
	v, ok := r.version(b)
	if !ok || v < r.seen {
		return fmt.Errorf("after version %d: version %d of the source: %v", r.seen, v, ok)
	}
	r.seen, r.last = v, b
	return nil
}

// follow looks every interval until stop is closed.
func (r *reader) follow(every time.Duration, stop <-chan struct{}) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := r.look(); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}

// topicsVersion recognizes topics(v, n(v)).
func topicsVersion(n func(v int) int) func([]byte) (int, bool) {
	return func(b []byte) (int, bool) {
		v := versionIn(b)
		if v == nil {
			return 0, false
		}
		return int(v.Counter), bytes.Equal(b, topics(int(v.Counter), n(int(v.Counter))))
	}
}
