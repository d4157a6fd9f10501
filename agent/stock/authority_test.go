package stock_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// An asynchronous master tells its end over the HA connection alone. What is
// reported there stays what was asked for: the master's end at that moment.
func TestAuthority_I3_AnAsynchronousMasterTellsItsEndAndHearsOfNone(t *testing.T) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"tcp":     func(c net.Conn) net.Conn { return c },
		"not tcp": func(c net.Conn) net.Conn { return struct{ net.Conn }{c} },
	} {
		for _, empty := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, empty %v", name, empty), func(t *testing.T) {
				l := newServedLog(t, 64*wire.KiB, 0)
				if !empty {
					l.grow(100 * wire.KiB)
				}
				m := ownMaster(t, l, "ASYNC_MASTER")
				first := l.writer.End()
				a := listenTo(t, m, func(opt *stock.AuthorityOptions) {
					seldom(opt)
					opt.Timing.Heartbeat = 20 * time.Millisecond
					opt.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := new(net.Dialer).DialContext(ctx, network, addr)
						return wrap(conn), err
					}
				})
				awaitMode(t, a, stock.AuthorityHA)
				awaitEnd(t, a, first)
				for range 40 {
					l.grow(10 * wire.KiB)
					awaitEnd(t, a, l.writer.End())
				}
				eventually(t, "some reports", func() bool { return len(m.happened("report")) > 5 })
				for _, e := range m.happened("request", "report") {
					if e.off != first || e.link != 1 {
						t.Errorf("%v, the end was %d", e, first)
					}
				}
				if st := a.Status(); st.Version != "V4_9_7" || st.Role != "ASYNC_MASTER" || st.BrokerName != "b1" || st.Problem != nil || st.Err != nil {
					t.Errorf("status %+v", st)
				}
			})
		}
	}
}

// Of a master that waits for its slaves nobody may become one: it is asked, and
// only while that is wanted.
func TestAuthority_ASynchronousMasterIsOnlyAsked(t *testing.T) {
	for _, role := range []string{"SYNC_MASTER", "SLAVE", "SOMETHING_NEW"} {
		t.Run(role, func(t *testing.T) {
			l := newServedLog(t, 64*wire.KiB, 0)
			l.grow(wire.KiB)
			m := ownMaster(t, l, role)
			a := listenTo(t, m, seldom)
			awaitEnd(t, a, l.writer.End())
			before := m.count(remoting.GetBrokerRuntimeInfo)
			old := a.End()
			l.grow(wire.KiB)
			a.Want(false)
			if n := m.count(remoting.GetBrokerRuntimeInfo); n != before || a.End() != old {
				t.Errorf("asked %d times for what nobody wants", n-before)
			}
			for range 20 {
				l.grow(wire.KiB)
				a.Want(true)
				awaitEnd(t, a, l.writer.End())
				a.Want(false)
			}
			a.Want(true) // and again and again until there is something
			n := m.count(remoting.GetBrokerRuntimeInfo)
			eventually(t, "more questions", func() bool { return m.count(remoting.GetBrokerRuntimeInfo) > n+3 })
			l.grow(wire.KiB)
			awaitEnd(t, a, l.writer.End())
			if asked := m.asked(); asked != nil || a.Status().Mode != stock.AuthorityAsked {
				t.Errorf("%s: asked the HA port for %v, status %+v", role, asked, a.Status())
			}
		})
	}
}

// While nothing moves the questions thin out to one each 50 ms, and they end
// when nobody wants to know any more.
func TestAuthority_AsksLessAndLess_Fault42(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(wire.KiB)
	m := ownMaster(t, l, "SYNC_MASTER")
	a := listenTo(t, m, seldom)
	awaitEnd(t, a, l.writer.End())
	a.Want(true)
	eventually(t, "slow questions", func() bool {
		asks := m.happened("ask")
		if len(asks) < 10 {
			return false
		}
		last := asks[len(asks)-1].at.Sub(asks[len(asks)-2].at)
		return last >= 45*time.Millisecond
	})
	if n := len(m.happened("ask")); n > 30 {
		t.Errorf("%d questions before they were slow", n)
	}
}

// A master that begins to wait for its slaves loses the HA connection, and one
// that stops gets it back.
func TestAuthority_ModeFollowsTheRole(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(wire.KiB)
	m := ownMaster(t, l, "ASYNC_MASTER")
	a := listenTo(t, m, nil)
	awaitMode(t, a, stock.AuthorityHA)
	for range 3 {
		m.saying(map[string]string{"brokerRole": "SYNC_MASTER"})
		eventually(t, "the end of the HA connection", func() bool {
			return len(m.happened("close")) == len(m.happened("request")) && a.Status().Role == "SYNC_MASTER"
		})
		l.grow(wire.KiB)
		a.Want(true)
		awaitEnd(t, a, l.writer.End())
		if mode := a.Status().Mode; mode != stock.AuthorityAsked {
			t.Errorf("mode %s", mode)
		}
		m.lie(nil)
		awaitMode(t, a, stock.AuthorityHA)
	}
}

// What a broker says is taken only once it is known to write our directory.
func TestAuthority_I1_OtherBrokersConfirmNothing(t *testing.T) {
	other := func(t *testing.T) *servedLog {
		l := newServedLog(t, 64*wire.KiB, 0)
		l.random.Uint64() // another log from the first message on
		l.grow(90 * wire.KiB)
		return l
	}
	for name, c := range map[string]struct {
		path func(own, others *servedLog) string // what the broker of the other log says
	}{
		"another directory":                {func(_, others *servedLog) string { return others.dir }},
		"a directory with our name":        {func(own, _ *servedLog) string { return own.dir }},
		"a directory that is not here":     {func(*servedLog, *servedLog) string { return "/nowhere/store/commitlog" }},
		"a directory below we know not it": {func(*servedLog, *servedLog) string { return "store/commitlog" }},
		"several directories":              {func(_, others *servedLog) string { return "/nowhere/a," + others.dir }},
	} {
		t.Run(name, func(t *testing.T) {
			own, others := newServedLog(t, 64*wire.KiB, 0), other(t)
			own.grow(120 * wire.KiB)
			m := ownMaster(t, others, "ASYNC_MASTER")
			m.saying(map[string]string{"storePathCommitLog": c.path(own, others)})
			a := listenTo(t, m, func(opt *stock.AuthorityOptions) { opt.CommitLogDir = own.dir })
			awaitCode(t, a, state.Incompatible, "other_broker")
			if st := a.Status(); a.End() != wire.NoOffset || st.Mode != stock.AuthorityNone || st.BrokerName != "b1" || m.asked() != nil {
				t.Errorf("end %d, asked the HA port for %v, status %+v", a.End(), m.asked(), st)
			}
		})
	}
}

// A directory that cannot be looked at from here is ours if its last message is.
func TestAuthority_ABrokerInAContainerIsKnownByItsLastMessage(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	m := ownMaster(t, l, "SYNC_MASTER")
	m.saying(map[string]string{"storePathCommitLog": "/nowhere/store/commitlog"})
	a := listenTo(t, m, nil)
	eventually(t, "a reason", func() bool { return a.Status().Err != nil })
	if a.End() != wire.NoOffset || a.Status().Problem != nil {
		t.Errorf("an empty log proves nothing, but the end is %d, the status %+v", a.End(), a.Status())
	}
	l.grow(100 * wire.KiB)
	awaitEnd(t, a, l.writer.End())
	l.roll() // the end is where the next segment begins
	awaitEnd(t, listenTo(t, m, seldom), l.writer.End())
	last := wire.NoOffset
	for _, e := range m.happened("ask") {
		if e.code == remoting.ViewMessageByID {
			last = e.off
		}
	}
	if last <= wire.PhyOffset(64*wire.KiB) {
		t.Errorf("compared the message at %d", last)
	}
}

// An HA port of another broker moves nothing, whatever its log looks like.
func TestAuthority_I1_AnotherBrokersHAPortConfirmsNothing(t *testing.T) {
	own, others := newServedLog(t, 64*wire.KiB, 0), newServedLog(t, 64*wire.KiB, 0)
	own.grow(30 * wire.KiB)
	others.random.Uint64()
	others.grow(90 * wire.KiB)
	m, wrong := ownMaster(t, own, "ASYNC_MASTER"), ownMaster(t, others, "ASYNC_MASTER")
	a := listenTo(t, m, func(opt *stock.AuthorityOptions) { opt.HAAddr = wrong.haPort.Addr().String() })
	moved, stop := a.Listen()
	defer stop()
	awaitCode(t, a, state.Incompatible, "other_ha_port")
	own.grow(wire.KiB)
	for a.End() != own.writer.End() { // it is asked for still
		if end := a.End(); end > own.writer.End() {
			t.Fatalf("the end is %d, but the log's %d", end, own.writer.End())
		}
		<-moved
	}
	if mode := a.Status().Mode; mode != stock.AuthorityAsked {
		t.Errorf("mode %s", mode)
	}
}

// What cannot be used is said, and nothing is taken from it; when it is gone the
// end is known again.
func TestAuthority_ProblemsComeAndGo(t *testing.T) {
	refuse := func(code remoting.ResponseCode, remark string) func(m *fakeMaster) {
		return func(m *fakeMaster) {
			m.lie(func(req remoting.Command) (remoting.Command, bool) { return req.Reply(code, remark), true })
		}
	}
	for _, c := range []struct {
		code  string
		state state.State
		begin func(*fakeMaster)
	}{
		{"broker_acl", state.Unauthorized, refuse(remoting.NoPermission, "no")},
		{"broker_acl", state.Unauthorized, refuse(remoting.SystemError, "org.apache.rocketmq.acl.common.AclException: no")},
		{"controller_mode", state.Incompatible, func(m *fakeMaster) { m.saying(map[string]string{"enableControllerMode": "true"}) }},
		{"dledger", state.Incompatible, func(m *fakeMaster) { m.saying(map[string]string{"enableDLegerCommitLog": "true"}) }},
	} {
		t.Run(c.code, func(t *testing.T) {
			l := newServedLog(t, 64*wire.KiB, 0)
			l.grow(wire.KiB)
			m := ownMaster(t, l, "ASYNC_MASTER")
			a := listenTo(t, m, nil)
			awaitMode(t, a, stock.AuthorityHA)
			c.begin(m)
			awaitCode(t, a, c.state, c.code)
			if st := a.Status(); a.End() != wire.NoOffset || st.Mode != stock.AuthorityNone {
				t.Errorf("end %d, status %+v", a.End(), st)
			}
			eventually(t, "no HA connection", func() bool { return len(m.happened("close")) == len(m.happened("request")) })
			m.lie(nil)
			awaitMode(t, a, stock.AuthorityHA)
			awaitEnd(t, a, l.writer.End())
		})
	}
}

// An HA port where nobody listens costs latency, not the end.
func TestAuthority_WithoutAnHAPortTheEndIsAskedFor(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	m := ownMaster(t, l, "ASYNC_MASTER")
	closeAll(t, m.haPort)
	a := listenTo(t, m, seldom)
	awaitMode(t, a, stock.AuthorityAsked)
	l.grow(wire.KiB)
	a.Want(true)
	awaitEnd(t, a, l.writer.End())
}

// A broker that is gone is not believed any more, and may come back with less.
func TestAuthority_EndIsUnknownWhileTheBrokerIsGone(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(10 * wire.KiB)
	m := ownMaster(t, l, "ASYNC_MASTER")
	a := listenTo(t, m, nil)
	awaitMode(t, a, stock.AuthorityHA)
	gone := func(req remoting.Command) (remoting.Command, bool) {
		return req.Reply(remoting.SystemError, "gone"), true
	}
	m.lie(gone)
	m.cut()
	awaitEnd(t, a, wire.NoOffset)
	eventually(t, "the reason", func() bool {
		st := a.Status()
		return st.Mode == stock.AuthorityNone && st.Err != nil && st.Problem == nil
	})
	m.lie(func(req remoting.Command) (remoting.Command, bool) { // one message less
		if req.Request() != remoting.GetBrokerRuntimeInfo {
			return remoting.Command{}, false
		}
		r := req.Reply(remoting.Success, "")
		r.Body = fmt.Appendf(nil, `{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"%d","brokerVersionDesc":"V4_9_7"}}`, 9*wire.KiB)
		return r, true
	})
	m.play(func(l *fakeLink) { <-l.gone })
	awaitEnd(t, a, wire.PhyOffset(9*wire.KiB))
	awaitMode(t, a, stock.AuthorityHA)
	eventually(t, "the HA port to be asked for the lower end", func() bool { return slices.Contains(m.asked(), wire.PhyOffset(9*wire.KiB)) })
	m.lie(gone)
	m.cut()
	awaitEnd(t, a, wire.NoOffset)
	m.lie(nil)
	awaitEnd(t, a, l.writer.End())
}

// A broker of 5.x is asked for its HA status, of which a slave's end is another
// field; one that does not know that is asked for its runtime information.
func TestAuthority_EndOfA5xBroker(t *testing.T) {
	l := newServedLog(t, 64*wire.KiB, 0)
	l.grow(10 * wire.KiB)
	end := l.writer.End()
	for body, want := range map[string]wire.PhyOffset{
		fmt.Sprintf(`{"master":true,"masterCommitLogMaxOffset":%d,"haClientRuntimeInfo":{"maxOffset":1}}`, end):  end,
		fmt.Sprintf(`{"master":false,"masterCommitLogMaxOffset":1,"haClientRuntimeInfo":{"maxOffset":%d}}`, end): end,
		`{"master":true,"masterCommitLogMaxOffset":4611686018427387905}`:                                         wire.NoOffset,
		`{"master":true,"masterCommitLogMaxOffset":-2}`:                                                          wire.NoOffset,
		`{"masterCommitLogMaxOffset":7}`:                                                                         end - 1, // as 28 tells
		`{"master":true}`:                                                                                        end - 1,
		`no json`:                                                                                                end - 1,
	} {
		t.Run(body, func(t *testing.T) {
			p := startAnswering(t, func(req remoting.Command) []remoting.Command {
				a := req.Reply(remoting.Success, "")
				a.Version = 479
				switch req.Request() {
				case remoting.GetBrokerConfig:
					a.Body = fmt.Appendf(nil, "brokerName=b\nbrokerRole=SLAVE\nlistenPort=1\ninSyncReplicas=1\nmappedFileSizeCommitLog=%d\nstorePathCommitLog=%s\n", l.size, l.dir)
				case remoting.GetBrokerHAStatus:
					a.Body = []byte(body)
				case remoting.GetBrokerRuntimeInfo:
					a.Body = fmt.Appendf(nil, `{"table":{"commitLogMaxOffset":"%d","brokerVersionDesc":"V5_3_3"}}`, end-1)
				case remoting.ViewMessageByID:
					head := l.bytes(0, 4)
					a.Body = l.bytes(0, wire.PhyOffset(int(head[2])<<8|int(head[3])))
				}
				return []remoting.Command{a}
			})
			opt := stock.AuthorityOptions{Broker: newClient(t, p.Addr().String(), stock.BrokerOptions{}), CommitLogDir: l.dir, Timing: fast}
			a := stock.NewAuthority(opt)
			run(t, a.Run)
			if want == wire.NoOffset {
				awaitCode(t, a, state.ProtocolError, "absurd_offset")
				return
			}
			awaitEnd(t, a, want)
			if got := a.Status().Version; got != "V5_3_3" {
				t.Errorf("version %q", got)
			}
		})
	}
}

// Options that make no sense end Run, nothing else does.
func TestAuthority_NeedsABrokerAndADirectory(t *testing.T) {
	if err := stock.NewAuthority(stock.AuthorityOptions{}).Run(t.Context()); err == nil {
		t.Error("runs without a broker")
	}
}
