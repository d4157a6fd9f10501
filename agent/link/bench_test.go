package link_test

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
)

// What BenchmarkAgentToAgent copies.
const (
	benchTotal   = wire.GiB
	benchSegment = 256 * wire.MiB
	benchRounds  = 5
)

// BenchmarkAgentToAgent catches up on a log in the page cache over loopback, and
// in turn moves the same files with sendfile and splice alone. It tells the
// medians of both, and of their ratio.
func BenchmarkAgentToAgent(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "source")
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: benchSegment})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	body := make([]byte, 4<<10)
	if _, err := rand.NewChaCha8([32]byte{1}).Read(body); err != nil {
		b.Fatal(err)
	}
	for w.End() < wire.PhyOffset(benchTotal) {
		if _, err := w.Append(forge.Message{Topic: "bench", Properties: "a\x01b\x02", QueueOffset: forge.NextQueueOffset, Body: body}); err != nil {
			b.Fatal(err)
		}
	}
	for _, mode := range []string{"plain", "tls"} {
		b.Run(mode, func(b *testing.B) {
			security := noSecurity(b)
			if mode == "tls" {
				security = keySecurity(b, "tls", 1)
			}
			b.SetBytes(int64(w.End()))
			for b.Loop() {
				benchRatio(b, w, dir, security)
			}
		})
	}
}

func benchRatio(b *testing.B, w *forge.Writer, dir string, security *link.Security) {
	src := source.New(source.Options{Dir: dir, SegmentSize: benchSegment, Authority: constant(w.End())})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := link.NewServer(link.ServerOptions{Listener: l, Security: security, Source: src, Acks: acks.NewTable(), Epoch: func() int64 { return 1 },
		Self: link.Identity{Cluster: "c", BrokerName: "b", Node: "master"}})
	m := &master{t: b, addr: l.Addr().String()}
	m.background(src.Run, server.Run)
	defer m.stop()
	var agents, raws, ratios []float64
	for range benchRounds {
		agent := float64(w.End()) / catchUpOnce(b, m.addr, w.End(), security).Seconds() / 1e6
		raw := float64(w.End()) / spliceOnce(b, w).Seconds() / 1e6
		agents, raws, ratios = append(agents, agent), append(raws, raw), append(ratios, agent/raw)
	}
	for _, s := range [][]float64{agents, raws, ratios} {
		slices.Sort(s)
	}
	b.ReportMetric(agents[benchRounds/2], "agent-MB/s")
	b.ReportMetric(raws[benchRounds/2], "raw-MB/s")
	b.ReportMetric(ratios[benchRounds/2], "ratio")
}

// constant is the word of a broker whose log stands.
type constant wire.PhyOffset

func (c constant) End() wire.PhyOffset { return wire.PhyOffset(c) }

func (c constant) Listen() (moved <-chan struct{}, stop func()) { return nil, func() {} }

func (c constant) Want(bool) {}

func (c constant) Tells() bool { return false }

// catchUpOnce copies the log into a new replica.
func catchUpOnce(b *testing.B, addr string, end wire.PhyOffset, security *link.Security) time.Duration {
	b.Helper()
	dir, err := os.MkdirTemp(b.TempDir(), "replica")
	if err != nil {
		b.Fatal(err)
	}
	s := newSlave(b, addr, slaveOptions{dir: filepath.Join(dir, "r"), security: security, segment: benchSegment, timing: link.Timing{Heartbeat: time.Second}, ack: replica.AckMemory})
	began := time.Now()
	s.run()
	moved, stop := s.store.Listen()
	defer stop()
	for s.store.Ends().Verified < end {
		<-moved
	}
	took := time.Since(began)
	s.kill()
	if err := os.RemoveAll(dir); err != nil {
		b.Fatal(err)
	}
	return took
}

// spliceOnce moves the segments with nothing but the kernel.
func spliceOnce(b *testing.B, w *forge.Writer) time.Duration {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	dir, err := os.MkdirTemp(b.TempDir(), "raw")
	if err != nil {
		b.Fatal(err)
	}
	var group errgroup.Group
	began := time.Now()
	group.Go(func() error { return sendFiles(l, w) })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	for base := wire.PhyOffset(0); base < w.End(); base = base.Add(benchSegment) {
		if err := spliceFile(conn.(*net.TCPConn), filepath.Join(dir, commitlog.Name(base)), int64(min(benchSegment, w.End().Sub(base)))); err != nil {
			b.Fatal(err)
		}
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	conn.Close()
	if err := os.RemoveAll(dir); err != nil {
		b.Fatal(err)
	}
	return took
}

func sendFiles(l net.Listener, w *forge.Writer) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	for base := wire.PhyOffset(0); base < w.End(); base = base.Add(benchSegment) {
		f, err := os.Open(filepath.Join(w.CommitLogDir(), commitlog.Name(base)))
		if err != nil {
			return err
		}
		_, err = io.CopyN(conn, f, int64(min(benchSegment, w.End().Sub(base)))) // sendfile
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// spliceFile takes n bytes from conn into a new file of the length of a segment.
func spliceFile(conn *net.TCPConn, path string, n int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(benchSegment)); err != nil {
		return err
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(p[0])
	defer unix.Close(p[1])
	if _, err := unix.FcntlInt(uintptr(p[1]), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for off := int64(0); n > 0; {
			got, err := unix.Splice(int(fd), nil, p[1], nil, int(min(n, 1<<20)), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
			if err == unix.EAGAIN {
				if failed = wait(fd); failed != nil {
					return true
				}
				continue
			}
			if err == nil && got == 0 {
				err = io.ErrUnexpectedEOF
			}
			if failed = err; err != nil {
				return true
			}
			n -= got
			for got > 0 {
				put, err := unix.Splice(p[0], nil, int(f.Fd()), &off, int(got), unix.SPLICE_F_MOVE)
				if failed = err; err != nil {
					return true
				}
				got -= put
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}

// wait waits until fd can be read.
func wait(fd uintptr) error {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return err
		}
	}
}
