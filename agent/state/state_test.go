package state_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/haagent/haagent/agent/state"
)

// I9: no state is both ready and stuck, and every stuck state that only a
// person changes waits between its attempts.
func TestI9_StatesReadyOrStuck(t *testing.T) {
	table := []struct {
		state        state.State
		ready, stuck bool
	}{
		{state.Starting, false, false}, {state.Searching, false, false}, {state.Connecting, false, false},
		{state.CatchingUp, false, false}, {state.Streaming, true, false}, {state.Serving, true, false},
		{state.Observing, true, false}, {state.Stopping, false, false},
		{state.Gap, false, true}, {state.Diverged, false, true}, {state.SourceReplaced, false, true},
		{state.SplitBrain, false, true}, {state.Incompatible, false, true}, {state.Unauthorized, false, true},
		{state.ProtocolError, false, true}, {state.Disturbed, false, true}, {state.Locked, false, true},
		{state.NoSpace, false, true}, {state.ReadOnly, false, true}, {state.IOError, false, true}, {state.Promoted, false, true},
	}
	if all := state.All(); len(all) != len(table) {
		t.Errorf("%d states are told, %d are known here", len(all), len(table))
	}
	for i, c := range table {
		if state.All()[i] != c.state {
			t.Errorf("state %d is %s, not %s", i, state.All()[i], c.state)
		}
		if c.state.Ready() != c.ready || c.state.Stuck() != c.stuck {
			t.Errorf("%s: ready %v, stuck %v", c.state, c.state.Ready(), c.state.Stuck())
		}
		if c.state.RetryAfter() > 0 && !c.stuck {
			t.Errorf("%s waits %s though it is not stuck", c.state, c.state.RetryAfter())
		}
	}
}

func TestProblem_KeepsItsCause(t *testing.T) {
	p := &state.Problem{State: state.IOError, Code: "io_error", Reason: "the disk", Err: io.ErrUnexpectedEOF}
	err := fmt.Errorf("append: %w", p)
	if state.AsProblem(err) != p || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v lost its problem or its cause", err)
	}
	if got, want := p.Error(), "io_error: the disk: unexpected EOF"; got != want {
		t.Errorf("it says %q, not %q", got, want)
	}
	if state.AsProblem(io.EOF) != nil {
		t.Error("a plain error is a problem")
	}
}
