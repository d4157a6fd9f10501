package agent_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// A master that was replaced serves no stock slave and counts none, also where the
// one that replaced it is out of sight.
func TestStockHA_ReplacedMasterServesNobody(t *testing.T) {
	t.Parallel()
	w := newTown()
	var cfg agent.Config
	b := newBeside(t, w, func(c *agent.Config) { cfg = *c })
	end := b.awaitServed(t)
	otherMaster(w, 1, "alive")
	b.await(state.SplitBrain, "stale_epoch")
	b.stop()

	again := runAgent(t, newTown(), cfg)
	again.await(state.SplitBrain, "stale_epoch")
	eventually(t, "the log is known", func() bool { return again.Status().Offsets.Verified >= end })
	addr, _ := again.ports()
	s := &fakeSlave{t: t, conn: dial(t, addr, "")}
	s.report(end)
	s.ended()
	if now := again.Status(); len(now.Replicas) != 0 || now.State != state.SplitBrain {
		t.Errorf("%+v", now)
	}
}

// Nor does one whose name another agent has (I4).
func TestStockHA_NameConflictEndsIt(t *testing.T) {
	t.Parallel()
	w := newTown()
	b := newBeside(t, w, nil)
	addr, _ := b.ports()
	end := b.awaitServed(t)
	s := follow(t, addr, "", 1)
	s.take(end)
	s.report(end)
	b.awaitAcked(t, "127.0.0.1 "+end.String())
	w.claim("m")
	s.ended()
	b.awaitAcked(t, "")
	w.claim()
	eventually(t, "slaves are served again", func() bool { return answers(addr) })
}

// Slaves are not sent to a master that was replaced, wherever the one is now that
// replaced it.
func TestStockRemoting_ReplacedMasterIsNotTold(t *testing.T) {
	t.Parallel()
	w := newTown()
	master := func(node string, epoch int64, status string) {
		w.change(node, func(m *agent.Member) {
			m.Role, m.Cluster, m.BrokerName, m.Epoch, m.Status = "master", "c", "b", epoch, status
			m.Link, m.HA, m.Remoting = "10.0.0.1:10915", "10.0.0.1:10912", "10.0.0.1:10911"
		})
	}
	master("old", 0, "alive")
	observer := runAgent(t, w, agent.Config{Role: agent.RoleObserver, Node: "o", RemotingBind: "127.0.0.1:0"})
	_, observed := observer.ports()
	slave := map[string]string{"clusterName": "c", "brokerName": "b", "brokerId": "1", "brokerAddr": "127.0.0.1:1"}
	if told := register(t, observed, slave); told.ExtFields["masterAddr"] != "10.0.0.1:10911" {
		t.Fatalf("a slave is told %v", told.ExtFields)
	}
	master("new", 1, "dead")
	if told := register(t, observed, slave); told.Answer() != remoting.Success || len(told.ExtFields) != 0 {
		t.Errorf("a slave is told %v %v", told.Answer(), told.ExtFields)
	}
}

// waitNow asks as haagent wait --now does.
func waitNow(t *testing.T, addr, timeout string) (a control.WaitAnswer) {
	t.Helper()
	query := url.Values{"offset": {"now"}, "acks": {"1"}, "timeout": {timeout}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/wait?"+query.Encode(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

// Who asks about what was just stored is not told of what was known before (I3):
// neither when the time was up before anybody looked, nor where a look cannot reach
// the end.
func TestWait_NowIsNotWhatWasKnown_I3(t *testing.T) {
	t.Parallel()
	l := listen(t)
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b := newBeside(t, newTown(), func(c *agent.Config) { c.HTTP = addr })
	ha, _ := b.ports()
	end := b.awaitServed(t)
	s := follow(t, ha, "", 1)
	s.take(end)
	s.report(end)
	b.awaitAcked(t, "127.0.0.1 "+end.String())
	for range 50 {
		b.grow(t, 1)
		if a := waitNow(t, addr, "1ns"); a.Result != acks.FlushSlaveTimeout {
			t.Fatalf("without time to look: %+v", a)
		}
	}
	bad := b.growDamaged(t)
	eventually(t, "the damage is known", func() bool { return b.Status().Code == "source_corrupt" && b.confirmed() == bad })
	s.take(bad)
	s.report(bad)
	b.awaitAcked(t, "127.0.0.1 "+bad.String())
	if a := waitNow(t, addr, "5s"); a.Result != acks.SlaveNotAvailable || !strings.Contains(a.Reason, bad.String()) {
		t.Errorf("behind a damaged message: %+v", a)
	}
}

// growDamaged stores two messages, the first of them with a damaged body, and
// returns where that begins.
func (b *beside) growDamaged(t *testing.T) wire.PhyOffset {
	t.Helper()
	at := b.writer.End()
	m := forge.Message{Topic: "t", Body: []byte("body")}
	log := forge.AppendMessage(nil, m, at)
	next := at.Add(wire.ByteSize(len(log)))
	log[bytes.Index(log, m.Body)] ^= 1
	base := at.SegmentBase(256 * wire.KiB)
	f, err := os.OpenFile(filepath.Join(b.writer.CommitLogDir(), commitlog.Name(base)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(forge.AppendMessage(log, m, next), int64(at.Sub(base))); err != nil {
		t.Fatal(err)
	}
	return at
}
