//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/wire"
)

// TestDemoWaits_Judge holds each answer against what may be answered: a PUT_OK
// that no slave stands for is worse than no answer at all.
func TestDemoWaits_Judge(t *testing.T) {
	t.Parallel()
	const end = 1000
	for _, c := range []struct {
		name   string
		phase  demoPhase
		acks   int
		result acks.Result // "" for an error
		holds  int         // slaves
		moves  bool        // the phase changes meanwhile
		ok     int
		late   int
		counts int // latencies
		code   int // of the fault
	}{
		{name: "both hold it", phase: demoTogether, acks: 2, result: acks.PutOK, holds: 2, ok: 1, counts: 1},
		{name: "one holds it", phase: demoTogether, acks: 1, result: acks.PutOK, holds: 1, ok: 1, counts: 1},
		{name: "one while the other is away", phase: demoAway, acks: 1, result: acks.PutOK, holds: 1, ok: 1, counts: 1},
		{name: "both, and one leaves", phase: demoTogether, acks: 2, result: acks.PutOK, holds: 2, moves: true, ok: 1},
		{name: "late, and one leaves", phase: demoTogether, acks: 2, result: acks.FlushSlaveTimeout, moves: true, late: 1},
		{name: "late while one is away", phase: demoAway, acks: 2, result: acks.FlushSlaveTimeout, late: 1},
		{name: "late while one catches up", phase: demoChanging, acks: 2, result: acks.FlushSlaveTimeout, late: 1},
		{name: "came back in time", phase: demoAway, acks: 2, result: acks.PutOK, holds: 2, moves: true, ok: 1},
		{name: "a lie about one", phase: demoTogether, acks: 1, result: acks.PutOK, holds: 0, code: exitDifferent},
		{name: "a lie about both", phase: demoTogether, acks: 2, result: acks.PutOK, holds: 1, code: exitDifferent},
		{name: "a lie about who is away", phase: demoAway, acks: 2, result: acks.PutOK, holds: 2, code: exitDifferent},
		{name: "late with both there", phase: demoTogether, acks: 2, result: acks.FlushSlaveTimeout, code: exitNotConnected},
		{name: "late with one there", phase: demoAway, acks: 1, result: acks.FlushSlaveTimeout, code: exitNotConnected},
		{name: "nobody there", phase: demoAway, acks: 2, result: acks.SlaveNotAvailable, code: exitNotConnected},
		{name: "no answer", phase: demoAway, acks: 2, code: exitNotConnected},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var w *demoWaits
			agentDir := serveWaits(t, func(context.Context, control.WaitRequest) (control.WaitAnswer, error) {
				if c.moves {
					w.move(demoChanging)
				}
				if c.result == "" {
					return control.WaitAnswer{}, errors.New("out of order")
				}
				return control.WaitAnswer{Result: c.result}, nil
			})
			w = &demoWaits{client: control.DialSocket(agentDir), short: time.Second, holds: func(at wire.PhyOffset) int {
				if at != end {
					t.Errorf("asked who holds %d", at)
				}
				return c.holds
			}}
			w.move(c.phase)
			w.ask(t.Context(), c.acks, end, c.phase, w.turn, time.Now())
			tally, fault := w.result()
			got := tally[c.acks-1]
			if got.ok != c.ok || got.late != c.late || len(got.took) != c.counts || (got.wrong > 0) != (c.code != 0) {
				t.Errorf("tally %+v", got)
			}
			if c.code != 0 {
				if code, _ := explain(fault); code != c.code {
					t.Errorf("code %d, not %d: %v", code, c.code, fault)
				}
			} else if fault != nil {
				t.Error(fault)
			}
		})
	}
}

// No more than demoWaiters of a kind wait at once, nobody before there is anybody
// to wait for, and all end with the demo without being counted.
func TestDemoWaits_Bounded(t *testing.T) {
	t.Parallel()
	agentDir := serveWaits(t, func(ctx context.Context, _ control.WaitRequest) (control.WaitAnswer, error) {
		<-ctx.Done()
		return control.WaitAnswer{}, ctx.Err()
	})
	w := &demoWaits{client: control.DialSocket(agentDir), short: time.Minute, holds: func(wire.PhyOffset) int { return 2 }}
	ctx, cancel := context.WithCancel(t.Context())
	w.begin(ctx, 1)
	if tally, _ := w.result(); tally[0].waiting+tally[1].waiting != 0 {
		t.Fatalf("somebody waits for nobody: %+v", tally)
	}
	w.move(demoTogether)
	for i := range wire.PhyOffset(2 * demoWaiters) {
		w.begin(ctx, i)
	}
	if tally, _ := w.result(); tally[0].waiting != demoWaiters || tally[1].waiting != demoWaiters {
		t.Errorf("%d and %d wait", tally[0].waiting, tally[1].waiting)
	}
	cancel()
	w.drain()
	if tally, fault := w.result(); fault != nil || tally[0].waiting+tally[1].waiting != 0 {
		t.Errorf("%+v, %v", tally, fault)
	}
}

// serveWaits answers waits as an agent does, on the socket in the directory that
// it returns.
func serveWaits(t *testing.T, wait func(context.Context, control.WaitRequest) (control.WaitAnswer, error)) string {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- control.Handlers{Status: func() control.Status { return control.Status{} }, Wait: wait}.ServeSocket(ctx, dir)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "the socket", func() (string, bool) {
		_, err := control.DialSocket(dir).Status(t.Context())
		return "", err == nil
	})
	return dir
}

// TestDemoView_FitsTerminals draws the largest figures there can be.
func TestDemoView_FitsTerminals(t *testing.T) {
	t.Parallel()
	const much = wire.PhyOffset(999*wire.GiB + 900*wire.MiB)
	tally := demoTally{ok: 999_999, late: 9999, took: []time.Duration{99999 * time.Microsecond, 999990 * time.Microsecond, 5 * time.Second}}
	v := demoView{elapsed: 23 * time.Hour, duration: time.Minute, written: much, speed: wire.ByteSize(much), waits: [2]demoTally{tally, tally},
		slaves: []demoSlaveView{{"slave-1", "source_replaced", 0, much}, {"slave-2", "catching_up", much, wire.NoOffset}}}
	for _, line := range v.block(false) {
		if n := len([]rune(line)); n >= 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	plain, colours := strings.Join(v.block(false), "\n"), strings.Join(v.block(true), "\n")
	if strings.Contains(plain, "\x1b") || strings.Count(colours, "\x1b[") != 4 {
		t.Errorf("plain %q\ncoloured %q", plain, colours)
	}
}

// TestScreen_RewritesLines: lines are drawn over each other, and what is logged
// stays above them.
func TestScreen_RewritesLines(t *testing.T) {
	t.Parallel()
	var out output
	s := &screen{out: &out, terminal: true}
	s.rewrite("one", "two", "three")
	if _, err := s.Write([]byte("a log line\n")); err != nil {
		t.Fatal(err)
	}
	s.rewrite("four")
	s.settle()
	s.settle()
	if _, err := s.Write([]byte("below\n")); err != nil {
		t.Fatal(err)
	}
	block := "\x1b[?7lone \ntwo \nthree \x1b[?7h"
	want := block + "\r\x1b[A\x1b[A\x1b[Ja log line\n" + block + "\r\x1b[A\x1b[A\x1b[J\x1b[?7lfour \x1b[?7h\nbelow\n"
	if out.String() != want {
		t.Errorf("wrote\n%q, not\n%q", out.String(), want)
	}
	var file output
	s = &screen{out: &file}
	s.rewrite("one", "two")
	s.settle()
	if file.String() != "one\ntwo\n" {
		t.Errorf("a file has %q", file.String())
	}
}
