//go:build linux

package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// visibleEnd is what wait --now waits for in these tests.
const visibleEnd = wire.PhyOffset(150)

// tableHandlers answer as a master does whose replicas are those of table.
func tableHandlers(table *acks.Table, members ...control.Member) control.Handlers {
	return control.Handlers{
		Status: func() control.Status {
			return control.Status{State: state.Serving, Role: "master", Replicas: []control.Replica{}, Members: members}
		},
		Wait: func(ctx context.Context, r control.WaitRequest) (control.WaitAnswer, error) {
			offset := r.Offset
			if r.Now {
				offset = visibleEnd
			}
			result := table.Wait(ctx, offset, r.Acks)
			return control.WaitAnswer{Result: result, Offset: offset, Acked: table.Rank(r.Acks), InReach: table.InReach()}, nil
		},
	}
}

// serveControl serves h until the test ends, and returns the address and a store
// root whose socket serves it too.
func serveControl(t *testing.T, h control.Handlers) (addr, dir string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.Mkdir(replica.AgentDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- h.ServeHTTP(ctx, l) }()
	go func() { ended <- h.ServeSocket(ctx, replica.AgentDir(dir)) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("control server: %v", err)
			}
		}
	})
	waitFor(t, "the socket", func() (string, bool) {
		if _, err := control.DialSocket(replica.AgentDir(dir)).Status(t.Context()); err != nil {
			return err.Error(), false
		}
		return "", true
	})
	return l.Addr().String(), dir
}

// commandCase is a command, and what it must print and end with.
type commandCase struct {
	name   string
	args   []string
	code   int
	stdout string // all of it
	stderr string // a part; "" means there is none
	lines  int    // of stderr
}

func (c commandCase) run(t *testing.T) {
	stdout, stderr, code := haagentCommand(t, c.args...)
	if code != c.code || stdout != c.stdout {
		t.Errorf("ended with %d and printed %q, want %d and %q; stderr %q", code, stdout, c.code, c.stdout, stderr)
	}
	if !strings.Contains(stderr, c.stderr) || strings.Count(stderr, "\n") != c.lines {
		t.Errorf("stderr is %q, want %d lines with %q", stderr, c.lines, c.stderr)
	}
}

// TestWait_WordsAndExitCodes: stdout is the word that scripts compare, stderr is
// one line that says why it is not PUT_OK.
func TestWait_WordsAndExitCodes(t *testing.T) {
	t.Parallel()
	table := acks.NewTable()
	table.Join("a", acks.Memory).Report(acks.Marks{Memory: 200, Disk: 200})
	table.Join("b", acks.Disk).Report(acks.Marks{Memory: 300, Disk: 100})
	addr, dir := serveControl(t, tableHandlers(table))
	nobody, _ := serveControl(t, tableHandlers(acks.NewTable()))
	closed := acks.NewTable()
	closed.Close()
	left, _ := serveControl(t, tableHandlers(closed))
	slave, _ := serveControl(t, control.Handlers{Status: func() control.Status { return control.Status{} }})
	const ok, late, alone = "PUT_OK\n", "FLUSH_SLAVE_TIMEOUT\n", "SLAVE_NOT_AVAILABLE\n"
	for _, c := range []commandCase{
		{"held", []string{"--http", addr, "--offset", "200"}, exitOK, ok, "", 0},
		{"offset 0", []string{"--http", addr, "--offset", "0", "--acks", "2"}, exitOK, ok, "", 0},
		{"now", []string{"--http", addr, "--now", "--timeout", "1m"}, exitOK, ok, "", 0},
		{"over the socket", []string{"--dir", dir, "--offset", "200"}, exitOK, ok, "", 0},
		{"the address goes before the store", []string{"--dir", dir, "--http", nobody, "--offset", "200"}, exitNoSlave, alone, "no replica is in reach", 1},
		{"not now", []string{"--http", addr, "--now", "--acks", "2", "--timeout", "10ms"}, exitNotConnected, late, "2 replicas acked up to 100 after", 1},
		{"not held", []string{"--http", addr, "--offset", "201", "--timeout", "10ms"}, exitNotConnected, late, "1 replica acked up to 200 after", 1},
		{"too few", []string{"--dir", dir, "--offset", "1", "--acks", "3", "--timeout", "10ms"}, exitNotConnected, late, "2 replicas in reach after", 1},
		{"nobody in reach", []string{"--http", nobody, "--offset", "0", "--timeout", "5m"}, exitNoSlave, alone, "no replica is in reach", 1},
		{"no master", []string{"--http", slave, "--offset", "0"}, exitNotConnected, "", "Try: ask the agent with --role master", 2},
		{"a master no more", []string{"--http", left, "--offset", "0"}, exitNotConnected, "", "is not a master", 2},
		{"no agent", []string{"--dir", t.TempDir(), "--offset", "0"}, exitNotConnected, "", "no agent works on", 2},

		{"nothing", []string{"--http", addr}, exitUsage, "", "--offset N", 2},
		{"two ends", []string{"--http", addr, "--offset", "5", "--now"}, exitUsage, "", "--now", 2},
		{"an argument", []string{"--http", addr, "100"}, exitUsage, "", "--offset 100", 2},
		{"a negative offset", []string{"--http", addr, "--offset", "-1"}, exitUsage, "", "offset is -1", 2},
		{"no number", []string{"--http", addr, "--offset", "much"}, exitUsage, "", "much", 2},
		{"no acks", []string{"--http", addr, "--offset", "1", "--acks", "0"}, exitUsage, "", "acks is 0", 2},
		{"more acks than can be", []string{"--http", addr, "--offset", "1", "--acks", "65"}, exitUsage, "", "1 to 64", 2},
		{"no time", []string{"--http", addr, "--offset", "1", "--timeout", "0s"}, exitUsage, "", "timeout is 0s", 2},
		{"more time than can be", []string{"--http", addr, "--offset", "1", "--timeout", "6m"}, exitUsage, "", "at most 5m0s", 2},
		{"a misspelt flag", []string{"--http", addr, "--offset", "1", "--ack", "2"}, exitUsage, "", "ack", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.args = append([]string{"wait"}, c.args...)
			c.run(t)
		})
	}
}

// TestWait_IsAnsweredLater: the process ends when the last replica that is needed
// has reported, or when there is none any more.
func TestWait_IsAnsweredLater(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(a *acks.Conn, table *acks.Table)
		code int
		want string
	}{
		{"reported", func(a *acks.Conn, _ *acks.Table) { a.Report(acks.Marks{Memory: visibleEnd, Disk: wire.NoOffset}) }, exitOK, "PUT_OK\n"},
		{"left", func(a *acks.Conn, _ *acks.Table) { a.Leave() }, exitNoSlave, "SLAVE_NOT_AVAILABLE\n"},
		{"closed", func(_ *acks.Conn, table *acks.Table) { table.Close() }, exitNotConnected, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			table := acks.NewTable()
			a := table.Join("a", acks.Memory)
			h := tableHandlers(table)
			asked := make(chan control.WaitRequest, 1)
			wait := h.Wait
			h.Wait = func(ctx context.Context, r control.WaitRequest) (control.WaitAnswer, error) {
				asked <- r
				return wait(ctx, r)
			}
			addr, _ := serveControl(t, h)
			acting := make(chan struct{})
			go func() {
				defer close(acting)
				if r := <-asked; r != (control.WaitRequest{Offset: wire.NoOffset, Now: true, Acks: 1, Timeout: 2 * time.Minute}) {
					t.Errorf("asked for %+v", r)
				}
				c.do(a, table)
			}()
			stdout, stderr, code := haagentCommand(t, "wait", "--now", "--timeout", "2m", "--http", addr)
			if code != c.code || stdout != c.want {
				t.Errorf("ended with %d: %q, %q", code, stdout, stderr)
			}
			<-acting
		})
	}
}

// A signal ends the command, and the agent is not left with its waiter.
func TestWait_Interrupted(t *testing.T) {
	t.Parallel()
	table := acks.NewTable()
	table.Join("a", acks.Memory)
	h := tableHandlers(table)
	asked, released := make(chan struct{}), make(chan struct{})
	wait := h.Wait
	h.Wait = func(ctx context.Context, r control.WaitRequest) (control.WaitAnswer, error) {
		close(asked)
		defer close(released)
		return wait(ctx, r)
	}
	addr, _ := serveControl(t, h)
	cmd := self(testBinary(t), "wait", "--now", "--timeout", "5m", "--http", addr)
	var stdout, stderr output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-time.After(patience):
		t.Error("the agent was not asked")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitNotConnected || stdout.String() != "" || !strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("ended with %v: %q, %q", err, stdout.String(), stderr.String())
	}
	select {
	case <-released:
	case <-time.After(patience):
		t.Error("the agent still waits")
	}
}

// TestWait_JSON prints the answer as it came.
func TestWait_JSON(t *testing.T) {
	t.Parallel()
	table := acks.NewTable()
	table.Join("a", acks.Memory).Report(acks.Marks{Memory: 200, Disk: 200})
	addr, _ := serveControl(t, tableHandlers(table))
	for _, c := range []struct {
		args []string
		code int
		want control.WaitAnswer
	}{
		{[]string{"--now"}, exitOK, control.WaitAnswer{Result: acks.PutOK, Offset: visibleEnd, Acks: 1, Acked: 200, InReach: 1}},
		{[]string{"--offset", "999", "--timeout", "20ms"}, exitNotConnected,
			control.WaitAnswer{Result: acks.FlushSlaveTimeout, Offset: 999, Acks: 1, Acked: 200, InReach: 1}},
	} {
		stdout, stderr, code := haagentCommand(t, append([]string{"wait", "--json", "--http", addr}, c.args...)...)
		var got control.WaitAnswer
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != c.code || (got.Reason == "") != (code == exitOK) {
			t.Errorf("%v ended with %d: %v, %s%s", c.args, code, err, stdout, stderr)
		}
		got.Reason, got.ElapsedSeconds = "", 0
		if got != c.want {
			t.Errorf("%v: %+v, want %+v", c.args, got, c.want)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	members := []control.Member{
		{Node: "host-1/broker-a/0", Addr: "10.0.0.1:7946", Role: "master", Cluster: "c1", BrokerName: "broker-a", BrokerID: 0, Status: "alive"},
		{Node: "host-2", Addr: "10.0.0.2:7946", Role: "slave", Cluster: "c1", BrokerName: "broker-a", BrokerID: 1, Status: "suspect"},
	}
	addr, dir := serveControl(t, tableHandlers(acks.NewTable(), members...))
	alone, _ := serveControl(t, tableHandlers(acks.NewTable()))
	asJSON, err := json.MarshalIndent(members, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const table = `NODE               ADDR           ROLE    GROUP          STATUS
host-1/broker-a/0  10.0.0.1:7946  master  c1/broker-a/0  alive
host-2             10.0.0.2:7946  slave   c1/broker-a/1  suspect
`
	for _, c := range []commandCase{
		{"table", []string{"members", "--http", addr}, exitOK, table, "", 0},
		{"over the socket", []string{"members", "--dir", dir, "--json"}, exitOK, string(asJSON) + "\n", "", 0},
		{"none", []string{"members", "--http", alone}, exitOK, "NODE  ADDR  ROLE  GROUP  STATUS\n", "without gossip", 1},
		{"none as JSON", []string{"members", "--http", alone, "--json"}, exitOK, "[]\n", "", 0},
		{"an argument", []string{"members", "--http", addr, "x"}, exitUsage, "", "--dir x", 2},
		{"no agent", []string{"members", "--dir", t.TempDir()}, exitNotConnected, "", "no agent works on", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}
