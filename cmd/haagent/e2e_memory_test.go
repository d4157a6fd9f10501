//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

const (
	// memoryLog is how much is caught up with, in segments of the default size.
	memoryLog     = 2 * wire.GiB
	memorySegment = wire.GiB
	// memoryBudget bounds the anonymous memory of an agent, whatever the log's size.
	memoryBudget = 40 * wire.MiB
)

// TestMemory catches up with 2 GiB in segments of 1 GiB, and looks at the
// process all the while: what it maps and caches is the kernel's, what it
// allocates stays small. The agent is built as it is released, because the race
// detector multiplies memory.
func TestMemory(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "haagent")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	source := t.TempDir()
	w := forgeLog(t, source)
	addr := serveForged(t, source, w)
	agent := startAgentOf(t, binary, t.TempDir(), "--master", addr)
	var highest wire.ByteSize
	samples := 0
	s := agent.waitStatus("the end of the log", func(s control.Status) bool {
		highest = max(highest, rssAnon(t, agent.cmd.Process.Pid))
		samples++
		return s.State == state.Streaming && s.Offsets.Acked == w.End()
	})
	if highest == 0 || highest >= memoryBudget {
		t.Errorf("%s of anonymous memory while catching up, %s are allowed", highest, memoryBudget)
	}
	t.Logf("at most %s of anonymous memory in %d looks, %d messages", highest, samples, s.Messages)
	agent.term()
}

// forgeLog writes a log whose segments are as full as they get.
func forgeLog(t *testing.T, dir string) *forge.Writer {
	t.Helper()
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: memorySegment, Ahead: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, w) })
	random := rand.New(rand.NewPCG(1, 2))
	body := make([]byte, 64*wire.KiB)
	for i := range body {
		body[i] = byte(random.Uint32())
	}
	const room = 128 * wire.KiB // less than two messages are left over
	for w.End() < wire.PhyOffset(memoryLog-room) {
		m := forge.Message{Topic: "memory", QueueOffset: forge.NextQueueOffset, Body: body, StoreTimestamp: 1_700_000_000_000}
		if _, err := w.Append(m); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// serveForged serves a forged store as a stock master does, until the test ends,
// and returns the address of its remoting port.
func serveForged(t *testing.T, dir string, w *forge.Writer) (addr string) {
	t.Helper()
	listen := func() (l net.Listener, port string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, err = net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return l, port
	}
	remotingServer, listenPort := listen()
	haServer, haPort := listen()
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return stock.NewHAServer(stock.HAServerOptions{
			Listener: haServer, CommitLogDir: w.CommitLogDir(), SegmentSize: memorySegment, End: w.End,
		}).Run(ctx)
	})
	group.Go(func() error {
		return stock.NewRemotingServer(stock.RemotingServerOptions{
			Listener: remotingServer, Dir: dir, CommitLogDir: w.CommitLogDir(), SegmentSize: memorySegment, Min: w.Min, End: w.End,
			Config: map[string]string{
				"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "brokerRole": "ASYNC_MASTER",
				"listenPort": listenPort, "haListenPort": haPort, "storePathCommitLog": w.CommitLogDir(),
				"mappedFileSizeCommitLog": strconv.FormatInt(int64(memorySegment), 10),
			},
		}).Run(ctx)
	})
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	return remotingServer.Addr().String()
}

// rssAnon returns the anonymous memory of a process that is resident.
func rssAnon(t *testing.T, pid int) wire.ByteSize {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := bytes.Cut(b, []byte("RssAnon:"))
	line, _, _ := strings.Cut(string(after), "\n")
	var kib wire.ByteSize
	if _, err := fmt.Sscanf(line, "%d kB", &kib); err != nil || !found {
		t.Fatalf("no RssAnon in %s: %v", b, err)
	}
	return kib * wire.KiB
}
