package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
)

// talk is a condition whose clock is moved by hand, and what it logs.
type talk struct {
	*condition
	log bytes.Buffer
	at  time.Time
}

func newTalk() *talk {
	t := &talk{at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	t.condition = &condition{log: slog.New(slog.NewTextHandler(&t.log, &slog.HandlerOptions{ReplaceAttr: plain})),
		now: func() time.Time { return t.at }, counts: control.NewCounts()}
	return t
}

// said returns what was logged since the last call.
func (t *talk) said() string {
	defer t.log.Reset()
	return t.log.String()
}

// A slave that starts before its master has nothing to complain of: it says so once,
// again when it has another reason, and warns where it lasts.
func TestCondition_SearchIsQuiet(t *testing.T) {
	c := newTalk()
	none := &errSearching{"no master of any group is known"}
	c.set(state.Searching, none)
	if got := c.said(); got != "level=INFO msg=\"no master of any group is known\" state=searching\n" {
		t.Errorf("said %q", got)
	}
	for range 299 {
		c.at = c.at.Add(time.Second)
		c.set(state.Searching, &errSearching{none.why})
		if got := c.said(); got != "" {
			t.Fatalf("said %q", got)
		}
	}
	c.at = c.at.Add(time.Second)
	c.set(state.Searching, none)
	if got := c.said(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "repeated=299") {
		t.Errorf("after five minutes: %q", got)
	}
	c.set(state.Searching, &errSearching{"masters of several groups are known"})
	if got := c.said(); !strings.Contains(got, "several groups") {
		t.Errorf("another reason: %q", got)
	}
	c.set(state.Searching, fmt.Errorf("no master is known: %s", tryGiveMaster))
	if got := c.said(); !strings.Contains(got, "level=WARN") {
		t.Errorf("somebody has to do something: %q", got)
	}
}

// Who has lost the master that was followed hears of it.
func TestCondition_LostMasterIsWarnedOf(t *testing.T) {
	c := newTalk()
	c.set(state.Streaming, nil)
	c.set(state.Connecting, errors.New("connection reset"))
	c.said()
	c.set(state.Searching, &errSearching{"no master of c1/b1 is known"})
	if got := c.said(); !strings.Contains(got, "level=WARN") {
		t.Errorf("said %q", got)
	}
}

// Other trouble is repeated every half minute, and what is only waited for is none.
func TestCondition_TroubleIsRepeated(t *testing.T) {
	c := newTalk()
	c.set(state.Connecting, waiting("asking the broker"))
	if got := c.said(); !strings.Contains(got, "level=INFO") {
		t.Errorf("said %q", got)
	}
	c.at = c.at.Add(time.Minute)
	full := &state.Problem{State: state.NoSpace, Code: "no_space", Reason: "full", Try: "free space"}
	lines := 0
	for range 61 {
		c.set(full.State, full)
		lines += strings.Count(c.said(), "level=ERROR")
		c.at = c.at.Add(time.Second)
	}
	if lines != 3 {
		t.Errorf("%d lines in a minute", lines)
	}
}
