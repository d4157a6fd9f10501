package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/pace"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// Agent is one haagent. Make it with New, use it once.
type Agent struct {
	cfg  Config
	log  *slog.Logger
	cond *condition
	// limits are the rates of all log streams, over all sessions.
	limits *pace.Limits
	// counts is what the rooms count, over all sessions.
	counts *control.Counts

	promotions chan promotion
	socket     sync.Once              // the control socket is served from the first store on that has a place for it
	serving    atomic.Pointer[master] // what answers waits, in the master role
	pulse      pulse                  // of the slave role's looks at its store
}

// promotion is a request to hand the replica over, and where its answer goes.
type promotion struct {
	answer chan promoted
}

type promoted struct {
	control.Promotion
	err error
}

// New checks the config and returns an agent that does nothing before Run. The
// error is a *ConfigError.
func New(cfg Config, log *slog.Logger) (*Agent, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, log: log, promotions: make(chan promotion), counts: control.NewCounts()}
	a.cond = &condition{log: log, now: time.Now, cluster: cfg.Cluster, brokerName: cfg.BrokerName, segmentSize: cfg.SegmentSize, counts: a.counts}
	a.cond.diskFree.Store(-1)
	a.limits = pace.New(cfg.LimitRate, cfg.CatchupRate)
	return a, nil
}

// Status says how the agent is. It may be called at any time.
func (a *Agent) Status() control.Status { return a.cond.status(a.cfg) }

// SetLimits changes LimitRate and CatchupRate, in bytes a second, 0 for none, from
// the next bytes on. It may be called at any time. The error is a *ConfigError.
func (a *Agent) SetLimits(limit, catchup wire.ByteSize) error {
	if err := CheckLimits(limit, catchup); err != nil {
		return err
	}
	if was, behind := a.limits.Rates(); was != limit || behind != catchup {
		a.log.Info("limits changed", "limitRate", limit.String(), "catchupRate", catchup.String())
	}
	a.limits.Set(limit, catchup)
	return nil
}

// Reloaded is told how each later reading of the configuration went; it is in the
// metrics.
func (a *Agent) Reloaded(err error) { a.counts.Reloaded(err) }

// socketRetry is how long the control socket is given before it is tried again.
const socketRetry = 5 * time.Second

// serveSocket serves the control socket until ctx ends. Like everything on the
// store's disk it may fail for a while.
func (a *Agent) serveSocket(ctx context.Context, h control.Handlers) error {
	told := ""
	for {
		err := h.ServeSocket(ctx, replica.AgentDir(a.cfg.Dir))
		if err == nil || ctx.Err() != nil {
			return err
		}
		if text := err.Error(); text != told {
			told = text
			a.log.Warn("there is no control socket, so that promote does not reach this agent; trying again", "cause", err)
		}
		a.pause(ctx, socketRetry)
	}
}

// errDone ends the whole agent without an error: the replica was promoted.
var errDone = errors.New("done")

// Run works until ctx ends or the replica is promoted, and then leaves a
// directory on which a broker boots. It returns early for what a restart cannot
// change: a port in use, a locked or unwritable store.
func (a *Agent) Run(ctx context.Context) error {
	a.cond.set(state.Starting, nil)
	group, ctx := errgroup.WithContext(ctx)
	handlers := control.Handlers{Status: a.Status, Counts: a.counts}
	switch a.cfg.Role {
	case RoleSlave:
		handlers.Promote = a.promote
	case RoleMaster:
		handlers.Wait = a.wait
	}
	if a.cfg.HTTP != "" {
		l, err := listen(ctx, "http", a.cfg.HTTP, DefaultHTTP)
		if err != nil {
			return err
		}
		if a.cfg.HTTP == DefaultHTTP {
			a.tellFallback("http", DefaultHTTP, l)
		}
		a.log.Info("status page", "http", "http://"+l.Addr().String()+"/v1/status")
		group.Go(func() error { return handlers.ServeHTTP(ctx, l) })
	}
	if a.cfg.Dir != "" {
		group.Go(func() error {
			if err := handlers.ServeName(ctx, a.cfg.Dir); err != nil {
				a.log.Warn("status --dir finds this agent only while its store is open", "cause", err)
			}
			return nil
		})
	}
	serveSocket := func() {
		a.socket.Do(func() {
			group.Go(func() error { return a.serveSocket(ctx, handlers) })
		})
	}
	if a.cfg.CommitLogDir != "" {
		group.Go(func() error {
			a.watchSpace(ctx)
			return nil
		})
	}
	if a.cfg.Finder != nil {
		group.Go(func() error { return a.cfg.Finder.Run(ctx) })
		group.Go(func() error { return a.warnOfConflicts(ctx) })
	}
	group.Go(func() error {
		role := a.slave
		switch a.cfg.Role {
		case RoleMaster:
			role = a.master
		case RoleObserver:
			role = a.observer
		}
		if err := role(ctx, serveSocket); err != nil {
			return err
		}
		return errDone // also ends the servers
	})
	err := group.Wait()
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// DefaultHTTP is where the status is served unless told otherwise. Where
// another agent of the host has it already, a free port is taken.
const DefaultHTTP = "127.0.0.1:10916"

// listen opens a port. Where it is the default one and in use, by another agent
// of this host most likely, a free one is taken.
func listen(ctx context.Context, key, addr, byDefault string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) && addr == byDefault {
		host, _, _ := net.SplitHostPort(addr)
		l, err = lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, &ConfigError{key, addr, fmt.Sprintf("cannot listen there: %v", err), "give another --" + key + " HOST:PORT"}
	}
	return l, nil
}

// tellFallback says so where l has another port than the default one: whoever knows
// that meets another agent there, or whatever else has it.
func (a *Agent) tellFallback(key, byDefault string, l net.Listener) {
	_, want, _ := net.SplitHostPort(byDefault)
	host, got, _ := net.SplitHostPort(l.Addr().String())
	if got != want {
		a.log.Warn("the default port is taken, another one is used. Try: give each agent of this host its own --"+key,
			"taken", net.JoinHostPort(host, want), "used", l.Addr().String())
	}
}

// promote is called by the control socket; the role loop does the work.
func (a *Agent) promote(ctx context.Context) (control.Promotion, error) {
	p := promotion{answer: make(chan promoted, 1)}
	select {
	case a.promotions <- p:
	case <-ctx.Done():
		return control.Promotion{}, fmt.Errorf("the agent has no open replica: %w", ctx.Err())
	case <-time.After(5 * time.Second):
		return control.Promotion{}, fmt.Errorf("the agent has no open replica: it is in state %s", a.Status().State)
	}
	r := <-p.answer
	return r.Promotion, r.err
}
