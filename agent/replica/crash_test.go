package replica

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// roleVariable makes the test binary play another process. What the role needs
// follows it, separated by colons.
const roleVariable = "HAAGENT_REPLICA_ROLE"

// roundsVariable sets how often TestI6_I8_Fault64_KilledWhileAppending kills.
const roundsVariable = "HAAGENT_KILL_ROUNDS"

// play is main of a process that plays a role.
func play(role string) int {
	name, args, _ := strings.Cut(role, ":")
	var err error
	switch name {
	case "append":
		err = playAppend(strings.Split(args, ":"))
	case "hold":
		err = playHold(strings.Split(args, ":"))
	default:
		err = fmt.Errorf("no role %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startRole runs this test binary in a role. What it says on stderr is shown
// when the test ends.
func startRole(t *testing.T, role string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	var talk strings.Builder
	cmd.Stderr = &talk
	if stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			if err := errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait())); err != nil {
				t.Error(err)
			}
		}
		if talk.Len() > 0 {
			t.Logf("%s said: %s", role, talk.String())
		}
	})
	return cmd, stdin, bufio.NewReader(out)
}

// ignoreExit drops the error of a process that did not end well.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// playAppend appends FILE to the replica at DIR as fast as it can, and writes
// each acked end to stdout: 8 bytes, big endian.
func playAppend(args []string) error {
	dir, file, ack, birth := args[0], args[1], args[4], args[5]
	size, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	log, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	disk := newFaultyDisk(dir, nil)
	disk.byRename = birth == "rename"
	s, err := tryOpen(Options{Dir: dir, SegmentSize: wire.ByteSize(size), Ack: Ack(ack), disk: disk})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	moved, stop := s.Listen()
	defer stop()
	if s.Empty() {
		if err := s.Begin(0); err != nil {
			return err
		}
	}
	r := rand.New(rand.NewPCG(seed, 2))
	at := int(s.Ends().Written)
	for acked := wire.NoOffset; int(acked) < len(log); {
		n := min(1+r.IntN(48<<10), len(log)-at)
		if err := s.Append(wire.PhyOffset(at), [][]byte{log[at : at+n/2], log[at+n/2 : at+n]}); err != nil {
			return err
		}
		at += n
		if err := s.Verify(wire.PhyOffset(at)); err != nil {
			return err
		}
		if r.IntN(40) == 0 {
			if err := s.DropUnverified(); err != nil {
				return err
			}
			at = int(s.Ends().Written)
		}
		for e := s.Ends(); ; e = s.Ends() {
			if e.Acked != acked {
				acked = e.Acked
				if err := binary.Write(os.Stdout, binary.BigEndian, int64(acked)); err != nil {
					return err
				}
			}
			if at < len(log) || int(acked) == len(log) {
				break
			}
			select {
			case <-moved:
			case err := <-ran:
				return err
			}
		}
	}
	cancel()
	return errors.Join(<-ran, s.Close())
}

// TestI6_I8_Fault64_KilledWhileAppending kills a process that appends at full
// speed. Whatever the moment, the directory holds full-length, adjacent segments
// only, and after opening it again the log is a prefix of the source with
// nothing but zeros behind it, which includes all that was acked.
func TestI6_I8_Fault64_KilledWhileAppending(t *testing.T) { // not parallel: a fork shares the locks of all others for a moment
	rounds := 50
	if text := os.Getenv(roundsVariable); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", roundsVariable, err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	var c *killing
	finished := 0
	for round := range rounds {
		if c == nil {
			c = newKilling(t, r)
		}
		if c.round(r) {
			finished++
			c = nil
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%d rounds, %d logs to their end", rounds, finished)
}

// killing is one replica that is written by processes that are killed.
type killing struct {
	t          *testing.T
	log        *sourceLog
	dir, file  string
	ack, birth string
}

func newKilling(t *testing.T, r *rand.Rand) *killing {
	size := wire.ByteSize(64<<10) << r.IntN(5)
	v := anyMessage
	v.MaxSize = 30 << 10
	c := &killing{
		t: t, dir: t.TempDir(), file: filepath.Join(t.TempDir(), "source"),
		log:   makeLog(r.Uint64(), size, 0, 400, v),
		ack:   []string{"memory", "memory", "disk"}[r.IntN(3)],
		birth: []string{"unnamed", "unnamed", "rename"}[r.IntN(3)],
	}
	writeFile(t, c.file, string(c.log.bytes))
	return c
}

// round starts a process, kills it, and looks at what it left. done says that it
// came to the end of the log first.
func (c *killing) round(r *rand.Rand) (done bool) {
	t := c.t
	t.Helper()
	role := fmt.Sprintf("append:%s:%s:%d:%d:%s:%s", c.dir, c.file, c.log.size, r.Uint64(), c.ack, c.birth)
	cmd, _, out := startRole(t, role)
	acked := wire.NoOffset
	for reports := r.IntN(25); ; reports-- {
		if reports == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		var b [8]byte
		if _, err := io.ReadFull(out, b[:]); err != nil {
			break // what it said before it was killed was read to the end
		}
		acked = max(acked, wire.PhyOffset(binary.BigEndian.Uint64(b[:])))
	}
	err := cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscallStatus); err != nil && !status.Signaled() {
		t.Fatalf("the process failed: %v", err)
	}
	segmentsOf(t, c.dir, c.log.size) // before anybody tidies up

	s := openStore(t, Options{Dir: c.dir, SegmentSize: c.log.size, Ack: Ack(c.ack)})
	e := checkEnds(t, s, c.log)
	if e.Verified < acked {
		t.Fatalf("verified up to %d after the kill, but %d was acked", e.Verified, acked)
	}
	if e.Min != wire.NoOffset {
		checkPrefix(t, c.dir, c.log, e.Verified)
	}
	left, err := filepath.Glob(filepath.Join(AgentDir(c.dir), "tmp", "*"))
	if err != nil || len(left) > 0 {
		t.Fatalf("left in tmp: %v, %v", left, err)
	}
	if r.IntN(2) == 0 {
		closeStore(t, s)
	} else {
		kill(t, s)
	}
	return e.Verified == c.log.end()
}

// syscallStatus is what the tests need to know of how a process ended.
type syscallStatus interface{ Signaled() bool }

// TestI2_CutAtEveryByte writes every prefix of a short log and kills. What is
// found then is whole messages of the source; a message whose last bytes are
// zeros anyway may be found whole although they were not written.
func TestI2_CutAtEveryByte(t *testing.T) {
	t.Parallel()
	log := &sourceLog{size: 1000, blanks: map[wire.PhyOffset]wire.PhyOffset{}}
	r := rand.New(rand.NewPCG(1, 1))
	for _, m := range []forge.Message{
		{Topic: "a", Body: []byte("body"), Properties: "KEYS\x01k\x02"},
		{Topic: "b"},
		{Topic: "c", Body: make([]byte, 20), Properties: forge.AppendProperty("", "TAGS", "t")},
		{Topic: strings.Repeat("d", 130), Properties: "a\x01\x00\x00b\x02"}, // zeros within
		{Topic: "e", Properties: "a\x01b\x00\x00"},                          // and at the end
		{Topic: "f", Body: []byte{0}, Properties: "p\x01q", PropertyCRC: true},
		{Topic: "g", Body: []byte("zz")},
		{Topic: "h", Body: make([]byte, 100)},
		{Topic: "i", Properties: "x\x01y"},
	} {
		at := log.end()
		if room := at.SegmentBase(log.size).Add(log.size).Sub(at); m.Size()+commitlog.BlankSize > room {
			log.roll(r, room)
			at = log.end()
		}
		log.bytes = forge.AppendMessage(log.bytes, m, at)
		log.bounds = append(log.bounds, log.end())
	}
	opt := Options{Dir: t.TempDir(), SegmentSize: log.size}
	s := openStore(t, opt)
	for end := wire.PhyOffset(1); end <= log.end(); end++ {
		if s.Empty() {
			if err := s.Begin(0); err != nil {
				t.Fatal(err)
			}
		}
		at := s.Ends().Written
		if at < end {
			if err := s.Append(at, [][]byte{log.at(at, end)}); err != nil {
				t.Fatal(err)
			}
		}
		if end%3 == 0 { // kills before and after verifying
			if err := s.Verify(end); err != nil {
				t.Fatal(err)
			}
		}
		verified := max(s.Ends().Verified, 0)
		kill(t, s)
		s = openStore(t, opt)
		got := s.Ends().Verified
		if log.boundary(got) != got {
			t.Fatalf("cut at %d: %d is no boundary", end, got)
		}
		checkPrefix(t, opt.Dir, log, got)
		// Nothing that was verified is lost. What was not may be found whole.
		if got < verified {
			t.Fatalf("cut at %d: verified up to %d, was %d", end, got, verified)
		}
	}
	closeStore(t, s)
}

// playHold locks DIR/lock in the way of KIND, says so, and holds it until its
// standard input ends.
func playHold(args []string) error {
	f, err := os.OpenFile(filepath.Join(args[0], "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	how := map[string]int{"posix": unix.F_SETLK, "ofd": unix.F_OFD_SETLK}[args[1]]
	if err := unix.FcntlFlock(f.Fd(), how, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1}); err != nil {
		return err
	}
	if _, err := fmt.Println("locked"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
