package replica

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// Problem names the state that a failed operation on the replica leads to.
// It returns nil for nil and err itself where it is a Problem already.
func Problem(dir string, err error) error {
	if err == nil || state.AsProblem(err) != nil || errors.Is(err, context.Canceled) {
		return err
	}
	resync := "haagent resync --dir " + dir + " sets the old log aside and copies the source's anew; keep it if it is the side that should win"
	var foreign *commitlog.ForeignFileError
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return state.Problemf(state.NoSpace, "no_space", "free space on the file system of "+dir+"; replication goes on by itself", err, "the replica's file system is full")
	case errors.Is(err, unix.EROFS):
		return state.Problemf(state.ReadOnly, "read_only", "remount the file system of "+dir+" read-write; replication goes on by itself", err, "the replica's file system is read-only")
	case errors.Is(err, ErrLocked):
		return state.Problemf(state.Locked, "locked", "stop the broker or agent that runs on "+dir+" (fuser "+dir+"/lock names it)", err, "the store is in use")
	case errors.Is(err, ErrPromoted):
		return state.Problemf(state.Promoted, "promoted", "start the broker on it, and no slave agent; only if it is to be a replica again: haagent resync --dir "+dir, err, "the replica was handed to a broker")
	case errors.Is(err, ErrBrokerWrote):
		return state.Problemf(state.Disturbed, "broker_wrote", resync, err, "two histories may exist, and nobody has said which one wins")
	case errors.Is(err, ErrDisturbed):
		return state.Problemf(state.Disturbed, "disturbed", "stop whatever else works on "+dir+"; the replica is checked from disk and goes on by itself", err, "somebody else changed the replica")
	case errors.Is(err, ErrForeignStore):
		return state.Problemf(state.Incompatible, "foreign_store", "give an empty directory, or let this log be set aside: haagent resync --dir "+dir, err, "a broker's own log lies there")
	case errors.Is(err, ErrNotStore):
		return state.Problemf(state.Incompatible, "not_a_store", "give an empty directory or a RocketMQ store root (storePathRootDir) as --dir", err, "%s holds other things than a store", dir)
	case errors.As(err, &foreign):
		return state.Problemf(state.Incompatible, "foreign_file", "move "+foreign.Path+" elsewhere: no broker boots with it there", err, "a foreign file lies in the commit log directory")
	case errors.Is(err, ErrSegmentSize):
		return state.Problemf(state.Incompatible, "segment_size", "give the source's mappedFileSizeCommitLog as --segment-size, or another --dir", err, "the segments have another size")
	case errors.Is(err, os.ErrPermission):
		return state.Problemf(state.IOError, "permission", "let the user of haagent write to "+dir, err, "the store must be writable")
	}
	return state.Problemf(state.IOError, "io_error", "look at the kernel log and at the disk of "+dir+"; what could not be synced is written anew", err, "the replica cannot be written")
}

// MustReopen reports whether a store can only be used again after err once it
// has been opened anew, which checks it from disk.
func MustReopen(err error) bool {
	p := state.AsProblem(err)
	return p != nil && (p.State == state.Disturbed || p.State == state.IOError || errors.Is(p.Err, ErrFlush))
}

// Parted is a source that holds other bytes than the replica, which are known to be
// equal before.
type Parted struct{ PhyOffset wire.PhyOffset }

// Error implements error.
func (e *Parted) Error() string {
	return fmt.Sprintf("the first byte that differs is at offset %d", e.PhyOffset)
}

// PartedAt returns where a source is known to hold other bytes than the replica, from
// the error that its follower ended with.
func PartedAt(err error) (at wire.PhyOffset, ok bool) {
	var parted *Parted
	if errors.As(err, &parted) {
		return parted.PhyOffset, true
	}
	return 0, false
}

// Behind is the Problem of a source that ends before its replica.
func Behind(source, own wire.PhyOffset) error {
	return state.Problemf(state.Diverged, "source_behind", "decide which side wins: promote the replica, or haagent resync to copy the source anew; a source that recovers its tail is followed by itself", nil,
		"the source ends at %d, the replica already at %d: the source lost its tail, or is another log", source, own)
}

// HistoryGone is the Problem of a source that begins behind its replica's end.
func HistoryGone(sourceMin, own wire.PhyOffset) error {
	return state.Problemf(state.Gap, "history_gone", "haagent resync starts anew from the source's oldest segment; what the replica holds is set aside", nil,
		"the source's log starts at %d and the replica ends at %d: [%d, %d) is gone from the source", sourceMin, own, own, sourceMin)
}

// SourceProblem names the state that bytes of a source lead to which cannot be
// part of a log. It returns nil for every other error.
func SourceProblem(err error) *state.Problem {
	var corrupt *commitlog.CorruptError
	switch {
	case errors.Is(err, commitlog.ErrBlankMismatch):
		return state.Problemf(state.Incompatible, "segment_size", "give the source's mappedFileSizeCommitLog as --segment-size", err, "the source's segments have another size")
	case errors.As(err, &corrupt):
		return state.Problemf(state.ProtocolError, "corrupt_message", "run haagent verify on the source's store: what it sends there is not a message; nothing behind it is acked", err, "the source sent bytes that are no message at %d", corrupt.PhyOffset)
	}
	return nil
}
