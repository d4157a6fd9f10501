package stock_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// Fault 30: with acks from the disk no report, the first included, is above
// what was synced; without a sync there is none.
func TestFault30_DiskAcksFollowTheSync(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(150 * wire.KiB)
	var s *testSlave
	ready := make(chan struct{})
	m.state.Lock()
	m.onReport = func(_ *fakeLink, off wire.PhyOffset) {
		<-ready
		if ends := s.store.Ends(); off > max(ends.Flushed, 0) {
			t.Errorf("report %d, flushed is %d", off, ends.Flushed)
		}
	}
	m.state.Unlock()
	timing := fast
	timing.Heartbeat = 10 * time.Millisecond
	s = follow(t, m, slaveOptions{ack: replica.AckDisk, noFlush: true, timing: timing})
	close(ready)
	s.caughtUp(m)
	seen := len(m.happened("report"))
	eventually(t, "reports meanwhile", func() bool { return len(m.happened("report")) > seen+5 })
	if got := m.lastReport(); got != 0 {
		t.Errorf("report %d, nothing was synced", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.flush(ctx)
	eventually(t, "the report", func() bool { return m.lastReport() == m.writer.End() })
	m.grow(100 * wire.KiB)
	eventually(t, "the next", func() bool { return m.lastReport() == m.writer.End() })
	cancel()
}

// latencies appends n messages of size bytes one by one and returns, sorted,
// how long each took to be reported.
func latencies(t *testing.T, m *fakeMaster, n int, size wire.ByteSize) []time.Duration {
	t.Helper()
	var all []time.Duration
	for range n {
		began := time.Now()
		m.append(1, size)
		end := m.writer.End()
		var reported time.Time
		eventually(t, "the report", func() bool {
			i := slices.IndexFunc(m.happened("report"), func(e fakeEvent) bool { return e.off >= end })
			if i >= 0 {
				reported = m.happened("report")[i].at
			}
			return i >= 0
		})
		all = append(all, reported.Sub(began))
	}
	slices.Sort(all)
	return all
}

// Faults 32, 33, 35: each message is reported at once, whatever its size, with
// none behind it and no timer near.
func TestFault35_ReportsDoNotWait(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 32*wire.MiB, 0))
	timing := fast
	timing.Heartbeat, timing.Patience = time.Hour, time.Hour
	m.beat = time.Hour
	m.append(1, 100)
	s := follow(t, m, slaveOptions{timing: timing})
	s.caughtUp(m)
	// The limit is far above what a report takes and far below every timer.
	for _, c := range []struct {
		n    int
		size wire.ByteSize
	}{{200, 200}, {20, wire.MiB}} {
		all := latencies(t, m, c.n, c.size)
		if half := all[len(all)/2]; half > 3*time.Second {
			t.Errorf("%d messages of %s: half took more than %v, at most %v", c.n, c.size, half, all[len(all)-1])
		}
	}
	s.caughtUp(m)
}

// Fault 32: the same with acks from the disk, at the price of one sync.
func TestFault32_DiskAcksNeedNoSecondMessage(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
	timing := fast
	timing.Heartbeat = time.Hour
	m.append(1, 100)
	s := follow(t, m, slaveOptions{timing: timing, ack: replica.AckDisk})
	s.caughtUp(m)
	all := latencies(t, m, 20, 200)
	if half := all[len(all)/2]; half > 400*time.Millisecond {
		t.Errorf("half took more than %v", half)
	}
	m.append(100, 200) // in flight while stopped
	s.stop()
	s = follow(t, m, slaveOptions{dir: s.dir})
	if got, reported := s.store.Ends().Verified, m.lastReport(); got < reported {
		t.Errorf("the stopped replica holds %d, reported was %d", got, reported)
	}
	s.caughtUp(m)
}

// Fault 34: a source that is slow to answer questions gets its acks all the same.
func TestFault34_QuestionsDoNotDelayAcks(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
	m.append(1, 100)
	s := follow(t, m, slaveOptions{})
	s.caughtUp(m)
	release, asked := make(chan struct{}), make(chan struct{}, 1)
	m.lie(func(remoting.Command) (remoting.Command, bool) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-release
		return remoting.Command{}, false
	})
	<-asked
	all := latencies(t, m, 50, 200)
	close(release)
	m.lie(nil)
	if half := all[len(all)/2]; half > 50*time.Millisecond {
		t.Errorf("half took more than %v", half)
	}
}

// Fault 36: a replica whose disk is full lets go of its source at once, stays
// away with back-off, says why, and comes back by itself.
func TestFault36_FullDisk(t *testing.T) {
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m")
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		asRootOfANamespace(t)
		return
	}
	if err != nil {
		t.Fatalf("a small file system is needed: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	m := newFakeMaster(t, newServedLog(t, wire.MiB, 0))
	m.grow(wire.MiB + wire.MiB/2)
	s := follow(t, m, slaveOptions{dir: filepath.Join(dir, "store")})
	s.caughtUp(m)
	began := time.Now()
	m.grow(2 * wire.MiB)
	eventually(t, "the closed link", func() bool { return len(m.happened("close")) > 0 })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the link was held for %v", took)
	}
	s.stuck(state.NoSpace, "no_space")
	if got := s.store.Ends().Verified; m.lastReport() > got {
		t.Errorf("report %d, verified is %d", m.lastReport(), got)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	s.caughtUp(m)
	s.stop()
}

// asRootOfANamespace runs the test anew, as somebody who may mount.
func asRootOfANamespace(t *testing.T) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in a user namespace: %v\n%s", err, out)
	}
}

// Fault 37: a replica has one connection at most that reports, also while the
// source does not notice that an old one has ended.
func TestFault37_OneConnection(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.grow(100 * wire.KiB)
	m.play(func(l *fakeLink) { // falls silent, and keeps its end open
		l.send(l.request, l.request.Add(1000))
		<-l.gone
	})
	timing := fast
	timing.Housekeeping = 60 * time.Millisecond
	follow(t, m, slaveOptions{timing: timing})
	eventually(t, "some connections", func() bool { return len(m.asked()) >= 5 })
	m.play(func(l *fakeLink) { l.serve(nil) })
	m.state.Lock()
	defer m.state.Unlock()
	requested := make(map[int]time.Time)
	for _, e := range m.events {
		switch e.kind {
		case "request":
			requested[e.link] = e.at
		case "report":
			if next, ok := requested[e.link+1]; ok && e.at.Sub(next) > 50*time.Millisecond {
				t.Errorf("%v came %v after the next link's request", e, e.at.Sub(next))
			}
		}
	}
	if n := len(m.live); n > 2 {
		t.Errorf("%d connections are open", n)
	}
}

// Fault 39: a quiet link stays, and is reported on; a dead one is dropped.
func TestFault39_QuietAndDeadLinks(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	m.beat = 20 * time.Millisecond
	timing := fast
	timing.Heartbeat, timing.Housekeeping = 20*time.Millisecond, 400*time.Millisecond
	s := follow(t, m, slaveOptions{timing: timing})
	s.caughtUp(m)
	seen := len(m.happened("report"))
	eventually(t, "three times the housekeeping interval", func() bool { return len(m.happened("report")) > seen+60 })
	if got := m.asked(); len(got) != 1 {
		t.Errorf("connected %d times", len(got))
	}
	reports := m.happened("report")
	for i := 1; i < len(reports); i++ {
		if gap := reports[i].at.Sub(reports[i-1].at); gap > timing.Housekeeping {
			t.Errorf("%v without a report", gap)
		}
	}
	m.play(func(l *fakeLink) { // silent after the first frame
		l.send(l.request, m.writer.End())
		<-l.gone
	})
	m.cut()
	eventually(t, "reconnects", func() bool { return len(m.asked()) >= 3 })
	m.state.Lock()
	var second, closed time.Time
	for _, e := range m.events {
		if e.link == 2 && e.kind == "request" {
			second = e.at
		}
		if e.link == 2 && e.kind == "close" {
			closed = e.at
		}
	}
	m.state.Unlock()
	if held := closed.Sub(second); held < timing.Housekeeping {
		t.Errorf("a silent link was held for %v only", held)
	}
}

// Fault 40: the request comes with the connection, and the end of the
// connection with that of the agent.
func TestFault40_FirstBytesAndLast(t *testing.T) {
	m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
	m.append(10, 100)
	var dialled atomic.Int64
	began := time.Now()
	s := follow(t, m, slaveOptions{blind: true, dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Store(int64(time.Since(began)))
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	s.caughtUp(m)
	if took := m.happened("request")[0].at.Sub(began.Add(time.Duration(dialled.Load()))); took > 100*time.Millisecond {
		t.Errorf("the request came %v after the dial", took)
	}
	stopped := time.Now()
	s.stop()
	eventually(t, "the end of the link", func() bool { return len(m.happened("close")) == 1 })
	if took := m.happened("close")[0].at.Sub(stopped); took > time.Second {
		t.Errorf("the link ended %v after the stop", took)
	}
}

// Fault 41: a name is looked up for each connection.
func TestFault41_NameThatMoves(t *testing.T) {
	one, two := newServedLog(t, 64*wire.KiB, 0), newServedLog(t, 64*wire.KiB, 0)
	first, second := storeOn(t, one, 100, 1), storeOn(t, two, 100, 1)
	second.more(10, 1)
	var now atomic.Pointer[fakeMaster]
	now.Store(first)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		m := now.Load()
		target := m.port
		if addr == "master.example:10912" {
			target = m.haPort
		}
		return new(net.Dialer).DialContext(ctx, network, target.Addr().String())
	}
	s := follow(t, first, slaveOptions{dial: dial, want: stock.Expectation{HAAddr: "master.example:10912"}})
	s.caughtUp(first)
	now.Store(second)
	closeAll(t, first.haPort)
	first.cut()
	began := time.Now()
	eventually(t, "the other one's end", func() bool { return s.store.Ends().Verified == second.writer.End() })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	s.equal(second)
}

// Fault 42: no source that refuses, hangs up or hangs is called often.
func TestFault42_ConnectsAreBounded(t *testing.T) {
	for name, script := range map[string]func(*fakeLink){
		"refuses":  nil,
		"hangs up": func(*fakeLink) {},
		"hangs":    func(l *fakeLink) { <-l.gone },
	} {
		t.Run(name, func(t *testing.T) {
			m := newFakeMaster(t, newServedLog(t, 64*wire.KiB, 0))
			m.append(10, 100)
			m.play(script)
			if script == nil {
				closeAll(t, m.haPort)
			}
			timing := fast
			timing.FirstRetry, timing.MaxRetry = 10*time.Millisecond, 160*time.Millisecond
			timing.Heartbeat, timing.Patience = 10*time.Millisecond, 20*time.Millisecond
			var dials atomic.Int32
			s := follow(t, m, slaveOptions{blind: true, timing: timing, dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}})
			begin := time.NewTimer(1500 * time.Millisecond)
			<-begin.C
			// 10+20+40+80 ms, then 160 ms each, less 30 %.
			if n := dials.Load(); n < 4 || n > 5+1500/112 {
				t.Errorf("%d connections in 1.5 s", n)
			}
			if s.was(state.Streaming) || s.was(state.Gap) {
				t.Errorf("state %v", s.last())
			}
		})
	}
}
