//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// ring is where the agents of one test meet: loopback addresses that no other
// test has, and ports that are not the default ones, which agents of this machine
// may have on all addresses.
type ring struct {
	t       *testing.T
	network string // the first three bytes of all addresses
	last    int    // the last byte that was given out
	port    int    // of gossip; links have the next one
	key     string // the --key-file; empty: none
}

func newRing(t *testing.T) *ring {
	t.Helper()
	for range 100 {
		r := &ring{t: t, network: fmt.Sprintf("127.%d.%d.", 1+rand.IntN(60), 1+rand.IntN(254)), port: 12000 + 2*rand.IntN(4000)}
		claim, err := net.Listen("tcp", r.gossip(r.host()))
		if err == nil {
			t.Cleanup(func() { closeConn(t, claim) })
			return r
		}
	}
	t.Fatal("no addresses on loopback are free")
	return nil
}

// host returns an address that nobody has yet.
func (r *ring) host() string {
	r.last++
	return r.network + strconv.Itoa(r.last)
}

// gossip returns where an agent on host gossips.
func (r *ring) gossip(host string) string { return net.JoinHostPort(host, strconv.Itoa(r.port)) }

// link returns where a master on host serves replicas.
func (r *ring) link(host string) string { return net.JoinHostPort(host, strconv.Itoa(r.port+1)) }

// makeKey lets haagent make a key file, which agents started from now on have.
func (r *ring) makeKey() {
	r.t.Helper()
	r.key = filepath.Join(r.t.TempDir(), "ring.key")
	if stdout, stderr, code := haagentCommand(r.t, "keygen", r.key); code != exitOK {
		r.t.Fatalf("keygen ended with %d: %s%s", code, stdout, stderr)
	}
}

func (r *ring) start(dir, role, host string, args []string) *haagent {
	r.t.Helper()
	all := []string{"--role", role, "--dir", dir, "--gossip-bind", r.gossip(host)}
	if r.key != "" {
		all = append(all, "--key-file", r.key)
	}
	return startProcess(r.t, testBinary(r.t), dir, append(all, args...)...)
}

// startMaster starts a master agent on host.
func (r *ring) startMaster(dir, node, host string, args ...string) *haagent {
	r.t.Helper()
	return r.start(dir, "master", host, append([]string{"--node", node, "--link-bind", r.link(host)}, args...))
}

// startSlave starts a slave agent that is told one address, and nothing else of
// what it is to follow.
func (r *ring) startSlave(dir, node, join string, args ...string) *haagent {
	r.t.Helper()
	return r.start(dir, "slave", r.host(), append([]string{"--node", node, "--join", join}, args...))
}

// pair is a broker with an agent beside it, and slave agents that follow that.
type pair struct {
	*ring
	version brokertest.Version
	ns      *brokertest.NameServer
	broker  *brokertest.Broker
	driver  *brokertest.Driver

	host   string // where the master's gossip and link are
	master *haagent
	slaves []*haagent
}

// slaveNodes are the names of a pair's slaves.
var slaveNodes = []string{"s1", "s2"}

// startBrokerOf starts all of a pair but its agents. Segments are small.
func startBrokerOf(t *testing.T, v brokertest.Version) *pair {
	t.Helper()
	p := &pair{ring: newRing(t), version: v, ns: brokertest.StartNameServer(t, v)}
	p.broker = brokertest.StartBroker(t, brokertest.BrokerOptions{Version: v, NameServer: p.ns.Addr, SegmentSize: wire.MiB})
	p.driver = brokertest.StartDriver(t, v, p.ns.Addr)
	p.host = p.ring.host()
	return p
}

// startAgents starts the master's agent, and two slaves, of which the second acks
// what it has on disk.
func (p *pair) startAgents() {
	p.t.Helper()
	p.startOwnMaster()
	for i, args := range [][]string{nil, {"--ack", "disk"}} {
		p.slaves = append(p.slaves, p.startSlave(filepath.Join(p.t.TempDir(), slaveNodes[i]), slaveNodes[i], p.gossip(p.host), args...))
	}
	p.streaming()
}

func (p *pair) startOwnMaster(args ...string) {
	p.t.Helper()
	p.master = p.startMaster(p.broker.Dir(), "m1", p.host, append([]string{"--broker", p.broker.Addr()}, args...)...)
}

// streaming waits until all slaves are.
func (p *pair) streaming() {
	p.t.Helper()
	for _, s := range p.slaves {
		s.waitState(state.Streaming)
	}
}

// caughtUp waits until all slaves have all that the broker has.
func (p *pair) caughtUp() (end wire.PhyOffset) {
	p.t.Helper()
	for _, s := range p.slaves {
		end = max(end, s.caughtUp(p.broker))
	}
	return end
}

// stop makes the agent stand still, without anybody being told.
func (a *haagent) stop() { a.signal(syscall.SIGSTOP) }

// cont lets a stopped agent go on.
func (a *haagent) cont() { a.signal(syscall.SIGCONT) }

// wait asks the agent to wait for replicas, as haagent wait does.
func (a *haagent) wait(r control.WaitRequest) control.WaitAnswer {
	a.t.Helper()
	answer, err := control.Dial(a.http).Wait(a.t.Context(), r)
	if err != nil {
		a.t.Fatalf("wait %+v: %v", r, err)
	}
	return answer
}

// now waits for everything that is visible, for at most the given time.
func (a *haagent) now(replicas int, timeout time.Duration) control.WaitAnswer {
	a.t.Helper()
	return a.wait(control.WaitRequest{Offset: wire.NoOffset, Now: true, Acks: replicas, Timeout: timeout})
}

// follower returns what a master says of one of its replicas.
func follower(s control.Status, node string) (r control.Replica, ok bool) {
	for _, r := range s.Replicas {
		if r.Node == node {
			return r, true
		}
	}
	return control.Replica{}, false
}

// member returns the word for a node in the gossip; empty where it is not known.
func member(s control.Status, node string) string {
	for _, m := range s.Members {
		if m.Node == node {
			return m.Status
		}
	}
	return ""
}

// waitMember waits until the agent's gossip takes a node for what is said.
func (a *haagent) waitMember(node, status string) {
	a.t.Helper()
	a.waitStatus("member "+node+" to be "+status, func(s control.Status) bool { return member(s, node) == status })
}

// logged returns when the agent first logged a line with a text after a time.
func (a *haagent) logged(text string, after time.Time) (at time.Time, ok bool) {
	for line := range strings.Lines(a.log.String()) {
		stamp, rest, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && !at.Before(after) && strings.Contains(rest, text) {
			return at, true
		}
	}
	return time.Time{}, false
}

// backAfter waits until every slave streams again from a master that was started
// a moment ago, and returns how long the last of them took from when the master
// began to serve.
func (p *pair) backAfter() time.Duration {
	p.t.Helper()
	began, ok := p.master.logged("replicas are served", time.Time{})
	if !ok {
		waitFor(p.t, "the master to serve", func() (string, bool) {
			began, ok = p.master.logged("replicas are served", time.Time{})
			return p.master.log.String(), ok
		})
	}
	var took time.Duration
	for _, s := range p.slaves {
		waitFor(p.t, "a slave to stream again", func() (string, bool) {
			at, ok := s.logged("state="+string(state.Streaming), began)
			took = max(took, at.Sub(began))
			return s.log.String(), ok
		})
	}
	return took
}

// checkSameConfig waits until the config files of a replica are, byte for byte,
// those of the broker. The broker's timers write them now and then.
func checkSameConfig(t *testing.T, b *brokertest.Broker, a *haagent) {
	t.Helper()
	waitFor(t, "equal config files in "+a.dir, func() (string, bool) {
		names := make(map[string]bool)
		for _, f := range a.status().Metadata.Files {
			names[f.Name] = true
			want, err := os.ReadFile(filepath.Join(b.Dir(), "config", f.Name))
			if err != nil {
				return err.Error(), false
			}
			if got, err := os.ReadFile(filepath.Join(a.dir, "config", f.Name)); err != nil || !bytes.Equal(got, want) {
				return fmt.Sprintf("%s is %v\n%s\ninstead of\n%s", f.Name, err, got, want), false
			}
		}
		for _, name := range []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"} {
			if !names[name] {
				return name + " is missing", false
			}
		}
		return "", true
	})
}

// long reports whether the tests that get better with time have it.
func long() bool { return os.Getenv(longVariable) != "" }

// hold waits for a time in which something is to go on.
func hold(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}

// either returns the first time in short runs, and the second in long ones.
func either(short, full time.Duration) time.Duration {
	if long() {
		return full
	}
	return short
}
