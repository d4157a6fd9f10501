package metadata

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/haagent/haagent/wire"
)

// ErrParcel is matched by the error for a manifest or a chunk that cannot stand
// where it does. The connection it came over is of no use any more.
var ErrParcel = errors.New("malformed snapshot")

// Item is one file of a snapshot that is on its way.
type Item struct {
	// Name is a known name, see [Lookup].
	Name string
	// Size and SHA256 are those of the content.
	Size   wire.ByteSize
	SHA256 Hash
	// Follows is set where the content is sent. Else the receiver has it: the
	// snapshot before this one, on the same connection, had the same file.
	Follows bool
}

// Manifest goes ahead of the contents of a snapshot. The fields are those of
// Snapshot; TakenAt is in whole milliseconds.
type Manifest struct {
	Generation uint64
	TakenAt    time.Time
	SourceEnd  wire.PhyOffset
	Items      []Item
}

// Chunk is a piece of the content of one item.
type Chunk struct {
	// Index is the item's place in the manifest.
	Index int
	// Offset counts the bytes of that content that were sent before.
	Offset wire.ByteSize
	// Bytes is never empty.
	Bytes []byte
}

// Outbox is the sending side of one connection. It decides which contents have to
// be sent, and keeps nothing but hashes. The zero value is ready. It is used by
// one goroutine.
type Outbox struct {
	has map[string]Hash // what the receiver holds: the files of the last snapshot
}

// Parcel is a snapshot made ready for one receiver.
type Parcel struct {
	Manifest
	files []File
}

// Pack makes s ready. All of it has to be sent, in order, before the next call; a
// connection on which that fails has to be ended, and its Outbox with it.
func (o *Outbox) Pack(s Snapshot) Parcel {
	p := Parcel{
		Manifest: Manifest{Generation: s.Generation, TakenAt: s.TakenAt, SourceEnd: s.SourceEnd, Items: make([]Item, 0, len(s.Files))},
		files:    s.Files,
	}
	has := make(map[string]Hash, len(s.Files))
	for _, f := range s.Files {
		h, ok := o.has[f.Name]
		p.Items = append(p.Items, Item{
			Name: f.Name, Size: wire.ByteSize(len(f.Content)), SHA256: f.SHA256, Follows: !ok || h != f.SHA256,
		})
		has[f.Name] = f.SHA256
	}
	o.has = has
	return p
}

// Follows returns how many bytes of content have to be sent: 0 where nothing
// changed and the manifest only confirms.
func (p Parcel) Follows() wire.ByteSize {
	var n wire.ByteSize
	for _, it := range p.Items {
		if it.Follows {
			n += it.Size
		}
	}
	return n
}

// Chunks yields the contents that have to be sent, in order, in pieces of at most
// size bytes. The pieces belong to the snapshot and must not be changed. It panics
// where size is not above 0, which is a programming error.
func (p Parcel) Chunks(size wire.ByteSize) iter.Seq[Chunk] {
	return func(yield func(Chunk) bool) {
		for k, it := range p.Items {
			if !it.Follows {
				continue
			}
			var at wire.ByteSize
			for b := range slices.Chunk(p.files[k].Content, int(size)) {
				if !yield(Chunk{Index: k, Offset: at, Bytes: b}) {
					return
				}
				at += wire.ByteSize(len(b))
			}
		}
	}
}

// Inbox is the receiving side of one connection. It trusts nothing: names, sizes,
// order, hashes and completeness are checked, and what it holds grows only with
// the bytes that arrived. After an error it stays unusable, and nothing of the
// snapshot under way comes out. The zero value is ready. It is used by one
// goroutine.
type Inbox struct {
	last   Snapshot // the last whole one; its files need not be sent again
	any    bool
	err    error
	open   bool // a manifest was taken whose contents are not all there
	now    Manifest
	files  []File // of now, as far as they are there
	buffer []byte // of the file at len(files)
}

// firstBuffer is what the first chunk of a file may reserve at most beyond its
// own length.
const firstBuffer = 64 << 10

// Begin takes a manifest. Where nothing follows, the snapshot is whole at once
// and is returned with true. The errors match ErrName for a name that is not a
// known config file or is there twice, ErrTooLarge, and ErrParcel for anything
// else that is wrong.
func (b *Inbox) Begin(m Manifest) (Snapshot, bool, error) {
	if b.err != nil {
		return Snapshot{}, false, b.err
	}
	if err := b.begin(m); err != nil {
		return Snapshot{}, false, b.fail(fmt.Errorf("snapshot %d: %w", m.Generation, err))
	}
	b.open, b.now, b.files, b.buffer = true, m, make([]File, 0, len(m.Items)), nil
	b.now.Items = slices.Clone(m.Items)
	s, whole := b.advance()
	return s, whole, nil
}

func (b *Inbox) begin(m Manifest) error {
	switch {
	case b.open:
		return fmt.Errorf("%w: begins before snapshot %d is whole", ErrParcel, b.now.Generation)
	case b.any && m.Generation <= b.last.Generation:
		return fmt.Errorf("%w: comes after snapshot %d", ErrParcel, b.last.Generation)
	case m.SourceEnd < wire.NoOffset:
		return fmt.Errorf("%w: end of the source's log is %v", ErrParcel, m.SourceEnd)
	case len(m.Items) > len(known):
		return fmt.Errorf("%w: %d files", ErrParcel, len(m.Items))
	}
	seen := make(map[string]bool, len(m.Items))
	var total wire.ByteSize
	for _, it := range m.Items {
		if _, ok := Lookup(it.Name); !ok || seen[it.Name] {
			return fmt.Errorf("%q: %w", it.Name, ErrName)
		}
		seen[it.Name] = true
		if it.Size < 1 {
			return fmt.Errorf("%w: %s holds %d bytes", ErrParcel, it.Name, int64(it.Size))
		}
		if it.Size > MaxFile {
			return fmt.Errorf("%s: %w: %d bytes, at most %v", it.Name, ErrTooLarge, int64(it.Size), MaxFile)
		}
		if total += it.Size; total > MaxSnapshot {
			return fmt.Errorf("%w: more than %v together", ErrTooLarge, MaxSnapshot)
		}
		if it.Follows {
			continue
		}
		if f := b.held(it.Name); f == nil || f.SHA256 != it.SHA256 || wire.ByteSize(len(f.Content)) != it.Size {
			return fmt.Errorf("%w: %s is named, but was not sent", ErrParcel, it.Name)
		}
	}
	return nil
}

// held returns a file of the last snapshot, nil where it had none of that name.
func (b *Inbox) held(name string) *File {
	for k := range b.last.Files {
		if b.last.Files[k].Name == name {
			return &b.last.Files[k]
		}
	}
	return nil
}

// Chunk takes the next piece of content and copies it. The piece that makes the
// snapshot whole returns it, with true: it is what [Installer.Offer] takes. The
// errors match ErrParcel for a piece that does not come next, ErrHash, and for a
// content that is not whole what [NewFile] says.
func (b *Inbox) Chunk(c Chunk) (Snapshot, bool, error) {
	if b.err != nil {
		return Snapshot{}, false, b.err
	}
	if err := b.chunk(c); err != nil {
		return Snapshot{}, false, b.fail(fmt.Errorf("snapshot %d: %w", b.now.Generation, err))
	}
	s, whole := b.advance()
	return s, whole, nil
}

func (b *Inbox) chunk(c Chunk) error {
	if !b.open {
		return fmt.Errorf("%w: content without a manifest", ErrParcel)
	}
	if c.Index != len(b.files) {
		return fmt.Errorf("%w: content of file %d, want that of %d", ErrParcel, c.Index, len(b.files))
	}
	it := b.now.Items[c.Index]
	have, n := wire.ByteSize(len(b.buffer)), wire.ByteSize(len(c.Bytes))
	if c.Offset != have || n == 0 || n > it.Size-have {
		return fmt.Errorf("%w: %d bytes at %d of %s, which has %d of %d", ErrParcel, int64(n), int64(c.Offset), it.Name, int64(have), int64(it.Size))
	}
	if have+n > wire.ByteSize(cap(b.buffer)) {
		grown := make([]byte, have, min(it.Size, max(2*have, have+n, firstBuffer)))
		copy(grown, b.buffer)
		b.buffer = grown
	}
	if b.buffer = append(b.buffer, c.Bytes...); have+n < it.Size {
		return nil
	}
	if Hash(sha256.Sum256(b.buffer)) != it.SHA256 {
		return fmt.Errorf("%s: %w %v", it.Name, ErrHash, it.SHA256)
	}
	f, err := newFile(it.Name, b.buffer, it.SHA256)
	if err != nil {
		return err
	}
	b.files, b.buffer = append(b.files, f), nil
	return nil
}

// advance takes over what need not be sent, up to the next content that is.
func (b *Inbox) advance() (Snapshot, bool) {
	for len(b.files) < len(b.now.Items) {
		it := b.now.Items[len(b.files)]
		if it.Follows {
			return Snapshot{}, false
		}
		b.files = append(b.files, *b.held(it.Name))
	}
	s := Snapshot{Generation: b.now.Generation, TakenAt: b.now.TakenAt, SourceEnd: b.now.SourceEnd, Files: b.files}
	b.last, b.any, b.open, b.now, b.files = s, true, false, Manifest{}, nil
	return s, true
}

// fail drops what is held and makes err the answer to all that follows.
func (b *Inbox) fail(err error) error {
	*b = Inbox{err: err}
	return err
}
