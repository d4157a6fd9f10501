package agent_test

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// ask sends one request to a remoting port.
func ask(t testing.TB, addr string, code remoting.RequestCode, fields map[string]string) (remoting.Command, error) {
	t.Helper()
	b := stock.NewBroker(addr, stock.BrokerOptions{})
	defer b.Close()
	return b.Raw(t.Context(), code, fields, nil)
}

// below is the port that stock slaves ask for topics.
func below(t testing.TB, addr string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort(host, strconv.Itoa(n-2))
}

func writeTopics(t testing.TB, dir string) {
	t.Helper()
	for name, content := range map[string]string{
		"topics.json":            `{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"orders":{"topicName":"orders"}}}`,
		"subscriptionGroup.json": `{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{"billing":{}}}`,
	} {
		if err := forge.WriteConfig(dir, name, []byte(content), forge.Style4x, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A master answers about its store on both ports, an observer passes that on, and
// both tell slaves where the master is, as long as gossip knows one.
func TestStockRemoting_MasterAndObserver(t *testing.T) {
	t.Parallel()
	w := newTown()
	b := newBeside(t, w, nil)
	writeTopics(t, b.dir)
	ha, remote := b.ports()
	end := b.awaitServed(t)
	observer := runAgent(t, w, agent.Config{Role: agent.RoleObserver, Node: "o", RemotingBind: "127.0.0.1:0"})
	_, observed := observer.ports()
	for _, addr := range []string{remote, below(t, remote), observed, below(t, observed)} {
		topics, err := ask(t, addr, remoting.GetAllTopicConfig, nil)
		if err != nil || !strings.Contains(string(topics.Body), "orders") {
			t.Errorf("topics at %s: %s, %v", addr, topics.Body, err)
		}
		slave := map[string]string{"clusterName": "c", "brokerName": "b", "brokerId": "1", "brokerAddr": "127.0.0.1:1"}
		told, err := ask(t, addr, remoting.RegisterBroker, slave)
		if err == nil || !strings.Contains(err.Error(), "register broker failed") { // the body is no registration
			t.Errorf("zeros at %s: %v, %v", addr, told.ExtFields, err)
		}
		if told = register(t, addr, slave); told.ExtFields["haServerAddr"] != ha || told.ExtFields["masterAddr"] != remote {
			t.Errorf("at %s a slave is told %v, want %s and %s", addr, told.ExtFields, ha, remote)
		}
		if _, err := ask(t, addr, remoting.SendMessage, nil); !errors.Is(err, stock.ErrNotSupported) || !strings.Contains(err.Error(), "this is haagent") {
			t.Errorf("a message at %s: %v", addr, err)
		}
	}
	client := stock.NewBroker(observed, stock.BrokerOptions{})
	defer client.Close()
	info, err := client.RuntimeInfo(t.Context())
	if err != nil || info.MaxOffset != end || info.MinOffset != 0 {
		t.Errorf("the log is from %d to %d, %v; want the end %d", info.MinOffset, info.MaxOffset, err, end)
	}
	cfg, err := client.Config(t.Context())
	if err != nil || cfg.ClusterName != "c" || cfg.BrokerName != "b" || cfg.SegmentSize != 256*wire.KiB || net.JoinHostPort(cfg.BrokerIP2, strconv.Itoa(cfg.HAListenPort)) != ha {
		t.Errorf("the properties are %+v, %v", cfg, err)
	}
	b.stop()
	slave := map[string]string{"clusterName": "c", "brokerName": "b", "brokerId": "1", "brokerAddr": "127.0.0.1:1"}
	if told := register(t, observed, slave); told.Answer() != remoting.Success || len(told.ExtFields) != 0 {
		t.Errorf("without a master a slave is told %v %v", told.Answer(), told.ExtFields)
	}
	if _, err := ask(t, observed, remoting.GetAllTopicConfig, nil); !errors.Is(err, stock.ErrNotReady) || !strings.Contains(err.Error(), "no master") {
		t.Errorf("without a master topics are %v", err)
	}
}

// register registers a broker with one topic.
func register(t testing.TB, addr string, fields map[string]string) remoting.Command {
	t.Helper()
	conn := dial(t, addr, "")
	defer conn.Close()
	frame, err := remoting.Encode(remoting.NewRequest(remoting.RegisterBroker, fields,
		[]byte(`{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{"orders":{"readQueueNums":4,"writeQueueNums":4,"perm":6}}}}`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	answer, err := remoting.ReadCommand(conn, remoting.MaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// An agent that replicates from the ports of a master agent, as from a broker,
// gets its log.
func TestStockRemoting_AnAgentFollowsItToo(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), nil)
	writeTopics(t, b.dir)
	_, remote := b.ports()
	end := b.awaitServed(t)
	follower := runAgent(t, newTown(), agent.Config{Role: agent.RoleSlave, Node: "s", Dir: t.TempDir(), Master: remote})
	eventually(t, "the replica has the log", func() bool { return follower.Status().Offsets.Verified == end })
	b.awaitAcked(t, "127.0.0.1 "+end.String())
}

// Whom the list does not name gets no byte, on no port, and one line in the log.
func TestStockPorts_StrangersGetNothing(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), func(c *agent.Config) { c.HAAllow = allow(t, "127.0.0.1/32") })
	writeTopics(t, b.dir)
	ha, remote := b.ports()
	end := b.awaitServed(t)
	s := follow(t, ha, "127.0.0.1", 1)
	s.take(end)
	for _, addr := range []string{ha, remote, below(t, remote)} {
		for range 3 {
			conn := dial(t, addr, "127.0.0.2")
			if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, 1)); err == nil {
				if n, err := conn.Read(make([]byte, 1)); n != 0 || !gone(err) {
					t.Errorf("a stranger at %s read %d bytes, %v", addr, n, err)
				}
			}
			conn.Close()
		}
	}
	s.report(end)
	b.awaitAcked(t, "127.0.0.1 "+end.String())
	if n := strings.Count(b.log.String(), "peer=127.0.0.2"); n != 3 {
		t.Errorf("the log names the stranger %d times, want once for each of the three ports", n)
	}
}

func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// probes is how many connections a scanner makes to each port.
func probes() int {
	if os.Getenv("HAAGENT_LONG") != "" {
		return 20_000
	}
	return 300
}

// Probes of a port leave nothing behind, whatever they send, and do not disturb a
// good slave.
func TestStockPorts_ProbesLeaveNothing(t *testing.T) {
	b := newBeside(t, newTown(), nil)
	writeTopics(t, b.dir)
	ha, remote := b.ports()
	end := b.awaitServed(t)
	s := follow(t, ha, "", 1)
	s.take(end)
	s.report(end)
	b.awaitAcked(t, "127.0.0.1 "+end.String())
	garbage := [][]byte{nil, []byte("GET / HTTP/1.1\r\n\r\n"), {0, 0, 0}, {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc}, make([]byte, 8), {0, 0, 0, 5, 0, 0, 0, 1, '{'}}
	ports := []string{ha, remote, below(t, remote)}
	round := func(n int) {
		var work sync.WaitGroup
		for worker := range 4 {
			work.Go(func() {
				for i := worker; i < n; i += 4 {
					probe(t, ports[i%len(ports)], garbage[i/len(ports)%len(garbage)])
				}
			})
		}
		work.Wait()
	}
	round(30) // whatever is made once is made
	files, routines, heap := footprint(t)
	done := make(chan struct{})
	var alive sync.WaitGroup
	alive.Go(func() { s.keepReporting(done, end) })
	round(probes() * len(ports))
	close(done)
	alive.Wait()
	eventually(t, "descriptors and goroutines are as before", func() bool {
		f, r, _ := footprint(t)
		return f <= files+2 && r <= routines+4
	})
	if _, _, now := footprint(t); now > heap+8<<20 {
		t.Errorf("the heap grew from %d to %d", heap, now)
	}
	b.grow(t, 20)
	eventually(t, "more is confirmed", func() bool { return b.confirmed() > end })
	end = b.confirmed()
	s.take(end)
	s.report(end)
	b.awaitAcked(t, "127.0.0.1 "+end.String())
	told := 0
	for line := range strings.Lines(b.log.String()) {
		if !strings.Contains(line, "level=DEBUG") {
			told++
		}
	}
	if told > 100 {
		t.Errorf("the log grew by %d lines", told)
	}
}

// keepReporting reports as idle slaves do, until done.
func (s *fakeSlave) keepReporting(done <-chan struct{}, off wire.PhyOffset) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			err := s.conn.SetDeadline(time.Now().Add(patience))
			if err == nil {
				_, err = s.conn.Write(binary.BigEndian.AppendUint64(nil, uint64(off)))
			}
			if err != nil {
				s.t.Errorf("a good slave was disturbed: %v", err)
				return
			}
		}
	}
}

// probe connects, sends something, reads a little of what comes, and goes.
func probe(t *testing.T, addr string, send []byte) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		if !gone(err) {
			t.Errorf("probe: %v", err)
		}
		return
	}
	if _, err := conn.Write(send); err != nil && !gone(err) {
		t.Errorf("probe: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Errorf("probe: %v", err)
	}
}

func footprint(t *testing.T) (files, routines int, heap uint64) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return len(entries), runtime.NumGoroutine(), m.HeapAlloc
}

// What is served to everybody must say to whom, and only those serve that can.
func TestConfig_StockPorts(t *testing.T) {
	t.Parallel()
	base := agent.Config{Role: agent.RoleMaster, Node: "m", Dir: t.TempDir(), Finder: citizen{newTown(), "m"}}
	for _, c := range []struct {
		name string
		edit func(*agent.Config)
		key  string // "" where it is well
	}{
		{"loopback", func(c *agent.Config) { c.HABind, c.RemotingBind = "127.0.0.1:1", "[::1]:9876" }, ""},
		{"an address", func(c *agent.Config) { c.HABind = "10.0.0.5:10922" }, ""},
		{"everywhere", func(c *agent.Config) { c.HABind = "0.0.0.0:10922" }, "ha-bind"},
		{"everywhere in IPv6", func(c *agent.Config) { c.RemotingBind = "[::]:10921" }, "remoting-bind"},
		{"everywhere for some", func(c *agent.Config) { c.HABind, c.HAAllow = "0.0.0.0:10922", allow(t, "10.0.0.0/8") }, ""},
		{"no port", func(c *agent.Config) { c.HABind = "127.0.0.1" }, "ha-bind"},
		{"nothing to allow", func(c *agent.Config) { c.HAAllow = allow(t, "10.0.0.0/8") }, "ha-allow"},
		{"a slave's stream", func(c *agent.Config) { c.Role, c.HABind = agent.RoleSlave, "127.0.0.1:1" }, "ha-bind"},
		{"a slave's answers", func(c *agent.Config) { c.Role, c.RemotingBind = agent.RoleSlave, "127.0.0.1:1" }, "remoting-bind"},
		{"an observer's stream", func(c *agent.Config) { c.Role, c.Dir, c.HABind = agent.RoleObserver, "", "127.0.0.1:1" }, "ha-bind"},
		{"an observer's answers", func(c *agent.Config) { c.Role, c.Dir, c.RemotingBind = agent.RoleObserver, "", "127.0.0.1:9876" }, ""},
	} {
		cfg := base
		c.edit(&cfg)
		err := cfg.WithDefaults().Validate()
		var wrong *agent.ConfigError
		switch {
		case c.key == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.key != "" && (!errors.As(err, &wrong) || wrong.Key != c.key || wrong.Try == ""):
			t.Errorf("%s: %v, want an error about --%s with a next step", c.name, err, c.key)
		}
	}
}

// Where the port two below is taken, or there is none, that is said.
func TestStockRemoting_NeedsTwoPorts(t *testing.T) {
	t.Parallel()
	taken := listen(t)
	defer taken.Close()
	n, err := strconv.Atoi(port(t, taken))
	if err != nil {
		t.Fatal(err)
	}
	for bind, want := range map[string]string{net.JoinHostPort("127.0.0.1", strconv.Itoa(n+2)): "two ports below", "127.0.0.1:2": "two below"} {
		a, err := agent.New(agent.Config{Role: agent.RoleObserver, Node: "o", Finder: citizen{newTown(), "o"}, RemotingBind: bind}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var wrong *agent.ConfigError
		if err := a.Run(t.Context()); !errors.As(err, &wrong) || wrong.Key != "remoting-bind" || !strings.Contains(wrong.Why, want) {
			t.Errorf("bound to %s: %v", bind, err)
		}
	}
}
