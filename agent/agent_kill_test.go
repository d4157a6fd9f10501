package agent_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// killTime is how long TestKill200_I2_I3_I6 goes on where HAAGENT_LONG is not set.
const killTime = 58 * time.Second

// process is an agent in a process of its own.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   bytes.Buffer
}

func startProcess(t *testing.T, dir, master string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childDir+"="+dir, childMaster+"="+master)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// kill is kill -9.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatalf("%v: %s", err, p.out.Bytes())
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Fatalf("%v: %s", err, p.out.Bytes())
	}
}

// I2, I3, I6: an agent that is killed under load leaves a directory on which a
// broker could boot that very moment: full-length, adjacent segments, a prefix
// of the source, nothing behind it, and in it everything that was acknowledged.
func TestKill200_I2_I3_I6(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	src := newSource(t, 256*wire.KiB)
	dir := filepath.Join(t.TempDir(), "replica")
	src.grow(100 * wire.KiB)
	load := make(chan struct{})
	var loading sync.WaitGroup
	loading.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-load:
				return
			case <-tick.C:
				src.grow(2 * wire.KiB)
			}
		}
	})
	defer loading.Wait()
	rounds, began := 0, time.Now()
	var held wire.PhyOffset // valid end after the last kill
	for ; rounds < 200 && (os.Getenv("HAAGENT_LONG") != "" || time.Since(began) < killTime); rounds++ {
		src.forgetReports()
		p := startProcess(t, dir, src.addr())
		if random.IntN(4) > 0 {
			eventually(t, "progress", func() bool { return src.maxReport() > held })
			src.grow(wire.ByteSize(random.Int64N(int64(300 * wire.KiB)))) // rolls now and then
		} else {
			eventually(t, "its lock", func() bool { _, err := os.Stat(filepath.Join(dir, "lock")); return err == nil })
		}
		moment := time.NewTimer(time.Duration(random.IntN(60)) * time.Millisecond)
		<-moment.C
		p.kill(t)
		reported := src.maxReport()
		held = inspect(t, src, dir, held)
		if reported > max(held, 1) {
			t.Errorf("report %d, stored is %d", reported, held)
		}
		if t.Failed() {
			t.Fatalf("round %d, seed %d", rounds, seed)
		}
	}
	close(load)
	loading.Wait()
	t.Logf("%d kills, %d bytes", rounds, src.end())
	p := startProcess(t, dir, src.addr())
	eventually(t, "all of it", func() bool { return src.maxReport() == src.end() })
	if err := errors.Join(p.stdin.Close(), p.cmd.Wait()); err != nil {
		t.Errorf("%v: %s", err, p.out.Bytes())
	}
	same(t, src, dir)
}

// inspect looks at the directory of a killed agent, whose log was valid up to
// held before, and returns the end of its whole messages.
func inspect(t *testing.T, src *source, dir string, held wire.PhyOffset) wire.PhyOffset {
	t.Helper()
	log := filepath.Join(dir, "commitlog")
	segments, err := commitlog.List(log)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(segments) == 0 {
		return held
	}
	if err == nil {
		err = commitlog.CheckSegments(segments, src.size)
	}
	if err != nil {
		t.Fatalf("I6: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "abort")); err != nil {
		t.Errorf("boot contract: %v", err)
	}
	if segments[0].Base != 0 {
		t.Errorf("the replica begins at %d", segments[0].Base)
	}
	zero := false // from the first difference on there must be nothing
	for _, seg := range segments {
		if seg.End() <= held.SegmentBase(src.size) {
			continue // looked at before
		}
		own, err := os.ReadFile(seg.Path)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.ReadFile(filepath.Join(src.dir, "commitlog", commitlog.Name(seg.Base)))
		if err != nil {
			t.Fatal(err)
		}
		rest := own
		if !zero {
			n := 0
			for n < len(own) && own[n] == theirs[n] {
				n++
			}
			rest = own[n:]
		}
		for i, b := range rest {
			zero = true
			if b != 0 {
				t.Fatalf("I2: byte %d of %s is neither the source's nor zero", len(own)-len(rest)+i, seg.Path)
			}
		}
	}
	sc, err := commitlog.NewScanner(log, src.size, held)
	if err != nil {
		t.Fatal(err)
	}
	for sc.Next() {
	}
	if err := sc.Err(); !errors.Is(err, commitlog.ErrNotYet) {
		t.Errorf("the log ends with %v", err)
	}
	end := sc.Offset()
	if err := sc.Close(); err != nil {
		t.Fatal(err)
	}
	return end
}
