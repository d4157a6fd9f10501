package replica

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/wake"
	"github.com/haagent/haagent/wire"
)

// Ack is what a replica's acknowledgement promises.
type Ack string

// The ack levels.
const (
	AckMemory Ack = "memory" // verified, in the page cache: survives the process, not the machine
	AckDisk   Ack = "disk"   // fdatasync has returned for it
)

// Errors by which a caller chooses what to do.
var (
	// ErrBrokerWrote: a broker has run on the replica since; two histories may exist.
	ErrBrokerWrote = errors.New("a broker has written to this replica")
	// ErrPromoted: the replica was promoted and belongs to a broker now.
	ErrPromoted = errors.New("the replica has been promoted")
	// ErrForeignStore: the directory is a broker's own store.
	ErrForeignStore = errors.New("the directory holds a commit log that is not a replica of ours")
	// ErrNotStore: the directory holds something else altogether.
	ErrNotStore = errors.New("the directory is not a store")
	// ErrSegmentSize: the segments found have another size than asked for.
	ErrSegmentSize = errors.New("segment size does not fit")
	// ErrNotAdjacent: bytes were offered that do not begin at the written end.
	ErrNotAdjacent = errors.New("bytes do not continue the log")
	// ErrDisturbed: somebody else changed the replica while it was held.
	ErrDisturbed = errors.New("somebody else changed the replica")
	// ErrFlush: a sync failed; what it covered must be written anew. The store
	// takes nothing more, and is to be opened again.
	ErrFlush = errors.New("flush failed")
	// ErrClosed: the store was closed, abandoned or promoted.
	ErrClosed = errors.New("the replica is closed")
)

// Options say which store to open and how.
type Options struct {
	Dir          string        // store root
	CommitLogDir string        // default where the state says, else Dir/commitlog
	SegmentSize  wire.ByteSize // of the source; must be positive
	Cluster      string        // who is followed, for state.json
	BrokerName   string
	Ack          Ack // default AckMemory
	// Verify walks the log from its first byte instead of from the last synced message.
	Verify bool
	// OnlySynced drops what was not known to be synced, to have it written anew
	// after a failed flush. A replica that noted such a failure in its state is
	// opened like this in any case.
	OnlySynced bool
	// Rewind is the first offset at which the source is known to hold other bytes:
	// the log is cut back to the last message that ends before it, and what is cut
	// is kept in salvage. 0: nothing is.
	Rewind wire.PhyOffset
	// Disturbed says that a broker's traces were made while this process held
	// the store: they are set aside instead of refused. It implies Verify.
	Disturbed bool
	Fsync     *meter.Histogram // how long each sync of a segment took; nil: nobody asks
	Now       func() time.Time // default time.Now

	disk disk // tests only
}

// Ends are the positions of a store, read at one moment. On an empty store all
// of them are wire.NoOffset, or the offset given to Begin.
type Ends struct {
	Min, Written, Verified, Flushed, Acked wire.PhyOffset
}

// Store is an open replica. Begin, Append, Verify and DropUnverified belong to
// one goroutine, Run to another, and everything else may be called from any.
// Close, Abandon and Promote come when those two have ended.
type Store struct {
	opt    Options
	lock   *Lock
	logDir string

	// Positions, as PhyOffset; wire.NoOffset while the store is empty.
	min, written, verified, flushed atomic.Int64
	lastMessage                     atomic.Int64 // start of the last verified message
	lastStored                      atomic.Int64 // its STORETIMESTAMP, Unix milliseconds
	messages                        atomic.Int64 // verified since Open
	saved                           atomic.Int64 // the verified end in state.json
	expecting                       atomic.Bool  // provisional bytes are about to be appended

	// Locks are taken in this order.
	layout  sync.Mutex // held while segments come and go, and while that is checked
	syncing sync.Mutex // held over syncs and their verdict, and while files are closed
	saving  sync.Mutex // held while state.json is replaced

	mu     sync.Mutex
	open   []*segment       // ascending, from the oldest unflushed or unverified to the tail; guarded by mu
	bases  []wire.PhyOffset // of every segment, ascending; guarded by mu
	state  State            // guarded by mu
	newDir bool             // a segment was born or removed since the last directory sync; guarded by mu
	failed error            // the first failed sync; guarded by mu
	doubts wire.PhyOffset   // end of the last message that looks like one with lost pages; guarded by mu
	closed bool             // guarded by mu

	nudge     chan struct{} // wakes Run; one slot
	listeners wake.Listeners
	record    commitlog.Record // owned by the appending goroutine
	boot      string           // which run of the kernel this is; set by Open
	known     wire.PhyOffset   // verified by the last process; set by Open
	had       wire.PhyOffset   // the same before Rewind cut it back, 0 where it did not; set by Open
	rewound   wire.ByteSize    // how much of that it was; set by Open
	marked    bool             // known is where that process was when it ended; set by Open
	mark      *endMark         // owned by the appending goroutine
	unsynced  tailDigest       // what mark says; owned by the appending goroutine
	spoken    tailDigest       // the same for others, ahead of it; guarded by mu
	sum       digest           // what its latest part becomes; owned by the appending goroutine
	touched   wire.PhyOffset   // how far a failed write may have got, else NoOffset; owned by the appending goroutine
}

// segment is one open file of the log with its mapping.
type segment struct {
	base wire.PhyOffset
	end  wire.PhyOffset
	path string
	file segmentFile
	view *commitlog.View
	id   os.FileInfo // of the file, to notice another one in its place
}

// close releases both descriptors of the segment.
func (s *segment) close() error { return errors.Join(s.view.Close(), s.file.Close()) }

// Open opens the replica at opt.Dir, or makes one of an empty directory. The
// caller has taken lock; the store releases it in Close and Promote. On an
// error the lock is still the caller's.
//
// Open walks the log from the last message known to be synced, erases what lies
// behind the last whole message, syncs, and asserts the boot contract.
func Open(opt Options, lock *Lock) (*Store, error) {
	if opt.SegmentSize <= 0 {
		return nil, fmt.Errorf("open replica: segment size %d: %w", opt.SegmentSize, ErrSegmentSize)
	}
	if opt.CommitLogDir == "" {
		opt.CommitLogDir = RememberedLogDir(opt.Dir)
	}
	if opt.Ack == "" {
		opt.Ack = AckMemory
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.disk == nil {
		opt.disk = osDisk{tmp: filepath.Join(AgentDir(opt.Dir), "tmp")}
	}
	s := &Store{opt: opt, lock: lock, logDir: opt.CommitLogDir, nudge: make(chan struct{}, 1), touched: wire.NoOffset}
	s.setEnds(wire.NoOffset)
	s.lastMessage.Store(int64(wire.NoOffset))
	s.saved.Store(int64(wire.NoOffset))
	if err := s.admit(); err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, s.closeSegments())
	}
	return s, nil
}

// Ends returns where the store is.
func (s *Store) Ends() Ends {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Only the written end moves without the lock, and never below verified.
	e := Ends{
		Min:      wire.PhyOffset(s.min.Load()),
		Flushed:  wire.PhyOffset(s.flushed.Load()),
		Verified: wire.PhyOffset(s.verified.Load()),
		Written:  wire.PhyOffset(s.written.Load()),
	}
	e.Acked = e.Verified
	if s.opt.Ack == AckDisk {
		e.Acked = e.Flushed
	}
	return e
}

// Segments returns how many files the log has.
func (s *Store) Segments() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bases)
}

// Listen returns a channel that gets a value after every move of an end (moves
// that come faster than they are taken are one), and a function that ends it.
func (s *Store) Listen() (moved <-chan struct{}, stop func()) { return s.listeners.Listen() }

// Empty reports whether the store has no segment yet.
func (s *Store) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.bases) == 0
}

// Messages returns how many messages were verified since Open.
func (s *Store) Messages() int64 { return s.messages.Load() }

// LastStored returns the store time of the last verified message; the zero
// time where there is none.
func (s *Store) LastStored() time.Time {
	if ms := s.lastStored.Load(); ms > 0 {
		return time.UnixMilli(ms)
	}
	return time.Time{}
}

// SegmentSize returns the size of every segment.
func (s *Store) SegmentSize() wire.ByteSize { return s.opt.SegmentSize }

// Dir returns the store root.
func (s *Store) Dir() string { return s.opt.Dir }

// CommitLogDir returns where the segments are.
func (s *Store) CommitLogDir() string { return s.logDir }

// State returns what state.json says, or will say when it is written next.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Store) setEnds(o wire.PhyOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range []*atomic.Int64{&s.min, &s.written, &s.verified, &s.flushed} {
		p.Store(int64(o))
	}
}

// segmentAt returns the open segment that holds o, or nil.
func (s *Store) segmentAt(o wire.PhyOffset) *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.open {
		if seg.base <= o && o < seg.end {
			return seg
		}
	}
	return nil
}

// attach takes a segment file into the set of open ones.
func (s *Store) attach(base wire.PhyOffset, file segmentFile) (*segment, error) {
	seg := &segment{base: base, end: base.Add(s.opt.SegmentSize), path: filepath.Join(s.logDir, commitlog.Name(base)), file: file}
	var err error
	if seg.id, err = os.Lstat(seg.path); err != nil {
		return nil, errors.Join(fmt.Errorf("look at segment: %w", err), file.Close())
	}
	if seg.view, err = commitlog.OpenView(seg.path); err != nil {
		return nil, errors.Join(fmt.Errorf("map segment: %w", err), file.Close())
	}
	// What is read was written just before. Pages read ahead of it would be filled
	// with zeros, only to be overwritten.
	if err := seg.view.AdviseRandom(); err != nil {
		return nil, errors.Join(err, seg.close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, seg)
	return seg, nil
}

// usable returns why the store takes nothing more, if so.
func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return s.failed
}

// Close stops using the store: what was received and verified is synced, what
// lies behind it is erased, and the lock is released, after an error too. A
// broker can boot on the directory afterwards. Closing a store again, or one
// that was abandoned or promoted, does nothing.
func (s *Store) Close() error {
	err := s.settle()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return errors.Join(err, s.closeSegments(), s.lock.Release())
}

// Abandon closes the files and keeps the lock, for opening the store again
// after an error. Nothing more is written.
func (s *Store) Abandon() error { return s.closeSegments() }

// settle erases the incomplete message at the end and syncs everything.
func (s *Store) settle() error {
	if err := s.usable(); err != nil {
		return err
	}
	if s.Empty() {
		return nil
	}
	if err := s.eraseTail(); err != nil {
		return err
	}
	return s.flush()
}

func (s *Store) closeSegments() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	if s.mark != nil {
		errs, s.mark = append(errs, s.mark.close()), nil
	}
	for _, seg := range s.open {
		errs = append(errs, seg.close())
	}
	s.open = nil
	return errors.Join(errs...)
}
