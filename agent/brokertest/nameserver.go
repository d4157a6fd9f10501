package brokertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A NameServer is a running, unmodified name server.
type NameServer struct {
	// Addr is its host:port on loopback.
	Addr string

	t       testing.TB
	process *jvm
}

// StartNameServer starts a name server on a free port and waits until it
// answers. It is killed when the test ends.
func StartNameServer(t testing.TB, v Version) *NameServer {
	t.Helper()
	n, err := startNameServer(t, v)
	if err != nil {
		t.Fatalf("name server %s: %v", v, err)
	}
	return n
}

func startNameServer(t testing.TB, v Version) (*NameServer, error) {
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	lib, err := c.classPath(v)
	if err != nil {
		return nil, err
	}
	ports, err := holdPorts(t)
	if err != nil {
		return nil, err
	}
	home := t.TempDir()
	conf := filepath.Join(home, "namesrv.properties")
	text := "listenPort=" + strconv.Itoa(ports.listen()) + "\n" +
		"kvConfigPath=" + filepath.Join(home, "kvConfig.json") + "\n" +
		"configStorePath=" + filepath.Join(home, "namesrv.stored") + "\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	process, err := startJVM(jvmOptions{
		classPath: lib, home: home, heapMiB: 96, log: filepath.Join(home, "out.log"),
		main: "org.apache.rocketmq.namesrv.NamesrvStartup", args: []string{"-c", conf},
	})
	if err != nil {
		return nil, err
	}
	killAtEnd(t, process)
	n := &NameServer{Addr: loopback(ports.listen()), t: t, process: process}
	return n, awaitServing(process, plainly(n.Addr), clusterInfo, "boot success")
}

// Log returns what the name server has printed.
func (n *NameServer) Log() string { return n.process.output() }

// Kill ends the name server with SIGKILL and waits for the process to end.
func (n *NameServer) Kill() {
	n.t.Helper()
	if err := n.process.kill(); err != nil {
		n.t.Errorf("name server %s: %v", n.Addr, err)
	}
}

// holdPorts reserves a block of ports until the test has ended.
func holdPorts(t testing.TB) (*portBlock, error) {
	ports, err := reservePorts()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := ports.release(); err != nil {
			t.Errorf("release ports: %v", err)
		}
	})
	return ports, nil
}

// killAtEnd kills a process when the test ends.
func killAtEnd(t testing.TB, p *jvm) {
	t.Cleanup(func() {
		if err := p.kill(); err != nil {
			t.Errorf("%v", err)
		}
	})
}
