package control_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

func TestLine(t *testing.T) {
	replica := func(s state.State) control.Replica { return control.Replica{State: s} }
	for want, s := range map[string]control.Status{
		"streaming, 0 B behind":                       {State: state.Streaming},
		"streaming, 12 MiB behind (3 s)":              {State: state.Streaming, LagBytes: 12 << 20, LagSeconds: 3.2},
		"catching_up, 1.0 GiB behind (7200 s)":        {State: state.CatchingUp, LagBytes: 1 << 30, LagSeconds: 7200},
		"catching_up, the source's end is not known":  {State: state.CatchingUp, Offsets: control.Offsets{Source: wire.NoOffset}},
		"serving, 0 of 0 replicas in sync":            {State: state.Serving},
		"serving, 1 of 2 replicas in sync":            {State: state.Serving, Replicas: []control.Replica{replica(state.Streaming), replica(state.CatchingUp)}},
		"serving, 1 of 1 replica in sync: no broker":  {State: state.Serving, Replicas: []control.Replica{replica(state.Streaming)}, Reason: "no broker"},
		"observing, 2 members":                        {State: state.Observing, Members: make([]control.Member, 2)},
		"searching: no master of a/b is known":        {State: state.Searching, Reason: "no master of a/b is known"},
		"no_space: the file system is full":           {State: state.NoSpace, Code: "no_space", Reason: "no_space: the file system is full"},
		"promoted":                                    {State: state.Promoted},
		"gap (history_gone): it is gone":              {State: state.Gap, Code: "history_gone", Reason: "history_gone: it is gone"},
		"connecting: two lines  and \"one\" bell and": {State: state.Connecting, Reason: "two lines\r\nand \"one\"\abell and \xff\x1b"},
	} {
		if got := s.Line(); got != want {
			t.Errorf("%s: line %q, want %q", s.State, got, want)
		}
	}
}

// Whatever stands in a status, the line is one, short and printable.
func TestLine_IsOneLine(t *testing.T) {
	states := []state.State{state.Starting, state.Searching, state.Streaming, state.Serving, state.Diverged, "x\ny"}
	rapid.Check(t, func(t *rapid.T) {
		s := control.Status{State: rapid.SampledFrom(states).Draw(t, "state"), Code: rapid.String().Draw(t, "code"),
			Reason: string(rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "reason")), LagBytes: rapid.Int64().Draw(t, "lag"), LagSeconds: rapid.Float64().Draw(t, "seconds")}
		line := s.Line()
		if len(line) > 200 || !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) {
			t.Fatalf("line %q of %d bytes", line, len(line))
		}
	})
}
