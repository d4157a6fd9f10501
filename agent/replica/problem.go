package replica

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/state"
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
		return state.Problemf(state.Promoted, "promoted", resync, err, "the replica was handed to a broker")
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
