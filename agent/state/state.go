// Package state holds the words in which an agent says how it is: the states
// of the status page and of scripts, and the Problem that explains each state
// in which replication cannot go on.
//
// The words are a contract (scripts compare them), so they live in one place,
// below every room that can run into a problem.
package state

import (
	"errors"
	"fmt"
	"time"
)

// State is one word of the status: what an agent is doing, or what stops it.
type State string

// The working states, in the order in which a slave goes through them.
const (
	Starting   State = "starting"
	Searching  State = "searching"  // no master known
	Connecting State = "connecting" // a master is known, no stream yet
	CatchingUp State = "catching_up"
	Streaming  State = "streaming"
	Serving    State = "serving" // master side
	Observing  State = "observing"
	Stopping   State = "stopping"
)

// The stuck states. The agent stays up in all of them and goes on by itself
// when the cause is gone.
const (
	Gap            State = "gap"             // the source no longer has what is needed
	Diverged       State = "diverged"        // equal up to some message, different from there
	SourceReplaced State = "source_replaced" // the source is another log altogether
	SplitBrain     State = "split_brain"     // two masters claim the group
	Incompatible   State = "incompatible"    // a mode, size, name or directory that does not fit
	Unauthorized   State = "unauthorized"    // the peer refused us, or we its key
	ProtocolError  State = "protocol_error"  // the peer does not speak the protocol
	Disturbed      State = "disturbed"       // somebody else wrote into the replica
	Locked         State = "locked"          // another process holds the store
	NoSpace        State = "no_space"
	ReadOnly       State = "read_only"
	IOError        State = "io_error"
	Promoted       State = "promoted" // the replica was handed to a broker
)

// All returns every state, the working ones first.
func All() []State {
	return []State{
		Starting, Searching, Connecting, CatchingUp, Streaming, Serving, Observing, Stopping,
		Gap, Diverged, SourceReplaced, SplitBrain, Incompatible, Unauthorized, ProtocolError,
		Disturbed, Locked, NoSpace, ReadOnly, IOError, Promoted,
	}
}

// Ready reports whether a process in state s does its whole job, which is what
// readiness probes ask.
func (s State) Ready() bool { return s == Streaming || s == Serving || s == Observing }

// Stuck reports whether s is a state that an operator should look at.
func (s State) Stuck() bool {
	switch s {
	case Gap, Diverged, SourceReplaced, SplitBrain, Incompatible, Unauthorized, ProtocolError,
		Disturbed, Locked, NoSpace, ReadOnly, IOError, Promoted:
		return true
	}
	return false
}

// Problem is an error that names the state it leads to, a stable code, and what
// to do about it. It is what the status, the log and the exit code are made of.
type Problem struct {
	State  State
	Code   string // stable, lower_snake_case, unique over the product
	Reason string // what and where, one sentence without a full stop
	Try    string // the next step for the operator
	Err    error  // the cause, if there is one
}

// Problemf makes a Problem; format and args tell what is wrong and where.
func Problemf(s State, code, try string, err error, format string, args ...any) *Problem {
	return &Problem{State: s, Code: code, Reason: fmt.Sprintf(format, args...), Try: try, Err: err}
}

// Error returns code, reason and cause in one line.
func (p *Problem) Error() string {
	if p.Err != nil {
		return fmt.Sprintf("%s: %s: %v", p.Code, p.Reason, p.Err)
	}
	return p.Code + ": " + p.Reason
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// AsProblem returns the Problem in err's chain, or nil.
func AsProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return nil
}

// RetryAfter returns how long to wait before the next attempt when s is what
// the last one ended in; 0 leaves it to the caller's back-off. States that only
// a person changes are looked at a few times a minute, so that neither the peer
// nor the log is flooded.
func (s State) RetryAfter() time.Duration {
	switch s {
	case Diverged, SourceReplaced, Promoted:
		return 15 * time.Second
	case Incompatible, Unauthorized, Gap, SplitBrain:
		return 5 * time.Second
	}
	return 0
}
