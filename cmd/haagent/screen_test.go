//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// While catching up a terminal shows bytes, rate and time left; log lines go
// above, and the bar is gone once the replica streams.
func TestScreen_ShowsProgressWhileCatchingUp(t *testing.T) {
	var out output
	s := &screen{out: &out, terminal: true}
	status := control.Status{State: state.CatchingUp, BytesPerSecond: float64(20 * wire.MiB), LagBytes: int64(200 * wire.MiB),
		Offsets: control.Offsets{Verified: wire.PhyOffset(100 * wire.MiB), Source: wire.PhyOffset(300 * wire.MiB)}}
	waitFor(t, "the bar", func() (string, bool) {
		s.showBar(status)
		return out.String(), strings.Contains(out.String(), "100 MiB of 300 MiB  20 MiB/s  10s left")
	})
	if _, err := s.Write([]byte("a log line\n")); err != nil {
		t.Fatal(err)
	}
	status.State = state.Streaming
	s.showBar(status)
	if s.progress != nil {
		t.Error("the bar is still there")
	}
	before := out.String()
	if _, err := s.Write([]byte("a line below\n")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(before, "a log line\n") || out.String() != before+"a line below\n" {
		t.Errorf("the screen has %q", out.String())
	}
}
