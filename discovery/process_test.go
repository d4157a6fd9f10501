package discovery

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What a member in a process of its own is told by its environment.
const (
	childName = "DISCOVERY_TEST_NAME"
	childBind = "DISCOVERY_TEST_BIND"
	childSeed = "DISCOVERY_TEST_SEED"
)

// childMain is a member in a process of its own. It says its address, and leaves
// on SIGTERM.
func childMain() int {
	g, err := New(Options{
		Self: Member{Node: os.Getenv(childName), Role: "slave", Cluster: "c", BrokerName: "b", BrokerID: 1},
		Bind: os.Getenv(childBind), Join: []string{os.Getenv(childSeed)},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(g.Addr())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := g.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A child is a member in a process of its own.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	addr string
}

func startChild(t testing.TB, name, seed string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childName+"="+name, childBind+"="+nextIP().String()+":0", childSeed+"="+seed)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	c.addr = strings.TrimSpace(line)
	return c
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// In a ring of two nobody else can say that a member is well. One that stands
// still long enough is taken for dead, and comes back by itself when it goes on:
// no join, no other name, no other role. Fault 81.
func TestTwo_StoppedProcessComesBack_Fault81(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Timing = Timing{}
	a := start(t, opt)
	b := startChild(t, "b", a.Addr())
	a.sees(Alive, "b")
	for range 3 {
		b.signal(syscall.SIGSTOP)
		a.sees(Dead, "b")
		b.signal(syscall.SIGCONT)
		a.sees(Alive, "b")
		if m := a.member("b"); m.Addr != b.addr || m.Role != "slave" {
			t.Errorf("it came back as %+v", m)
		}
	}
}

func TestTwo_KilledProcessIsDeadAndComesBack(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Timing = Timing{}
	a := start(t, opt)
	b := startChild(t, "b", a.Addr())
	a.sees(Alive, "b")
	began := time.Now()
	b.signal(syscall.SIGKILL)
	a.sees(Dead, "b")
	t.Logf("dead after %v", time.Since(began))
	b = startChild(t, "b", a.Addr())
	a.sees(Alive, "b")
	if got := a.member("b").Addr; got != b.addr {
		t.Errorf("it is at %s, not %s", got, b.addr)
	}
	b.signal(syscall.SIGTERM)
	a.sees(Left, "b")
}

// Where UDP is blocked but TCP gets through, suspicions are cleared by streams,
// long before they end in death or whole tables are exchanged. Fault 81.
func TestTwo_PacketsBlocked_Fault81(t *testing.T) {
	t.Parallel()
	timing := Timing{SuspicionMult: 120, PushPullInterval: time.Hour}
	aOpt, bOpt := options("a"), options("b")
	aOpt.Timing, bOpt.Timing = timing, timing
	aRelay, bRelay := newRelay(t), newRelay(t)
	aOpt.Advertise, bOpt.Advertise = aRelay.addr(), bRelay.addr()
	bOpt.Join = []string{aRelay.addr()}
	a, b := start(t, aOpt), start(t, bOpt)
	aRelay.serve(a.socks.bound.String())
	bRelay.serve(b.socks.bound.String())
	a.sees(Alive, "b")
	b.sees(Alive, "a")
	for range 2 {
		bRelay.blocked.Store(true) // for streams as well
		a.sees(Suspect, "b")
		bRelay.blocked.Store(false)
		a.sees(Alive, "b")
	}
	eventually(t, "it is said that UDP is blocked", func() bool {
		return a.log.count("UDP probes failed")+b.log.count("UDP probes failed") > 0
	})
}

// relay takes streams on to another address and swallows packets.
type relay struct {
	t       testing.TB
	socks   *sockets
	blocked atomic.Bool // streams are cut as well
}

func newRelay(t testing.TB) *relay {
	t.Helper()
	s, err := listen(nextIP(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return &relay{t: t, socks: s}
}

func (r *relay) addr() string { return r.socks.bound.String() }

func (r *relay) serve(to string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var pumps []chan struct{}
		for {
			in, err := r.socks.tcp.Accept()
			if err != nil {
				break
			}
			if r.blocked.Load() {
				in.Close()
				continue
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			pumps = append(pumps, pump(in, out), pump(out, in))
		}
		for _, p := range pumps {
			<-p
		}
	}()
	r.t.Cleanup(func() {
		release(r.t, r.socks)
		<-done
	})
}

// pump copies until either end is closed, then closes both.
func pump(to, from net.Conn) chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(to, from)
		to.Close()
		from.Close()
	}()
	return done
}
