package stock_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// listenTo runs an Authority of m until the test ends, unless change says
// something else than what fits m.
func listenTo(t testing.TB, m *fakeMaster, change func(*stock.AuthorityOptions)) *stock.Authority {
	t.Helper()
	opt := stock.AuthorityOptions{
		Broker: stock.NewBroker(m.port.Addr().String(), stock.BrokerOptions{}), CommitLogDir: m.dir, Timing: fast,
	}
	if change != nil {
		change(&opt)
	}
	t.Cleanup(func() { closeAll(t, opt.Broker) })
	a := stock.NewAuthority(opt)
	if a.End() != wire.NoOffset || a.Status().Mode != stock.AuthorityNone {
		t.Errorf("before it runs the end is %d, the status %+v", a.End(), a.Status())
	}
	run(t, a.Run)
	return a
}

// ownMaster returns a master of a role that names its own directory.
func ownMaster(t testing.TB, l *servedLog, role string) *fakeMaster {
	t.Helper()
	return newConfiguredMaster(t, l, func(m *fakeMaster) {
		m.config["brokerRole"] = role
		m.config["storePathCommitLog"] = l.dir
	})
}

// saying makes the master answer request 26 with some properties changed.
func (m *fakeMaster) saying(changed map[string]string) {
	config := maps.Clone(m.config)
	maps.Copy(config, changed)
	var text strings.Builder
	for k, v := range config {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	m.lie(func(req remoting.Command) (remoting.Command, bool) {
		if req.Request() != remoting.GetBrokerConfig {
			return remoting.Command{}, false
		}
		a := req.Reply(remoting.Success, "")
		a.Body = []byte(text.String())
		if config["inSyncReplicas"] != "" {
			a.Version = 479 // 5.3.3
		}
		return a, true
	})
}

// count returns how often something was asked.
func (m *fakeMaster) count(code remoting.RequestCode) int {
	n := 0
	for _, e := range m.happened("ask") {
		if e.code == code {
			n++
		}
	}
	return n
}

func awaitEnd(t testing.TB, a *stock.Authority, want wire.PhyOffset) {
	t.Helper()
	eventually(t, fmt.Sprintf("the end %d", want), func() bool { return a.End() == want })
}

func awaitMode(t testing.TB, a *stock.Authority, want stock.AuthorityMode) {
	t.Helper()
	eventually(t, "mode "+string(want), func() bool { return a.Status().Mode == want })
}

func awaitCode(t testing.TB, a *stock.Authority, s state.State, code string) {
	t.Helper()
	eventually(t, "problem "+code, func() bool { p := a.Status().Problem; return p != nil && p.State == s && p.Code == code })
	if p := a.Status().Problem; p.Try == "" || p.Reason == "" || strings.Contains(p.Try, "--master ") {
		t.Errorf("a problem that helps nobody: %+v", p)
	}
}

// seldom is the clockwork of tests in which nothing may be asked by itself.
func seldom(opt *stock.AuthorityOptions) { opt.Timing.Survey = time.Hour }
