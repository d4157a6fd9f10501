package link

import (
	"errors"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	wirelink "github.com/haagent/haagent/wire/link"
)

// problemOf names the state that an error towards a master leads to. Plain
// errors of a connection are no Problem: they are tried again.
func problemOf(addr string, err error) error {
	if err == nil || state.AsProblem(err) != nil {
		return err
	}
	var refused *RefusedError
	var bye *goodbye
	switch {
	case errors.As(err, &refused):
		return refusedProblem(addr, refused)
	case errors.As(err, &bye) && bye.code == wirelink.CodeProtocol, errors.Is(err, wirelink.ErrFrame), errors.Is(err, wirelink.ErrChecksum):
		return state.Problemf(state.ProtocolError, "bad_frame", "use the same version of haagent on both sides, and look for what changes bytes on the way", err, "%s does not speak the link protocol", addr)
	}
	if p := replica.SourceProblem(err); p != nil {
		return p
	}
	return err
}

// damaged reports whether a connection ended because bytes failed their checks.
func damaged(err error) bool {
	var corrupt *commitlog.CorruptError
	return errors.Is(err, wirelink.ErrChecksum) || errors.As(err, &corrupt)
}

// refusedProblem names the state that a master's refusal leads to. What passes by
// itself (a master that stops, or is not ready) is no Problem.
func refusedProblem(addr string, r *RefusedError) error {
	switch r.Code {
	case wirelink.CodeWrongCluster:
		return state.Problemf(state.Incompatible, "wrong_cluster", "give the right --cluster, or another --dir", r, "%s serves another cluster", addr)
	case wirelink.CodeWrongBroker:
		return state.Problemf(state.Incompatible, "wrong_broker", "give the right --broker-name, or another --dir", r, "%s does not serve this replica's group", addr)
	case wirelink.CodeSegmentSize:
		return state.Problemf(state.Incompatible, "segment_size", "give the source's mappedFileSizeCommitLog as --segment-size, or another --dir", r, "%s has segments of another size", addr)
	case wirelink.CodeGap:
		return state.Problemf(state.Gap, "history_gone", "haagent resync starts anew from the source's oldest segment; what the replica holds is set aside", r, "%s no longer has what the replica needs next", addr)
	case wirelink.CodeStaleEpoch:
		return staleEpoch(addr, r.Text)
	case wirelink.CodeSuperseded:
		return state.Problemf(state.Incompatible, "node_name_taken", "give each agent a --node of its own (the default is made of host, --broker-name and --broker-id)", r, "another agent follows %s under our name", addr)
	case wirelink.CodeProtocol, wirelink.CodeVersion:
		return state.Problemf(state.ProtocolError, "refused", "use the same version of haagent on both sides", r, "%s does not take what we send", addr)
	}
	return r
}

// staleEpoch is the Problem of a master that was replaced by a promotion.
func staleEpoch(addr, why string) error {
	return state.Problemf(state.SplitBrain, "stale_epoch", "stop the old master at "+addr+", or resync it as a slave of the promoted one", nil,
		"the master was replaced by a promoted replica and does not know it: %s", why)
}
