//go:build linux

package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
)

// A manager is the socket on which a service manager hears from a service.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return &manager{t: t, conn: conn, path: path}
}

// start starts an agent as the manager's service. It is to be heard from once in
// 600 ms.
func (m *manager) start(dir string, args ...string) *haagent {
	m.t.Helper()
	return startProcess(m.t, "/usr/bin/env", dir, append([]string{"NOTIFY_SOCKET=" + m.path, "WATCHDOG_USEC=600000", testBinary(m.t)}, args...)...)
}

// next returns the next message, or "" where none comes within a span.
func (m *manager) next(within time.Duration) string {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		m.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := m.conn.Read(buf)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		m.t.Fatal(err)
	}
	return string(buf[:n])
}

// hear waits for a message with a line that begins so, and returns what was said
// until then.
func (m *manager) hear(line string) (message string, before []string) {
	m.t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		message := m.next(time.Until(until))
		for l := range strings.Lines(message) {
			if strings.HasPrefix(l, line) {
				return message, before
			}
		}
		before = append(before, message)
	}
	m.t.Fatalf("waited %v for %q, heard %q", patience, line, before)
	return "", nil
}

// TestSystemd_HearsHowAMasterIs follows an agent from its start to its end as
// systemd would, by the messages on a real socket.
func TestSystemd_HearsHowAMasterIs(t *testing.T) {
	t.Parallel()
	m, source := newManager(t), forgeStore(t)
	master := m.start(source, "--role", "master", "--dir", source, "--broker", "127.0.0.1:1", "--cluster", "c", "--broker-name", "b",
		"--gossip-bind", "127.0.0.1:0", "--link-bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	ready, before := m.hear("READY=1")
	if !strings.Contains(ready, "STATUS=serving") || strings.Contains(strings.Join(before, "\n"), "STOPPING") {
		t.Errorf("it is ready with %q, after %q", ready, before)
	}
	if s := master.status(); s.State != state.Serving {
		t.Errorf("it is ready in state %s", s.State)
	}
	for range 3 {
		m.hear("WATCHDOG=1")
	}

	master.stop() // a process that hangs feeds no watchdog
	for m.next(100*time.Millisecond) != "" {
	}
	if got := m.next(time.Second); got != "" {
		t.Errorf("a process that stands still says %q", got)
	}
	master.cont()
	m.hear("WATCHDOG=1")

	master.signal(syscall.SIGHUP)
	if reloading, _ := m.hear("RELOADING=1"); !strings.Contains(reloading, "\nMONOTONIC_USEC=") {
		t.Errorf("it reloads with %q", reloading)
	}
	m.hear("READY=1")

	master.signal(syscall.SIGUSR1)
	waitFor(t, "the state in the log", func() (string, bool) {
		text := master.log.String()
		return text, strings.Contains(text, `brokerName`) && strings.Contains(text, "goroutines=")
	})
	master.term()
	if stopping, _ := m.hear("STOPPING=1"); strings.Contains(stopping, "READY") {
		t.Errorf("it stops with %q", stopping)
	}
}

// TestSystemd_HearsHowAReplicaIs: a replica that has nobody to follow is ready, and
// its line changes with its state.
func TestSystemd_HearsHowAReplicaIs(t *testing.T) {
	t.Parallel()
	m, source, dir := newManager(t), forgeStore(t), filepath.Join(t.TempDir(), "replica")
	gossip := brokertest.FreeAddr(t)
	slave := m.start(dir, "--role", "slave", "--dir", dir, "--join", gossip, "--gossip-bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cluster", "c", "--broker-name", "b")
	if ready, _ := m.hear("READY=1"); !strings.Contains(ready, "STATUS=searching") {
		t.Errorf("alone it is ready with %q", ready)
	}
	startProcess(t, testBinary(t), source, "--role", "master", "--dir", source, "--broker", "127.0.0.1:1", "--cluster", "c", "--broker-name", "b",
		"--gossip-bind", gossip, "--link-bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	m.hear("STATUS=streaming, 0 B behind")
	slave.waitStatus("a checked log", func(s control.Status) bool { return s.Offsets.Verified > 0 })
	m.hear("WATCHDOG=1")
	slave.term()
	m.hear("STOPPING=1")
}
