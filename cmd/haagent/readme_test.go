//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// Names that the documents use for what is different on every machine.
const (
	readmeMaster   = "10.0.0.5:10911"
	readmeStore    = "/var/lib/rocketmq/store"
	readmeSource   = "/data/rocketmq/store"      // the broker's, in a pair
	readmeReplica  = "/var/lib/rocketmq/replica" // and that of the pair's slave
	readmeSeed     = "--join 10.0.0.5"
	readmePromoted = "10.0.0.6:10911"              // the broker on the promoted replica
	readmeOld      = "/var/lib/rocketmq/old-store" // the store of the master that is gone
	readmeBroker   = "broker-1"
	readmeNode     = "replica-1"
)

// buildPatience is how long a command may take that compiles everything anew.
const buildPatience = 5 * time.Minute

// readme runs the commands of documents in their order against real brokers.
type readme struct {
	t      *testing.T
	ns     *brokertest.NameServer
	source *brokertest.Broker // whom agents follow
	driver *brokertest.Driver
	sent   []brokertest.Sent

	root   string // of the checkout
	bin    string // where README.md installs to; first on the PATH
	dir    string // of the replica
	names  *strings.Replacer
	agent  *haagent // the one that was started last
	master *haagent // the one beside the broker
	pair   string   // the status page of the pair's master

	commands, samples int // run and compared
}

// TestReadme_EveryCommandRuns runs every command of README.md, and then those of
// docs/operations.md that lead back after a failover, as they stand there, but
// for addresses and directories. What each prints is held against the sample
// below it.
func TestReadme_EveryCommandRuns(t *testing.T) {
	t.Parallel() // most of the time is waiting
	version := brokertest.Versions()[0]
	r := &readme{t: t, root: filepath.Join("..", ".."), bin: t.TempDir(), dir: filepath.Join(t.TempDir(), "store")}
	r.ns = brokertest.StartNameServer(t, version)
	master := brokertest.StartBroker(t, brokertest.BrokerOptions{Version: version, NameServer: r.ns.Addr})
	r.source = master
	r.driver = brokertest.StartDriver(t, version, r.ns.Addr)
	r.sent = r.driver.Send(t, brokertest.SendSpec{Topic: "orders", Count: 2000, Threads: 2})
	r.driver.CommitOffsets(t, "billing", "orders", map[int]int64{0: 7})
	seed := brokertest.FreeAddr(t)
	r.pair = brokertest.FreeAddr(t)
	r.names = strings.NewReplacer(append(stockNames(t), readmeMaster, master.Addr(), readmeStore, r.dir, readmeSource, master.Dir(), readmeReplica, filepath.Join(t.TempDir(), "replica"),
		"--role master", "--role master --gossip-bind "+seed+" --link-bind 127.0.0.1:0 --broker "+master.Addr()+" --http "+r.pair,
		readmeSeed, "--join "+seed+" --gossip-bind 127.0.0.1:0 --http 127.0.0.1:0",
		"/usr/local/bin/", r.bin+"/", "/etc/rocketmq/", t.TempDir()+"/", "/etc/haagent/", t.TempDir()+"/", "sudo ", "")...)
	r.play("README.md")
	if r.source == master {
		t.Fatal("README.md boots no broker on the replica")
	}
	r.dir = master.Dir()
	r.names = strings.NewReplacer(readmePromoted, r.source.Addr(), readmeOld, r.dir)
	r.play("docs/operations.md")
	r.agent.term()
	if got := verifySame(t, r.source.Dir(), r.dir); got < lastByte(r.sent) {
		t.Errorf("on the way back: identical up to %d, messages end at %d", got, lastByte(r.sent))
	}
	if r.commands < 19 || r.samples < 6 {
		t.Errorf("%d commands and %d samples were found: are the fences still read?", r.commands, r.samples)
	}
}

// play runs the commands of one document.
func (r *readme) play(document string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(document)))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, block := range fencedBlocks(string(text)) {
		if block.language != "sh" {
			continue
		}
		var printed strings.Builder
		for _, command := range block.lines {
			printed.WriteString(r.run(command))
			r.commands++
		}
		if block.sample != nil {
			r.samples++
			r.compare(document, block.lines, printed.String(), block.sample)
		}
	}
}

// run runs one command to its end, or the agent beside the test, and returns
// what it printed on stdout.
func (r *readme) run(command string) string {
	r.t.Helper()
	switch {
	case command == "make test":
		r.runsInCI(command) // this test is a part of it
		return ""
	case command == "make packages":
		r.runsInCI("make packages-check") // builds them, and installs them
		return ""
	case strings.HasPrefix(command, "haagent --role master "):
		if r.master != nil {
			r.master.term() // it is started anew, with more options
		}
		r.startAgent(command, r.source.Dir(), state.Serving)
		r.master = r.agent
		return ""
	case strings.HasPrefix(command, "haagent --role observer "):
		r.startObserver(command)
		return ""
	case strings.HasPrefix(command, "haagent --role slave ") && strings.Contains(command, " --join "):
		r.startAgent(command, r.names.Replace(readmeReplica), state.Streaming)
		return ""
	case strings.HasPrefix(command, "haagent --role slave "):
		r.startAgent(command, r.dir, state.Streaming)
		return ""
	case command == "haagent members", strings.HasPrefix(command, "haagent wait "):
		return r.shell(command + " --http " + r.pair)
	case strings.HasPrefix(command, "haagent promote "):
		r.source.Kill()
		if r.master != nil { // the machine is gone, and what stood beside the broker with it
			r.master.kill()
		}
		out := r.shell(command)
		if code := r.agent.exitWithin(endPatience); code != exitOK {
			r.t.Errorf("the promoted agent ended with %d:\n%s", code, r.agent.log.String())
		}
		return out
	case strings.HasPrefix(command, "sh bin/mqbroker "):
		r.boot(command)
		return ""
	}
	return r.shell(command)
}

// shell runs a command as a reader would, in the checkout.
func (r *readme) shell(command string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), buildPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", r.names.Replace(command))
	cmd.Dir, cmd.WaitDelay = r.root, endPatience
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "PATH=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+r.bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	var stdout, stderr output
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r.t.Logf("$ %s\n%s%s", command, &stdout, &stderr)
	if err != nil {
		r.t.Fatalf("%s: %v", command, err)
	}
	return stdout.String()
}

// launch starts the installed haagent as the document says.
func (r *readme) launch(command, dir string) *haagent {
	r.t.Helper()
	args := strings.Fields(r.names.Replace(command))
	agent := &haagent{t: r.t, cmd: self(filepath.Join(r.bin, args[0]), args[1:]...), dir: dir, done: make(chan struct{})}
	agent.cmd.Stderr = &agent.log
	if err := agent.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(agent.done)
		err := agent.cmd.Wait()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			r.t.Errorf("wait for haagent: %v", err)
		}
		agent.code = agent.cmd.ProcessState.ExitCode()
	}()
	r.t.Cleanup(agent.kill)
	r.t.Logf("$ %s", command)
	return agent
}

// startAgent starts the installed haagent as the document says and waits
// until it is in the state, has all of the log, and the config files.
func (r *readme) startAgent(command, dir string, want state.State) {
	r.t.Helper()
	agent := r.launch(command, dir)
	end := brokerEnd(r.t, r.source)
	waitFor(r.t, "the agent to be in sync", func() (string, bool) {
		s, err := control.DialSocket(replica.AgentDir(dir)).Status(r.t.Context())
		if err != nil {
			return err.Error(), agent.ended()
		}
		return s.Reason, s.State == want && s.Offsets.Verified >= end && (want == state.Serving || s.Offsets.Flushed >= end) && len(s.Metadata.Files) > 0
	})
	if agent.ended() {
		r.t.Fatalf("%s ended:\n%s", command, agent.log.String())
	}
	r.agent = agent
}

// lastByte returns where the last of the messages ends, or a little before.
func lastByte(sent []brokertest.Sent) wire.PhyOffset {
	end := wire.PhyOffset(0)
	for _, s := range sent {
		end = max(end, s.PhyOffset)
	}
	return end
}

// boot boots an unmodified broker with the promoted properties, which must serve
// every message.
func (r *readme) boot(command string) {
	r.t.Helper()
	args := strings.Fields(r.names.Replace(command))
	if len(args) < 4 || args[2] != "-c" {
		r.t.Fatalf("%q has no -c FILE", command)
	}
	text, err := os.ReadFile(args[3])
	if err != nil {
		r.t.Fatal(err)
	}
	properties := remoting.ParseProperties(text)
	if properties["storePathRootDir"] != r.dir || properties["brokerId"] != "0" {
		r.t.Errorf("promote printed %v", properties)
	}
	r.t.Logf("$ %s", command)
	r.source = brokertest.StartBroker(r.t, brokertest.BrokerOptions{Version: brokertest.Versions()[0], NameServer: r.ns.Addr,
		Dir: r.dir, SegmentSize: wire.MiB, Properties: properties})
	got := r.driver.PullN(r.t, "orders", stored(r.sent))
	same(r.t, "the promoted broker", brokertest.Diff(r.sent, got))
	if at := r.driver.GroupOffsets(r.t, "billing", "orders")[0]; at != 7 {
		r.t.Errorf("the group's position is %d after promotion, was 7", at)
	}
}

// runsInCI fails unless .ci/run has the command on a line of its own.
func (r *readme) runsInCI(command string) {
	r.t.Helper()
	script, err := os.ReadFile(filepath.Join(r.root, ".ci", "run"))
	if err != nil {
		r.t.Fatal(err)
	}
	if !strings.Contains(string(script), "\n"+command+"\n") {
		r.t.Errorf(".ci/run does not run %q", command)
	}
}

// compare holds a command's output against its sample: the same lines but for
// figures and names of this machine.
func (r *readme) compare(document string, commands []string, printed string, sample []string) {
	r.t.Helper()
	if host, err := os.Hostname(); err == nil {
		printed = strings.ReplaceAll(printed, host+"/broker-a/0", readmeBroker+"/broker-a/0")
		printed = strings.ReplaceAll(printed, host+"/", readmeNode+"/")
	}
	got := strings.Split(strings.TrimSuffix(printed, "\n"), "\n")
	for i, line := range sample {
		if i >= len(got) {
			r.t.Errorf("%q prints %d lines, %s shows %d", commands, len(got), document, len(sample))
			return
		}
		if shape(got[i]) != shape(r.names.Replace(line)) {
			r.t.Errorf("%q prints\n%s\n%s shows\n%s", commands, got[i], document, line)
		}
	}
	if len(got) > len(sample) {
		r.t.Errorf("%q prints more than %s shows: %q", commands, document, got[len(sample):])
	}
}

var (
	figure = regexp.MustCompile(`[0-9][0-9.,]*( ?([KMG]iB|B|ns|µs|ms|s|m)\b)?`)
	blanks = regexp.MustCompile(` +`)
)

// shape leaves of a line what is the same in every run.
func shape(line string) string {
	return strings.TrimSpace(blanks.ReplaceAllString(figure.ReplaceAllString(line, "#"), " "))
}

// A fenced block of Markdown with the text block that follows it directly.
type fencedBlock struct {
	language string
	lines    []string
	sample   []string // nil where none follows
}

// fencedBlocks returns the blocks between fences of three backquotes.
func fencedBlocks(markdown string) []fencedBlock {
	var blocks []fencedBlock
	open, adjacent := false, false
	for line := range strings.Lines(markdown) {
		line = strings.TrimSuffix(line, "\n")
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !open:
			open = true
			if language != "text" || !adjacent {
				adjacent = false
				blocks = append(blocks, fencedBlock{language: language})
			}
		case fence:
			open, adjacent = false, !adjacent
		case open && adjacent:
			last := &blocks[len(blocks)-1]
			last.sample = append(last.sample, line)
		case open:
			last := &blocks[len(blocks)-1]
			last.lines = append(last.lines, line)
		default:
			adjacent = false
		}
	}
	return blocks
}
