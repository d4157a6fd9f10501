//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/wire/remoting"
)

// relayChapter returns the blocks of README.md about producers that wait.
func relayChapter(t *testing.T) (properties map[string]string, command string, sample []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, chapter, found := strings.Cut(string(text), "\n## Producers that wait for replicas\n")
	chapter, _, _ = strings.Cut(chapter, "\n## ")
	for _, block := range fencedBlocks(chapter) {
		switch block.language {
		case "properties":
			properties = remoting.ParseProperties([]byte(strings.Join(block.lines, "\n")))
		case "sh":
			command = strings.Join(block.lines, "\n")
		case "text":
			sample = block.lines
		}
	}
	if !found || len(properties) == 0 || !strings.HasPrefix(command, "haagent --role master ") || len(sample) == 0 {
		t.Fatalf("README.md has properties %v, command %q, sample %q", properties, command, sample)
	}
	return properties, command, sample
}

// TestReadme_ProducersThatWaitForReplicas runs what README.md says about them
// beside a broker with the properties that stand there.
func TestReadme_ProducersThatWaitForReplicas(t *testing.T) {
	properties, command, sample := relayChapter(t)
	brokertest.ForEach(t, func(t *testing.T, v brokertest.Version) {
		r := newRelayed(t, v, properties)
		r.makeKey()
		names := strings.NewReplacer(readmeSource, r.broker.Dir(), "/etc/haagent/key", r.key)
		args := append(strings.Fields(names.Replace(command))[1:], "--broker", r.broker.Addr(),
			"--gossip-bind", r.gossip(r.host), "--link-bind", r.link(r.host), "--http", "127.0.0.1:0")
		r.master = startProcess(t, testBinary(t), r.broker.Dir(), args...)
		r.refused("without a replica")
		x := r.add("memory")
		x.reported()
		r.connected(true)
		for range 20 {
			if sent := r.driver.Send(t, brokertest.SendSpec{Topic: "orders"})[0]; sent.Status != brokertest.StatusOK {
				t.Errorf("with a replica: %s after %s", sent.Status, sent.Latency())
			}
		}
		stdout, stderr, code := haagentCommand(t, "status", "--dir", r.broker.Dir())
		if code != exitOK {
			t.Errorf("status ended with %d: %s", code, stderr)
		}
		for _, line := range sample {
			if !strings.Contains(shapes(stdout), shape(line)+"\n") {
				t.Errorf("status prints\n%s\nREADME.md shows\n%s", stdout, line)
			}
		}
		x.leave(byTerm)
		r.connected(false)
		r.refused("after the replica has left")
	})
}

// shapes is shape of each line.
func shapes(text string) string {
	var all strings.Builder
	for line := range strings.Lines(text) {
		all.WriteString(shape(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return all.String()
}
