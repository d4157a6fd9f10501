//go:build unix

package forge

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// Writer appends messages to a store as a broker does. All methods but Min and
// End belong to one goroutine.
type Writer struct {
	opts Options
	lock *os.File // nil unless Running

	seg     *segment
	min     atomic.Int64 // start of the first segment
	end     atomic.Int64 // where the next record goes
	scratch []byte       // the record that is being put together
	queues  map[string]int64
}

// Open opens the store at o.Dir, creates what is missing, and goes on behind the
// last valid record. It returns ErrLocked where o.Running and a broker has the
// store, and the errors of package commitlog where there is no log that a broker
// would boot on.
func Open(o Options) (*Writer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.CommitLogDir, 0o755); err != nil {
		return nil, fmt.Errorf("forge store: %w", err)
	}
	w := &Writer{opts: o, queues: make(map[string]int64)}
	if o.Running {
		if w.lock, err = takeLock(o.Dir); err != nil {
			return nil, err
		}
	}
	if err = w.recover(); err == nil && o.Running {
		err = writeAbort(o.Dir, o.Style)
	}
	if err != nil {
		return nil, errors.Join(err, w.Abandon())
	}
	return w, nil
}

// recover finds the end of the log and opens the segment that holds it.
func (w *Writer) recover() error {
	segs, err := commitlog.List(w.opts.CommitLogDir)
	if err != nil {
		return err
	}
	if len(segs) == 0 {
		w.min.Store(int64(w.opts.Start))
		w.end.Store(int64(w.opts.Start))
		return w.openAt(w.opts.Start)
	}
	w.min.Store(int64(segs[0].Base))
	scan, err := commitlog.NewScanner(w.opts.CommitLogDir, w.opts.SegmentSize, segs[0].Base)
	if err != nil {
		return err
	}
	for scan.Next() {
		if err = commitlog.Guard(func() error { w.count(scan.Record()); return nil }); err != nil {
			return errors.Join(err, scan.Close())
		}
	}
	end, err, torn := scan.Offset(), scan.Err(), scan.Torn() != nil
	if closeErr := scan.Close(); closeErr != nil {
		return closeErr
	}
	if !errors.Is(err, commitlog.ErrNotYet) {
		return err
	}
	w.end.Store(int64(end))
	if err := w.openAt(end.SegmentBase(w.opts.SegmentSize)); err != nil {
		return err
	}
	if torn && !w.opts.KeepTorn {
		return commitlog.Guard(func() error {
			clear(w.seg.data[end.Sub(w.seg.base):])
			return nil
		})
	}
	return nil
}

// count notes the queue offset that follows r.
func (w *Writer) count(r *commitlog.Record) {
	switch r.SysFlag & commitlog.FlagTransactionMask {
	case commitlog.FlagTransactionPrepared, commitlog.FlagTransactionRollback:
	default:
		w.queues[queueKey(string(r.Topic), r.QueueID)] = r.QueueOffset + 1
	}
}

func queueKey(topic string, queue int32) string { return topic + "-" + strconv.Itoa(int(queue)) }

// Min returns the start of the first segment.
func (w *Writer) Min() wire.PhyOffset { return wire.PhyOffset(w.min.Load()) }

// End returns the offset behind the last record: where the next one goes, unless
// it needs a new segment.
func (w *Writer) End() wire.PhyOffset { return wire.PhyOffset(w.end.Load()) }

// CommitLogDir returns the directory that holds the segments.
func (w *Writer) CommitLogDir() string { return w.opts.CommitLogDir }

// Append stores m and returns the offset behind it. Where m does not fit, the
// segment ends and the next one begins.
func (w *Writer) Append(m Message) (wire.PhyOffset, error) {
	at, err := w.prepare(&m)
	if err != nil {
		return w.End(), err
	}
	if err := w.seg.store(at, w.scratch); err != nil {
		return w.End(), err
	}
	return w.commit(&m, at), nil
}

// prepare puts the record of m together and makes room for it.
func (w *Writer) prepare(m *Message) (wire.PhyOffset, error) {
	if w.seg == nil {
		return wire.NoOffset, fmt.Errorf("append message: %w", os.ErrClosed)
	}
	if err := m.Check(); err != nil {
		return wire.NoOffset, err
	}
	need := m.Size() + commitlog.BlankSize
	if need > w.opts.SegmentSize {
		return wire.NoOffset, fmt.Errorf("append message of %d bytes to segments of %d: %w", m.Size(), w.opts.SegmentSize, ErrTooLarge)
	}
	if need > w.room() {
		if err := w.Roll(); err != nil {
			return wire.NoOffset, err
		}
	}
	if m.QueueOffset == NextQueueOffset {
		m.QueueOffset = 0
		switch m.SysFlag & commitlog.FlagTransactionMask {
		case commitlog.FlagTransactionPrepared, commitlog.FlagTransactionRollback:
		default:
			m.QueueOffset = w.queues[queueKey(m.Topic, m.QueueID)]
		}
	}
	w.scratch = AppendMessage(w.scratch[:0], *m, w.End())
	return w.End(), nil
}

// commit makes the record at at the last one.
func (w *Writer) commit(m *Message, at wire.PhyOffset) wire.PhyOffset {
	switch m.SysFlag & commitlog.FlagTransactionMask {
	case commitlog.FlagTransactionPrepared, commitlog.FlagTransactionRollback:
	default:
		w.queues[queueKey(m.Topic, m.QueueID)] = m.QueueOffset + 1
	}
	end := at.Add(wire.ByteSize(len(w.scratch)))
	w.end.Store(int64(end))
	return end
}

// room returns how much of the current segment is left.
func (w *Writer) room() wire.ByteSize {
	return w.seg.base.Add(w.opts.SegmentSize).Sub(w.End())
}

// Roll ends the segment with a BLANK and opens the next one, also where there is
// room left.
func (w *Writer) Roll() error {
	if w.seg == nil {
		return fmt.Errorf("roll segment: %w", os.ErrClosed)
	}
	room := w.room()
	rest := make([]byte, 0, commitlog.BlankSize)
	if w.opts.Garbage != nil {
		rest = make([]byte, room)
		for i := range rest {
			rest[i] = byte(w.opts.Garbage.Uint32())
		}
	}
	blank := AppendBlank(rest[:0], room)
	if w.opts.Garbage == nil {
		rest = blank
	}
	if err := w.seg.store(w.End(), rest); err != nil {
		return err
	}
	next := w.seg.base.Add(w.opts.SegmentSize)
	if err := w.seg.close(); err != nil {
		return err
	}
	w.end.Store(int64(next))
	return w.openAt(next)
}

// openAt opens the segment at base, and creates it and those ahead where missing.
func (w *Writer) openAt(base wire.PhyOffset) error {
	for i := 0; i <= w.opts.Ahead; i++ {
		at := base.Add(wire.ByteSize(i) * w.opts.SegmentSize)
		if err := createSegment(w.opts.CommitLogDir, at, w.opts.SegmentSize); err != nil {
			return err
		}
	}
	seg, err := openSegment(w.opts.CommitLogDir, base, w.opts.SegmentSize)
	if err != nil {
		return err
	}
	w.seg = seg
	return nil
}

// Sync writes the current segment to the disk, as a broker does now and then.
func (w *Writer) Sync() error {
	if w.seg == nil {
		return fmt.Errorf("sync segment: %w", os.ErrClosed)
	}
	return w.seg.sync()
}

// DropOldest deletes the first segment, as brokers do with expired ones, and
// returns the new Min. The one that is being written stays: ErrLastSegment.
func (w *Writer) DropOldest() (wire.PhyOffset, error) {
	first := w.Min()
	if w.seg == nil {
		return first, fmt.Errorf("drop segment: %w", os.ErrClosed)
	}
	if first >= w.seg.base {
		return first, fmt.Errorf("drop segment %s: %w", commitlog.Name(first), ErrLastSegment)
	}
	if err := os.Remove(segmentPath(w.opts.CommitLogDir, first)); err != nil {
		return first, fmt.Errorf("drop segment: %w", err)
	}
	next := first.Add(w.opts.SegmentSize)
	w.min.Store(int64(next))
	return next, nil
}

// Close ends the Writer as a broker that is shut down: everything synced, abort
// removed, lock released. Closing it again does nothing.
func (w *Writer) Close() error {
	var err error
	if w.seg != nil {
		err = w.seg.sync()
	}
	if w.lock != nil {
		err = errors.Join(err, removeAbort(w.opts.Dir))
	}
	return errors.Join(err, w.Abandon())
}

// Abandon ends the Writer as a broker that is killed: nothing more is written,
// abort stays, the lock is gone with the process.
func (w *Writer) Abandon() error {
	var err error
	if w.seg != nil {
		err = w.seg.close()
		w.seg = nil
	}
	if w.lock != nil {
		err = errors.Join(err, w.lock.Close())
		w.lock = nil
	}
	return err
}
