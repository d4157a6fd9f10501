//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

// demoRun is a demo in a process with a TMPDIR of its own.
type demoRun struct {
	cmd            *exec.Cmd
	dir            string
	stdout, stderr output
	done           chan struct{}
}

func newDemoRun(t *testing.T, args ...string) *demoRun {
	t.Helper()
	p := &demoRun{dir: t.TempDir(), cmd: self(testBinary(t), append([]string{"demo"}, args...)...)}
	p.cmd.Env = append(p.cmd.Env, "TMPDIR="+p.dir)
	return p
}

// start starts the process, which is killed when the test ends.
func (p *demoRun) start(t *testing.T) {
	t.Helper()
	p.cmd.Stdout, p.cmd.Stderr, p.done = &p.stdout, &p.stderr, make(chan struct{})
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		if err, exit := p.cmd.Wait(), new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Errorf("wait for the demo: %v", err)
		}
	}()
	t.Cleanup(func() {
		if !p.ended() {
			t.Errorf("killed: %v", p.cmd.Process.Kill())
			<-p.done
		}
	})
}

func (p *demoRun) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// TestDemo runs demos one after the other: each of them keeps a small machine
// busy.
func TestDemo(t *testing.T) {
	t.Parallel() // to those that wait for brokers
	t.Run("TellsTheTruth", demoTellsTheTruth)
	t.Run("Keep", demoKeep)
	t.Run("Interrupted", demoInterrupted)
}

// demoTellsTheTruth runs a whole demo: both copies are compared, every kind
// of wait has its answer, and nothing is left behind.
func demoTellsTheTruth(t *testing.T) {
	p := newDemoRun(t, "--duration", "3s", "--rate", "2MiB")
	stdout, stderr, code := finish(t, p.cmd)
	if code != exitOK {
		t.Fatalf("ended with %d:\n%s%s", code, stdout, stderr)
	}
	want := []string{
		`^slave-1  identical up to \d+: \d+ MiB, [\d,]+ messages, 4 config files$`,
		`^slave-2  identical up to \d+: \d+ MiB, [\d,]+ messages, 4 config files$`,
		`^acks 1   [\d,]+ waits PUT_OK, p50 [\d.]+(µs|ms|s), p99 [\d.]+(µs|ms|s)$`,
		`^acks 2   [\d,]+ waits PUT_OK, p50 [\d.]+(µs|ms|s), p99 [\d.]+(µs|ms|s)$`,
		`^acks 2   [\d,]+ waits FLUSH_SLAVE_TIMEOUT, all with slave-2 away or catching up$`,
	}
	got := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if len(got) != len(want) {
		t.Fatalf("prints %d lines, not %d:\n%s", len(got), len(want), stdout)
	}
	for i, line := range got {
		if !regexp.MustCompile(want[i]).MatchString(line) {
			t.Errorf("line %d is %q, not like %s", i, line, want[i])
		}
		if n := len([]rune(line)); n > 80 {
			t.Errorf("line %d is %d wide: %q", i, n, line)
		}
	}
	at := 0 // the acts come in their order
	for _, act := range []string{"source, a broker's store", "--role master", "--role slave --dir slave-1 --join", "caught up", "slave-2 goes away",
		"slave-2 comes back", "slave-2 has caught up", "the writer stops at", "are promoted"} {
		i := strings.Index(stderr[at:], act)
		if i < 0 {
			t.Fatalf("stderr lacks %q behind byte %d:\n%s", act, at, stderr)
		}
		at += i
	}
	if strings.Contains(stderr, "\x1b") || strings.Contains(stderr, "level=") {
		t.Errorf("there are escapes or logs where neither is wanted:\n%s", stderr)
	}
	if left := listing(t, p.dir); left != "" {
		t.Errorf("left behind:\n%s", left)
	}
}

// demoKeep leaves three stores that verify compares, and shows logs where
// that is asked for.
func demoKeep(t *testing.T) {
	p := newDemoRun(t, "--duration", "3s", "--rate", "256KiB", "--keep", "--verbose")
	stdout, stderr, code := finish(t, p.cmd)
	if code != exitOK {
		t.Fatalf("ended with %d:\n%s%s", code, stdout, stderr)
	}
	m := regexp.MustCompile(`(?m)^kept in (.+)$`).FindStringSubmatch(stdout)
	if m == nil {
		t.Fatalf("does not say where:\n%s", stdout)
	}
	for _, node := range []string{"slave-1", "slave-2"} {
		r, err := verify.Compare(t.Context(), filepath.Join(m[1], "source"), filepath.Join(m[1], node), nil)
		if err != nil || !r.Same() || r.A.End != r.B.End {
			t.Errorf("%s: %+v, %v", node, r, err)
		}
	}
	for _, says := range []string{"agent=master", "agent=slave-1", "agent=slave-2", "state=promoted"} {
		if !strings.Contains(stderr, says) {
			t.Errorf("the log lacks %q:\n%s", says, stderr)
		}
	}
}

// demoInterrupted ends a demo in the middle: it says so, soon, and leaves
// nothing.
func demoInterrupted(t *testing.T) {
	p := newDemoRun(t, "--duration", "1m", "--rate", "1MiB")
	p.start(t)
	waitFor(t, "the slaves to catch up", func() (string, bool) {
		return p.stderr.String(), strings.Contains(p.stderr.String(), "caught up") || p.ended()
	})
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	waitFor(t, "the end", func() (string, bool) { return p.stderr.String(), p.ended() })
	if code := p.cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.HasSuffix(p.stderr.String(), "haagent: interrupted\n") {
		t.Errorf("ended with %d after %s:\n%s", code, time.Since(begin), p.stderr.String())
	}
	if left := listing(t, p.dir); left != "" || p.stdout.String() != "" {
		t.Errorf("left behind:\n%s\nand printed %q", left, p.stdout.String())
	}
}

// TestDemo_Refuses what cannot be played, with the code for it.
func TestDemo_Refuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"too short", []string{"--duration", "1s"}, exitConfig, "3s"},
		{"no rate", []string{"--rate", "fast"}, exitConfig, "not a size"},
		{"too slow", []string{"--rate", "1KiB"}, exitConfig, "64KiB"},
		{"argument", []string{"slave"}, exitUsage, "no argument"},
		{"no room", []string{"--rate", "1TiB", "--duration", "10m"}, exitDisk, "need 1.8 PiB"},
	} {
		p := newDemoRun(t, c.args...)
		stdout, stderr, code := finish(t, p.cmd)
		if code != c.code || !strings.Contains(stderr, c.says) || !strings.Contains(stderr, "Try: ") || stdout != "" {
			t.Errorf("%s: ended with %d, not %d:\n%s%s", c.name, code, c.code, stdout, stderr)
		}
		if left := listing(t, p.dir); left != "" {
			t.Errorf("%s: left behind:\n%s", c.name, left)
		}
	}
}

// A copy that is not equal makes the demo end with 5, whatever is different.
func TestDemo_ComparesEverything(t *testing.T) {
	t.Parallel()
	d := &demo{dir: t.TempDir()}
	var err error
	if d.broker, err = newDemoBroker(t.Context(), filepath.Join(d.dir, "source"), 0, 1); err != nil {
		t.Fatal(err)
	}
	end := d.broker.writer.End()
	if err := errors.Join(d.broker.writer.Close(), d.broker.ha.Close(), d.broker.remoting.Close()); err != nil {
		t.Fatal(err)
	}
	want, err := readDemoConfig(d.broker.dir)
	if err != nil || len(want) != 4 {
		t.Fatalf("%d config files, %v", len(want), err)
	}
	first, last := filepath.Join("commitlog", commitlog.Name(0)), filepath.Join("commitlog", commitlog.Name(wire.PhyOffset(demoSegment)))
	for _, c := range []struct {
		name  string
		spoil func(dir string) error
		early wire.PhyOffset // by how much it was promoted before the end
		says  string
	}{
		{"equal", func(string) error { return nil }, 0, ""},
		{"a byte", func(dir string) error { return flipByte(filepath.Join(dir, first), 5000) }, 0, "is not equal"},
		{"the last message", func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, last), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 4096), 0)
			return errors.Join(err, f.Close())
		}, 0, "is not equal"},
		{"promoted early", func(string) error { return nil }, 1, "is not equal"},
		{"a position", func(dir string) error { return flipByte(filepath.Join(dir, "config", "consumerOffset.json"), 30) }, 0, "consumerOffset.json differs"},
		{"no topics", func(dir string) error { return os.Remove(filepath.Join(dir, "config", "topics.json")) }, 0, "lacks a config file"},
	} {
		x := &demoAgent{}
		x.cfg.Node, x.cfg.Dir = "slave-1", filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(x.cfg.Dir, os.DirFS(d.broker.dir)); err != nil {
			t.Fatal(err)
		}
		if err := c.spoil(x.cfg.Dir); err != nil {
			t.Fatal(err)
		}
		line, err := d.compare(t.Context(), x, end-c.early, want)
		if c.says == "" {
			if err != nil || !strings.HasPrefix(line, "slave-1  identical up to ") {
				t.Errorf("%s: %q, %v", c.name, line, err)
			}
			continue
		}
		if code, _ := explain(err); code != exitDifferent || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: code %d, %v", c.name, code, err)
		}
	}
}

// What takes too long is named, with how far it came.
func TestDemo_NamesWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errDemoTooLong)
	defer cancel()
	err := new(demo).until(ctx, "slave-2 to catch up", func() (bool, string) { return false, "it is in state connecting" })
	if code, try := explain(err); code != exitNotConnected || try == "" || !strings.Contains(err.Error(), "slave-2 to catch up: it is in state connecting") {
		t.Errorf("code %d, try %q, %v", code, try, err)
	}
}

// flipByte turns one byte of a file into another one.
func flipByte(path string, at int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	b[at] ^= 1
	return os.WriteFile(path, b, 0o644)
}
