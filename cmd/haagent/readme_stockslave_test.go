//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// Where README.md has the ports for stock slaves, and who may use them.
const (
	readmeHA       = "10.0.0.5:10922"
	readmeRemoting = "10.0.0.5:10921"
	readmeObserved = "127.0.0.1:9876"
	readmeAllowed  = "10.0.0.0/24"
	readmeSeat     = "--join 10.0.0.8"
)

// stockNames are their substitutes.
func stockNames(t *testing.T) []string {
	return []string{readmeHA, brokertest.FreeAddr(t), readmeRemoting, brokertest.FreeAddr(t), readmeObserved, brokertest.FreeAddr(t),
		readmeAllowed, "127.0.0.0/8", readmeSeat, "--join " + brokertest.FreeAddr(t)}
}

// startObserver runs an observer as README.md says, beside a slave broker with the
// properties below, which must come to have all that the master's broker has.
func (r *readme) startObserver(command string) {
	r.t.Helper()
	observer := r.launch(command, r.t.TempDir())
	waitFor(r.t, "the observer to serve", func() (string, bool) {
		text := observer.log.String()
		return text, strings.Contains(text, "stock slaves may register") || observer.ended()
	})
	properties := r.slaveProperties()
	properties["namesrvAddr"] = r.names.Replace(properties["namesrvAddr"])
	if properties["mappedFileSizeCommitLog"] != "1073741824" {
		r.t.Errorf("the slave's segments are of %s bytes", properties["mappedFileSizeCommitLog"])
	}
	properties["mappedFileSizeCommitLog"] = "1048576" // as those of its master here
	slave := brokertest.StartBroker(r.t, brokertest.BrokerOptions{Version: brokertest.Versions()[0], Role: properties["brokerRole"],
		NameServer: properties["namesrvAddr"], SegmentSize: wire.MiB, Properties: properties})
	end := brokerEnd(r.t, r.source)
	waitLong(r.t, "the slave's acks", func() (string, bool) {
		s, err := control.DialSocket(replica.AgentDir(r.source.Dir())).Status(r.t.Context())
		row, ok := stockRow(s)
		return fmt.Sprintf("%+v, %v", s.Replicas, err), ok && row.Acked >= end && row.Ack == "memory"
	})
	if got := verifySame(r.t, r.source.Dir(), slave.Dir()); got < end {
		r.t.Errorf("the slave is identical up to %d of %d", got, end)
	}
	waitLong(r.t, "the slave's topics", func() (string, bool) {
		topics := configTable(slave, "topics.json", "topicConfigTable")
		return fmt.Sprint(topics), topics["orders"] != ""
	})
	same(r.t, "the slave", brokertest.Diff(r.sent, r.driver.PullFrom(r.t, slave.Addr(), "orders", stored(r.sent))))
	slave.Kill()
	observer.term()
}

// slaveProperties are those that README.md gives a slave broker.
func (r *readme) slaveProperties() map[string]string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.root, "README.md"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, block := range fencedBlocks(string(text)) {
		if block.language == "properties" && slices.Contains(block.lines, "brokerRole=SLAVE") {
			return remoting.ParseProperties([]byte(strings.Join(block.lines, "\n")))
		}
	}
	r.t.Fatal("README.md shows no properties of a slave broker")
	return nil
}
