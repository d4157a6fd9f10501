package stock_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"

	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// vetLog makes a log of so many bytes. Logs of different kinds have no message in
// common.
func vetLog(t *testing.T, kind int, size, n wire.ByteSize) *servedLog {
	t.Helper()
	l := newServedLog(t, size, 0)
	for range kind {
		l.random.Uint64()
	}
	l.grow(n)
	return l
}

// vetServe serves a log up to an end, as a broker would.
func vetServe(t *testing.T, l *servedLog, end wire.PhyOffset) *stock.Broker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveRemoting(t, stock.RemotingServerOptions{Listener: ln, CommitLogDir: l.dir, SegmentSize: l.size,
		End: func() wire.PhyOffset { return end },
		Config: map[string]string{"brokerClusterName": "c", "brokerName": "b", "brokerId": "0", "brokerRole": "ASYNC_MASTER",
			"listenPort": "10911", "haListenPort": "10912", "mappedFileSizeCommitLog": strconv.FormatInt(int64(l.size), 10)}})
}

// A slave with another log is found out by the heads of its segments; one that has
// the same bytes, fewer of them, none, or cannot be asked, is not.
func TestVetSlave(t *testing.T) {
	const size = 64 * wire.KiB
	l, short, long := vetLog(t, 0, size, 3*size), vetLog(t, 1, size, size/2), vetLog(t, 2, size, 3*size)
	end := l.writer.End()
	master, other := vetServe(t, l, end), vetServe(t, short, short.writer.End())
	for _, c := range []struct {
		name  string
		slave *stock.Broker
		want  error
	}{
		{"the same", vetServe(t, l, end), nil},
		{"less of the same", vetServe(t, l, end/2), nil},
		{"nothing", vetServe(t, l, 0), nil},
		{"another", other, stock.ErrOtherLog},
		{"another as long", vetServe(t, long, long.writer.End()), stock.ErrOtherLog},
	} {
		if err := stock.VetPatiently(t.Context(), c.slave.Addr(), stock.GroupMaster{Node: "m", Remoting: master.Addr()}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := nobody.Addr().String()
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	for slave, from := range map[string]string{gone: master.Addr(), other.Addr(): gone} {
		if err := stock.VetPatiently(t.Context(), slave, stock.GroupMaster{Node: "m", Remoting: from}); err != nil {
			t.Errorf("%s of %s: %v", slave, from, err)
		}
	}
}

// A slave that must not follow is told no master, as long as that is so; one that
// was let in is not looked at again, and nobody makes the registry look at others.
func TestRegistry_TellsNoMasterToOtherLogs(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	var asked []string
	verdict := stock.ErrOtherLog
	o.registry = stock.NewRegistry(stock.RegistryOptions{
		Find: func(string, string) (stock.GroupMaster, error) { return o.master, nil },
		Vet: func(_ context.Context, slave string, _ stock.GroupMaster) error {
			asked = append(asked, slave)
			return verdict
		},
	})
	o.answers = o.registry.Handlers()
	come := func(addr string) bool {
		t.Helper()
		got := o.register(1, addr, "orders")
		if got.Answer() != remoting.Success {
			t.Errorf("answered %v %s", got.Answer(), got.Remark)
		}
		return got.ExtFields["haServerAddr"] != ""
	}
	for range 2 {
		if come("10.0.0.2:10911") {
			t.Error("another log was let in")
		}
	}
	if len(asked) != 2 {
		t.Errorf("asked %q", asked)
	}
	verdict = nil
	for range 2 {
		if !come("10.0.0.2:10911") {
			t.Error("the same log was kept out")
		}
	}
	if !come("10.9.9.9:22") || len(asked) != 3 {
		t.Errorf("who speaks for another host made the registry ask %q", asked)
	}
}
