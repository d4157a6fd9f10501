package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/discovery"
	"github.com/haagent/haagent/wire"
)

// demoRing is what the agents of a demo have in common: a key that was made for
// this run, so that they and other agents of the host never meet.
type demoRing struct {
	keys     link.Keys
	security *link.Security
	seed     string // where the master's gossip is
	log      *slog.Logger
}

func newDemoRing(ctx context.Context, log *slog.Logger) (*demoRing, error) {
	r := &demoRing{log: log}
	var err error
	if r.keys, err = link.ParseKeys([]byte(link.NewKey())); err != nil {
		return nil, fmt.Errorf("demo key: %w", err)
	}
	if r.security, err = link.NewSecurity(link.SecurityOptions{Mode: "auto", Keys: r.keys, Log: log}); err != nil {
		return nil, fmt.Errorf("demo key: %w", err)
	}
	// The seed must be known before the master is there: without one, gossip looks
	// for other agents of the host.
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", loopback0)
	if err != nil {
		return nil, fmt.Errorf("demo gossip: %w", err)
	}
	r.seed = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("demo gossip: %w", err)
	}
	return r, nil
}

// agent makes an agent of the ring whose gossip is bound to HOST:PORT.
func (r *demoRing) agent(cfg agent.Config, bind string) (*agent.Agent, error) {
	log := r.log.With("agent", cfg.Node)
	gossip, err := discovery.New(discovery.Options{
		Self: discovery.Member{Node: cfg.Node, Role: string(cfg.Role), BrokerID: cfg.BrokerID, Version: version},
		Bind: bind, Join: []string{r.seed}, Keys: r.keys.Bytes(), Log: log,
	})
	if err != nil {
		return nil, err
	}
	cfg.Finder, cfg.Security, cfg.LinkBind = finder{gossip}, r.security, loopback0
	cfg.MetadataInterval, cfg.Version = time.Second, version
	return agent.New(cfg, log)
}

// demoAgent is one agent of the demo, which may come and go.
type demoAgent struct {
	ring *demoRing
	cfg  agent.Config
	bind string // of its gossip

	mu    sync.Mutex
	life  *agent.Agent // nil while it is away
	stop  context.CancelFunc
	ended chan struct{}
	held  wire.PhyOffset // the most that it ever had verified
}

// start runs the agent in a group until ctx ends, it leaves, or it is promoted.
func (x *demoAgent) start(ctx context.Context, group *errgroup.Group) error {
	life, err := x.ring.agent(x.cfg, x.bind)
	if err != nil {
		return fmt.Errorf("%s: %w", x.cfg.Node, err)
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	x.mu.Lock()
	defer x.mu.Unlock()
	x.life, x.stop, x.ended = life, stop, ended
	group.Go(func() error {
		defer close(ended)
		defer stop()
		err := life.Run(run)
		if err == nil && run.Err() == nil && life.Status().State != state.Promoted {
			err = errors.New("it has ended without being told to")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", x.cfg.Node, err)
		}
		return nil
	})
	return nil
}

// leave ends the agent and waits for its end.
func (x *demoAgent) leave(ctx context.Context) error {
	x.status() // the last look at what it holds
	x.mu.Lock()
	x.stop()
	ended := x.ended
	x.life = nil
	x.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// status returns the agent's status; false while it is away.
func (x *demoAgent) status() (control.Status, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.life == nil {
		return control.Status{}, false
	}
	s := x.life.Status()
	x.held = max(x.held, s.Offsets.Verified)
	return s, true
}

// holds returns the most that the agent ever had verified.
func (x *demoAgent) holds() wire.PhyOffset {
	x.status()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.held
}

// client asks the agent by the socket below its store.
func (x *demoAgent) client() *control.Client { return control.DialSocket(replica.AgentDir(x.cfg.Dir)) }
