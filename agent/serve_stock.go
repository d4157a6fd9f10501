package agent

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// vipDistance is how far below its port a broker has a second one, at which
// stock slaves ask for topics.
const vipDistance = 2

// stockPorts are the ports at which unmodified brokers are served.
//
//	stock slave                                  master agent
//	  HA client ── request, acks ──────────────► ha          ─► acks.Table
//	            ◄─ the log ─────────────────────             ◄─ source
//	  topics, groups, positions ───────────────► remoting    ◄─ the broker, or its files
//	  registration ─► observer (remoting) ◄─ gossip: where is that master
type stockPorts struct {
	a        *Agent
	ha       *stock.Gate   // nil: not served
	remoting []*stock.Gate // the port and the one below it; none: not served
	haAddr   string        // where slaves find them
	addr     string
	registry *stock.Registry
	book     *stockBook // of a master
}

// find is where the slaves of a group find their master, as gossip knows it.
func (p *stockPorts) find(cluster, brokerName string) (stock.GroupMaster, error) {
	m, ok, err := pick(p.a.cfg.Finder.Members(), cluster, brokerName)
	switch {
	case err != nil:
		return stock.GroupMaster{}, err
	case !ok:
		return stock.GroupMaster{}, fmt.Errorf("gossip knows no master of %s. Try: start haagent --role master beside it, with the same --join, --cluster and --broker-name", group(cluster, brokerName))
	}
	return stock.GroupMaster{Node: m.Node, HA: m.HA, Remoting: m.Remoting}, nil
}

// stockHint tells a client that takes an agent for more than it is.
const stockHint = " (this is haagent: it serves stock slaves and tells clients where they are; it stores nothing)"

// serveRemoting answers on both ports until ctx ends.
func (p *stockPorts) serveRemoting(ctx context.Context, answers ...map[remoting.RequestCode]stock.RemotingHandler) error {
	handlers := p.registry.Handlers()
	for _, more := range answers {
		for code, handle := range more {
			handlers[code] = handle
		}
	}
	group, run := errgroup.WithContext(ctx)
	for _, g := range p.remoting {
		server := stock.NewRemotingServer(stock.RemotingServerOptions{Listener: g.Lend(), Handlers: handlers, Hint: stockHint,
			Version: "V4_9_7", MaxRequest: stock.MaxRegistration, OnClose: p.registry.Closed})
		group.Go(func() error { return server.Run(run) })
	}
	return group.Wait()
}

// announce adds the ports to what others are told.
func (p *stockPorts) announce(self *Member) { self.HA, self.Remoting = p.haAddr, p.addr }

// observe serves as an observer until ctx ends: slaves register here and are told
// their master, whose answers are passed on too.
func (p *stockPorts) observe(ctx context.Context) error {
	if len(p.remoting) == 0 {
		<-ctx.Done()
		return nil
	}
	forward := &forwarder{ports: p}
	defer forward.close()
	p.a.log.Info("stock slaves may register", "remoting", p.addr, "below", p.remoting[1].Addr().String())
	return p.serveRemoting(ctx, stock.ForwardAnswers(forward.ask))
}

// askPatience is how long a broker may take for an answer to a slave, which waits
// for 3 s itself.
const askPatience = 2 * time.Second

// forwarder passes requests on to the one master of the observed group.
type forwarder struct {
	ports *stockPorts

	mu     sync.Mutex
	master *stock.Broker // nil: nobody was asked yet
}

func (f *forwarder) ask(ctx context.Context, req remoting.Command) (remoting.Command, error) {
	master, err := f.ports.find(f.ports.a.cfg.Cluster, f.ports.a.cfg.BrokerName)
	if err != nil {
		return remoting.Command{}, err
	}
	if master.Remoting == "" {
		return remoting.Command{}, fmt.Errorf("master agent %s answers no requests. Try: give it --remoting-bind", master.Node)
	}
	f.mu.Lock()
	if f.master == nil || f.master.Addr() != master.Remoting {
		if f.master != nil {
			f.master.Close()
		}
		f.master = stock.NewBroker(master.Remoting, stock.BrokerOptions{Timeout: askPatience})
	}
	to := f.master
	f.mu.Unlock()
	return stock.ForwardRequest(ctx, to, req)
}

func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.master != nil {
		f.master.Close()
	}
}

// serve serves as a master until ctx ends.
func (p *stockPorts) serve(ctx context.Context, m *master) error {
	group, run := errgroup.WithContext(ctx)
	if p.ha != nil {
		p.a.log.Info("stock slaves are served", "ha", p.haAddr)
		group.Go(func() error { return p.serveHA(run, m) })
	}
	if len(p.remoting) > 0 {
		// Its own connection: the other one must answer for the end at once.
		broker := stock.NewBroker(p.a.cfg.Broker, p.a.cfg.brokerOptions(askPatience))
		defer broker.Close()
		p.a.log.Info("requests of stock slaves are answered", "remoting", p.addr, "below", p.remoting[1].Addr().String())
		group.Go(func() error { return p.serveRemoting(run, stock.StoreAnswers(p.storeAnswers(m, broker))) })
	}
	return group.Wait()
}

// storeAnswers says what is answered about the master's store.
func (p *stockPorts) storeAnswers(m *master, broker *stock.Broker) stock.StoreAnswersOptions {
	cfg := p.a.cfg
	return stock.StoreAnswersOptions{
		Dir: cfg.Dir, CommitLogDir: cfg.CommitLogDir, SegmentSize: m.source.SegmentSize,
		Min: func() wire.PhyOffset { return m.source.Ends().Min }, End: func() wire.PhyOffset { return m.source.Ends().Confirmed },
		Version: func() string { return m.authority.Status().Version },
		Config:  func() map[string]string { return p.properties(m) },
		HA:      p.haAddr, Remoting: p.addr, Began: p.book.beganAt, Log: p.a.log,
		Ask: func(ctx context.Context, req remoting.Command) (remoting.Command, error) {
			if m.authority.Status().Mode == stock.AuthorityNone {
				return remoting.Command{}, stock.ErrNoOwnBroker
			}
			return stock.ForwardRequest(ctx, broker, req)
		},
	}
}

// properties are those of the broker that the master agent stands for: what a
// follower needs, and no secrets.
func (p *stockPorts) properties(m *master) map[string]string {
	status := m.authority.Status()
	out := map[string]string{"brokerClusterName": m.cluster, "brokerName": m.brokerName, "brokerId": strconv.FormatInt(p.a.cfg.BrokerID, 10),
		"brokerRole": "ASYNC_MASTER", "storePathRootDir": p.a.cfg.Dir, "storePathCommitLog": p.a.cfg.CommitLogDir}
	if status.Role == "SYNC_MASTER" {
		out["brokerRole"] = status.Role
	}
	for addr, names := range map[string][2]string{p.addr: {"brokerIP1", "listenPort"}, p.haAddr: {"brokerIP2", "haListenPort"}} {
		if host, port, err := net.SplitHostPort(addr); err == nil {
			out[names[0]], out[names[1]] = host, port
		}
	}
	if size := max(m.source.SegmentSize(), status.SegmentSize); size > 0 {
		out["mappedFileSizeCommitLog"] = strconv.FormatInt(int64(size), 10)
	}
	return out
}

// replicas is what the status says of stock slaves.
func (p *stockPorts) replicas() []control.Replica {
	if p.book == nil {
		return nil
	}
	return p.book.replicas()
}

// haTerms are what a stream of the log stands and falls with.
type haTerms struct {
	size        wire.ByteSize // 0: not known yet
	incarnation uint64        // of the source
	barred      bool          // by a rival, alive, away or of the same name
}

func (p *stockPorts) terms(m *master) haTerms {
	return haTerms{size: m.source.SegmentSize(), incarnation: m.source.Incarnation(), barred: m.findRival() != nil}
}

// serveHA serves the log, as long as its terms hold at a time: when bytes that
// were served have changed, all streams end, and slaves ask anew.
func (p *stockPorts) serveHA(ctx context.Context, m *master) error {
	for ctx.Err() == nil {
		terms := p.terms(m)
		group, run := errgroup.WithContext(ctx)
		served, end := context.WithCancel(run)
		group.Go(func() error {
			defer end()
			p.untilOther(served, m, terms)
			return nil
		})
		group.Go(func() error {
			if terms.barred || terms.size <= 0 {
				return p.ha.TurnAway(served)
			}
			return stock.NewHAServer(p.haOptions(m, terms)).Run(served)
		})
		err := group.Wait()
		if err != nil {
			return fmt.Errorf("stock HA stream: %w", err)
		}
	}
	return nil
}

// termsCheck is how often terms are looked at without a reason.
const termsCheck = time.Second

// untilOther returns when the terms are others, or ctx ends.
func (p *stockPorts) untilOther(ctx context.Context, m *master, terms haTerms) {
	moved, stop := m.source.Listen()
	defer stop()
	changed, leave := p.a.cfg.Finder.Listen()
	defer leave()
	tick := time.NewTicker(termsCheck)
	defer tick.Stop()
	for {
		now := terms
		select {
		case <-ctx.Done():
			return
		case <-moved: // often: the members are not looked at
			now.size, now.incarnation = m.source.SegmentSize(), m.source.Incarnation()
		case <-changed:
			now = p.terms(m)
		case <-tick.C:
			now = p.terms(m)
		}
		if now == terms {
			continue
		}
		if terms.size > 0 && !terms.barred {
			p.a.log.Warn("the log is another one than stock slaves were served: their streams end, and they ask anew", "incarnation", now.incarnation, "rival", now.barred)
		}
		return
	}
}

func (p *stockPorts) haOptions(m *master, terms haTerms) stock.HAServerOptions {
	return stock.HAServerOptions{
		Listener: p.ha.Lend(), CommitLogDir: p.a.cfg.CommitLogDir, SegmentSize: terms.size, Limits: m.a.limits,
		// Other than from a broker, a new slave gets the whole history.
		Start: func() wire.PhyOffset { return m.source.Ends().Min },
		End:   func() wire.PhyOffset { return m.source.Ends().Confirmed }, Listen: m.source.Listen,
		Admit: func(ctx context.Context, remote net.Addr, request wire.PhyOffset) error {
			return p.admit(ctx, m, remote, request)
		},
		Traffic: &m.a.counts.Sent, OnReport: p.book.report, OnClose: p.book.closed,
	}
}

// confirmPatience is how long a slave may be ahead of what is confirmed: this
// agent may have started just now, and the broker's word is to come.
const confirmPatience = 2 * time.Second

// maxAhead is how far a slave can be ahead of what is confirmed where only the
// confirmation is late.
const maxAhead = 4 * wire.GiB

// admit lets in a slave that asks for what is there. Where one is ahead it is
// closed, and never just waited for until the log has grown: what it holds then
// is not this log, and must not be acked.
func (p *stockPorts) admit(ctx context.Context, m *master, remote net.Addr, request wire.PhyOffset) error {
	moved, stop := m.source.Listen()
	defer stop()
	late := time.NewTimer(confirmPatience)
	defer late.Stop()
	for request > 0 && m.source.Ends().Confirmed < request {
		if end := m.source.Ends().Confirmed; end >= 0 && request > end.Add(maxAhead) {
			return tooFar(request, end) // garbage, of scanners that must not fill the port
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-late.C:
			end := m.source.Ends().Confirmed
			node := stock.PeerAddr(remote).String()
			p.book.mention(node, "far", func() {
				p.a.log.Error("a stock slave asks for more than there is: it followed another log, or this one lost its tail. Try: stop it, and let it begin with an empty store",
					"slave", remote.String(), "request", request, "end", end)
			})
			return tooFar(request, end)
		}
	}
	if first := m.source.Ends().Min; request > 0 && request < first {
		p.book.mention(stock.PeerAddr(remote).String(), "gap", func() {
			p.a.log.Error("a stock slave asks for what is deleted here, and gets nothing. Try: stop it, and let it begin with an empty store",
				"slave", remote.String(), "request", request, "min", first)
		})
	}
	return nil
}
