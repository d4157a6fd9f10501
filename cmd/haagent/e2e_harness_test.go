//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

const (
	// patience bounds every wait; a busy machine with a few JVMs is slow.
	patience = 60 * time.Second
	// lookInterval is the pause between two looks at something that changes.
	lookInterval = 50 * time.Millisecond
	// endPatience is how long SIGTERM may take.
	endPatience = 5 * time.Second
)

// haagent is a running agent process.
type haagent struct {
	t    *testing.T
	cmd  *exec.Cmd
	dir  string
	http string // where the status is served
	log  output // its stderr
	done chan struct{}
	code int // valid when done is closed
}

// output is what a process writes; it may be read meanwhile.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// self returns a command that runs this test binary as haagent.
func self(binary string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{runMainVariable + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"GORACE=atexit_sleep_ms=0"} // a process that ends is not held up for a second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func testBinary(t *testing.T) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// startAgent starts a slave agent on dir and waits until its status can be
// asked for. It is killed when the test ends.
func startAgent(t *testing.T, dir string, args ...string) *haagent {
	t.Helper()
	return startAgentOf(t, testBinary(t), dir, args...)
}

var statusPage = regexp.MustCompile(`http=http://(\S+)/v1/status`)

func startAgentOf(t *testing.T, binary, dir string, args ...string) *haagent {
	t.Helper()
	return startProcess(t, binary, dir, append([]string{"--role", "slave", "--dir", dir, "--http", "127.0.0.1:0", "--metadata-interval", "1s"}, args...)...)
}

// startProcess starts an agent on dir with these very arguments.
func startProcess(t *testing.T, binary, dir string, args ...string) *haagent {
	t.Helper()
	a := &haagent{t: t, cmd: self(binary, args...), dir: dir, done: make(chan struct{})}
	a.cmd.Stderr = &a.log
	if err := a.cmd.Start(); err != nil {
		t.Fatalf("start haagent: %v", err)
	}
	go func() {
		defer close(a.done)
		err := a.cmd.Wait()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			fmt.Fprintln(&a.log, "wait for haagent:", err)
		}
		a.code = a.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		a.kill()
		if strings.Contains(a.log.String(), "DATA RACE") || t.Failed() {
			t.Errorf("haagent %s said:\n%s", dir, a.log.String())
		}
	})
	waitFor(t, "the status page of "+dir, func() (string, bool) {
		if m := statusPage.FindStringSubmatch(a.log.String()); m != nil {
			a.http = m[1]
			return "", true
		}
		if a.ended() {
			t.Fatalf("haagent ended with %d:\n%s", a.code, a.log.String())
		}
		return "not in its log", false
	})
	return a
}

func (a *haagent) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// kill ends the agent with SIGKILL and waits for it.
func (a *haagent) kill() {
	a.t.Helper()
	a.signal(syscall.SIGKILL)
	<-a.done
}

// term ends the agent with SIGTERM, which must take no longer than 5 s and lead
// to exit code 0.
func (a *haagent) term() {
	a.t.Helper()
	a.signal(syscall.SIGTERM)
	if code := a.exitWithin(endPatience); code != exitOK {
		a.t.Errorf("SIGTERM ended with exit code %d", code)
	}
}

func (a *haagent) signal(s syscall.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		a.t.Errorf("signal haagent: %v", err)
	}
}

// exitWithin waits for the agent to end and returns its exit code.
func (a *haagent) exitWithin(d time.Duration) int {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), d)
	defer cancel()
	select {
	case <-a.done:
		return a.code
	case <-ctx.Done():
		a.t.Fatalf("haagent did not end within %v:\n%s", d, a.log.String())
		return -1
	}
}

// status asks the agent, which must answer.
func (a *haagent) status() control.Status {
	a.t.Helper()
	s, err := control.Dial(a.http).Status(a.t.Context())
	if err != nil {
		a.t.Fatalf("%v; its log:\n%s", err, a.log.String())
	}
	return s
}

// waitState waits until the agent is in a state and returns its status then.
func (a *haagent) waitState(want state.State) control.Status {
	a.t.Helper()
	return a.waitStatus("state "+string(want), func(s control.Status) bool { return s.State == want })
}

// waitCode waits until the agent is stuck with a code. The status and the log
// must tell the next step.
func (a *haagent) waitCode(want state.State, code string) control.Status {
	a.t.Helper()
	s := a.waitStatus("code "+code, func(s control.Status) bool { return s.State == want && s.Code == code })
	if s.Try == "" || s.Reason == "" {
		a.t.Errorf("code %s comes without a reason or a next step: %+v", code, s)
	}
	// What the process has logged by now may still be on its way here.
	waitFor(a.t, "code "+code+" and the next step in the log", func() (string, bool) {
		text := a.log.String()
		return text, strings.Contains(text, "code="+code) && strings.Contains(text, "Try: ")
	})
	return s
}

func (a *haagent) waitStatus(what string, is func(control.Status) bool) control.Status {
	a.t.Helper()
	var s control.Status
	waitFor(a.t, what, func() (string, bool) {
		if a.ended() {
			a.t.Fatalf("haagent ended with %d while waiting for %s:\n%s", a.code, what, a.log.String())
		}
		s = a.status()
		return fmt.Sprintf("%+v", s), is(s)
	})
	return s
}

// waitFor looks again and again until is says yes, and fails the test with what
// it last saw where that takes too long.
func waitFor(t *testing.T, what string, is func() (seen string, ok bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		seen, ok := is()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s, last seen: %s", patience, what, seen)
		case <-tick.C:
		}
	}
}

// haagentCommand runs a command of haagent to its end.
func haagentCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return finish(t, self(testBinary(t), args...))
}

func finish(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, talk output
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %v: %v", cmd.Args, err)
	}
	timer := time.AfterFunc(patience, func() {
		if err := cmd.Process.Kill(); err != nil {
			fmt.Fprintln(&talk, "kill:", err)
		}
	})
	err := cmd.Wait()
	if !timer.Stop() {
		t.Errorf("%v did not end within %v", cmd.Args, patience)
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

var promotedLine = regexp.MustCompile(`goes from (\d+) to (\d+), epoch (\d+)`)

// promote hands the agent's replica over: promote ends with 0, and so does the
// agent. It returns the end of the log that is promised.
func (a *haagent) promote() wire.PhyOffset {
	a.t.Helper()
	stdout, stderr, code := haagentCommand(a.t, "promote", "--dir", a.dir, "--yes")
	if code != exitOK {
		a.t.Fatalf("promote ended with %d: %s%s", code, stdout, stderr)
	}
	if code := a.exitWithin(endPatience); code != exitOK {
		a.t.Errorf("the promoted agent ended with %d:\n%s", code, a.log.String())
	}
	var from, to, epoch int64
	m := promotedLine.FindString(stdout)
	if _, err := fmt.Sscanf(m, "goes from %d to %d, epoch %d", &from, &to, &epoch); err != nil {
		a.t.Fatalf("promote said %q: %v", stdout, err)
	}
	return wire.PhyOffset(to)
}

// caughtUp waits until the replica has all that the broker has. Nothing may be
// sent meanwhile.
func (a *haagent) caughtUp(b *brokertest.Broker) wire.PhyOffset {
	a.t.Helper()
	end := brokerEnd(a.t, b)
	a.waitStatus("everything up to "+end.String(), func(s control.Status) bool {
		return s.State == state.Streaming && s.Offsets.Verified >= end
	})
	return end
}

// brokerEnd returns the end of a broker's log in its own words.
func brokerEnd(t *testing.T, b *brokertest.Broker) wire.PhyOffset {
	t.Helper()
	client := stock.NewBroker(b.Addr(), stock.BrokerOptions{Timeout: patience}) // 5.3.3 takes its time on a busy machine
	defer client.Close()
	var info stock.RuntimeInfo
	// In its first second a broker cannot tell.
	waitFor(t, "the end of the broker's log", func() (string, bool) {
		var err error
		if info, err = client.RuntimeInfo(t.Context()); err == nil {
			return "", true
		} else if !errors.Is(err, stock.ErrNotReady) {
			t.Fatal(err)
		}
		return stock.ErrNotReady.Error(), false
	})
	return info.MaxOffset
}
