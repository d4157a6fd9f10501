package stock

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire/ha"
	"github.com/haagent/haagent/wire/remoting"
)

// problem makes the Problem of a state; format and args tell what and where.
func problem(s state.State, code, try string, err error, format string, args ...any) *state.Problem {
	return &state.Problem{State: s, Code: code, Reason: fmt.Sprintf(format, args...), Try: try, Err: err}
}

// StoreProblem names the state that a failed operation on the replica leads to.
// It returns nil for nil and err itself where it is a Problem already.
func StoreProblem(dir string, err error) error {
	if err == nil || state.AsProblem(err) != nil || errors.Is(err, context.Canceled) {
		return err
	}
	resync := "haagent resync --dir " + dir + " sets the old log aside and copies the source's anew; keep it if it is the side that should win"
	var foreign *commitlog.ForeignFileError
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return problem(state.NoSpace, "no_space", "free space on the file system of "+dir+"; replication goes on by itself", err, "the replica's file system is full")
	case errors.Is(err, unix.EROFS):
		return problem(state.ReadOnly, "read_only", "remount the file system of "+dir+" read-write; replication goes on by itself", err, "the replica's file system is read-only")
	case errors.Is(err, replica.ErrLocked):
		return problem(state.Locked, "locked", "stop the broker or agent that runs on "+dir+" (fuser "+dir+"/lock names it)", err, "the store is in use")
	case errors.Is(err, replica.ErrPromoted):
		return problem(state.Promoted, "promoted", resync, err, "the replica was handed to a broker")
	case errors.Is(err, replica.ErrBrokerWrote):
		return problem(state.Disturbed, "broker_wrote", resync, err, "two histories may exist, and nobody has said which one wins")
	case errors.Is(err, replica.ErrDisturbed):
		return problem(state.Disturbed, "disturbed", "stop whatever else works on "+dir+"; the replica is checked from disk and goes on by itself", err, "somebody else changed the replica")
	case errors.Is(err, replica.ErrForeignStore):
		return problem(state.Incompatible, "foreign_store", "give an empty directory, or let this log be set aside: haagent resync --dir "+dir, err, "a broker's own log lies there")
	case errors.Is(err, replica.ErrNotStore):
		return problem(state.Incompatible, "not_a_store", "give an empty directory or a RocketMQ store root (storePathRootDir) as --dir", err, "%s holds other things than a store", dir)
	case errors.As(err, &foreign):
		return problem(state.Incompatible, "foreign_file", "move "+foreign.Path+" elsewhere: no broker boots with it there", err, "a foreign file lies in the commit log directory")
	case errors.Is(err, replica.ErrSegmentSize):
		return problem(state.Incompatible, "segment_size", "give the source's mappedFileSizeCommitLog as --segment-size, or another --dir", err, "the segments have another size")
	case errors.Is(err, os.ErrPermission):
		return problem(state.IOError, "permission", "let the user of haagent write to "+dir, err, "the store must be writable")
	}
	return problem(state.IOError, "io_error", "look at the kernel log and at the disk of "+dir+"; what could not be synced is written anew", err, "the replica cannot be written")
}

// streamProblem names the state that an error while reading a source's stream
// leads to. Plain connection errors are no Problem: they are tried again.
func streamProblem(addr string, err error) error {
	if err == nil || state.AsProblem(err) != nil {
		return err
	}
	var corrupt *commitlog.CorruptError
	switch {
	case errors.Is(err, ha.ErrFrame):
		return problem(state.ProtocolError, "bad_frame", "check that "+addr+" is the HA port (haListenPort, default listenPort+1) of a broker that is not in controller mode", err, "%s does not speak the stock HA protocol", addr)
	case errors.Is(err, commitlog.ErrBlankMismatch):
		return problem(state.Incompatible, "segment_size", "give the source's mappedFileSizeCommitLog as --segment-size", err, "the source's segments have another size")
	case errors.As(err, &corrupt):
		return problem(state.ProtocolError, "corrupt_message", "run haagent verify on the source's store: what it sends there is not a message; nothing behind it is acked", err, "the source sent bytes that are no message at %d", corrupt.PhyOffset)
	}
	return err
}

// brokerProblem names the state that a refused or garbled request leads to.
func brokerProblem(addr string, err error) error {
	if err == nil || state.AsProblem(err) != nil {
		return err
	}
	switch {
	case errors.Is(err, ErrUnauthorized):
		return problem(state.Unauthorized, "broker_acl", "give --broker-acl-file with an accessKey that may read, or add this host to the globalWhiteRemoteAddresses of plain_acl.yml", err, "the broker at %s refuses us", addr)
	case errors.Is(err, remoting.ErrFrame), errors.Is(err, remoting.ErrTooLarge):
		return problem(state.ProtocolError, "not_remoting", "give the broker's listenPort (default 10911) as --master", err, "%s does not answer as a broker", addr)
	}
	return err
}
