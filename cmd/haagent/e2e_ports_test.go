//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// probesEach is how many connections a scanner makes to each port.
func probesEach() int {
	if long() {
		return 20_000
	}
	return 150
}

// garbage is what scanners send.
var garbage = []string{"", "\x00\x00\x00", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", strings.Repeat("\x00", 8),
	"\x00\x00\x00\x05\x00\x00\x00\x01{", strings.Repeat("\xff", 64), "haagent\x00"}

// TestPorts_ProbesLeaveNothing: thousands of probes of each port of a master's
// agent leave it with the descriptors, goroutines and memory that it had, and with
// a log that can be read; a replica streams on, and never has to connect again.
func TestPorts_ProbesLeaveNothing(t *testing.T) {
	t.Parallel() // most of the time is waiting
	r := newRing(t)
	r.makeKey()
	host := r.host()
	ha, remoting := r.at(host, 22), r.at(host, 21)
	master := r.startForgedMaster(forgeStore(t), "m", host, "--ha-bind", ha, "--remoting-bind", remoting, "--ha-allow", "127.0.0.0/8", "--http", r.at(host, 16))
	master.waitState(state.Serving)
	slave := r.startSlave(filepath.Join(t.TempDir(), "s"), "s", r.gossip(host))
	slave.waitState(state.Streaming)
	ports := []string{r.gossip(host), r.link(host), ha, remoting, r.at(host, 19), r.at(host, 16)}
	scan(t, ports, 40) // whatever is made once is made
	scanGossip(t, r.gossip(host), 40)
	files := settledFiles(t, master)
	memory, lines := rssAnon(t, master.cmd.Process.Pid), strings.Count(master.log.String(), "\n")
	connects := strings.Count(slave.log.String(), "state=connecting")
	began := time.Now()
	scan(t, ports, probesEach())
	scanGossip(t, r.gossip(host), probesEach())
	t.Logf("%d probes of each of %d ports took %v", probesEach(), len(ports)+1, time.Since(began).Round(time.Second))
	waitFor(t, "the descriptors to be as before", func() (string, bool) {
		now := openFiles(t, master)
		return fmt.Sprintf("%d, were %d", now, files), now <= files+2
	})
	if now := rssAnon(t, master.cmd.Process.Pid); now > memory+64*wire.MiB+wire.ByteSize(probesEach())*16*wire.KiB { // nearly all of it is the race detector's, without which it is 4 MiB
		t.Errorf("the memory grew from %s to %s", memory, now)
	} else {
		t.Logf("memory: %s, then %s; descriptors: %d, then %d", memory, now, files, openFiles(t, master))
	}
	if s := slave.waitState(state.Streaming); strings.Count(slave.log.String(), "state=connecting") != connects {
		t.Errorf("the replica was disturbed: %+v", s)
	}
	if now := strings.Count(master.log.String(), "\n"); now > lines+200+probesEach()/40 { // some of them are the progress
		t.Errorf("%d lines were logged about %d probes", now-lines, (len(ports)+1)*probesEach())
	}
	checkGoroutines(t, master)
}

// checkGoroutines ends the agent in a way that makes it name its goroutines.
func checkGoroutines(t *testing.T, a *haagent) {
	t.Helper()
	before := len(a.log.String())
	a.signal(syscall.SIGQUIT)
	a.exitWithin(patience)
	n := strings.Count(a.log.String()[before:], "\ngoroutine ")
	if n < 10 || n > 120 {
		t.Errorf("%d goroutines are left; some forty are at rest", n)
	}
	t.Logf("%d goroutines", n)
}

// settledFiles waits until the probes' connections are gone: as many descriptors as
// before the next three seconds.
func settledFiles(t *testing.T, a *haagent) (n int) {
	t.Helper()
	const looks = int(3 * time.Second / lookInterval)
	equal := 0
	waitFor(t, "descriptors that stay", func() (string, bool) {
		now := openFiles(t, a)
		if equal++; now != n {
			equal, n = 0, now
		}
		return fmt.Sprint(now), equal >= looks
	})
	return n
}

// openFiles counts the descriptors of an agent.
func openFiles(t *testing.T, a *haagent) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// scan probes each port so many times, from many addresses of this host.
func scan(t *testing.T, ports []string, each int) {
	t.Helper()
	var work sync.WaitGroup
	for _, port := range ports {
		work.Go(func() {
			for i := range each {
				if err := probe(port, i); err != nil {
					t.Errorf("probe %d of %s: %v", i, port, err)
					return
				}
			}
		})
	}
	work.Wait()
}

// probe connects, sends something, and goes; now and then after a look at what
// comes back.
func probe(port string, i int) (err error) {
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 7, byte(1+i%200))}}
	conn, err := d.Dial("tcp", port)
	if err != nil {
		return ignoreReset(err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := io.WriteString(conn, garbage[i%len(garbage)]); err != nil || i%5 != 0 {
		return ignoreReset(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 64)); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return ignoreReset(err)
	}
	return nil
}

// ignoreReset drops the errors of a connection that the other end has closed.
func ignoreReset(err error) error {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// scanGossip sends datagrams that are no gossip.
func scanGossip(t *testing.T, addr string, n int) {
	t.Helper()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(t, conn)
	for i := range n {
		if _, err := io.WriteString(conn, garbage[i%len(garbage)]+"."); err != nil {
			t.Fatalf("datagram %d: %v", i, err)
		}
	}
}
