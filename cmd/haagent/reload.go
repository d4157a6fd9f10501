package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/cmd/haagent/options"
)

// reloader reads the configuration again and hands on what can change while an
// agent runs. It belongs to one goroutine.
type reloader struct {
	read  func() (*options.Set, error) // what a start would read now
	set   *options.Set                 // what is in force; options that wait for a restart have their old values
	cfg   agent.Config                 // that the agent was made of
	agent *agent.Agent
	level *slog.LevelVar
	log   *slog.Logger
}

// reload is all or nothing: where something of the new configuration cannot be
// used, the old one stays in force, and the error says why. How it went is in the
// metrics too.
func (r *reloader) reload(context.Context) error {
	next, err := r.read()
	if err == nil {
		err = placed(next, r.check(next))
	}
	var changed, waiting []string
	if err == nil {
		changed, waiting = r.compare(next)
		err = placed(next, r.apply(next))
	}
	r.agent.Reloaded(err)
	if err != nil {
		if _, try := explain(err); try != "" {
			err = fmt.Errorf("%w. Try: %s", err, try)
		}
		return err
	}
	r.set = next
	for _, w := range next.Warnings {
		r.log.Warn(w)
	}
	if len(changed) == 0 {
		changed = []string{"nothing"}
	}
	r.log.Info("configuration read again", "changed", strings.Join(changed, ","))
	if len(waiting) > 0 {
		r.log.Warn("options have changed that an agent takes at its start only: restart to apply", "options", strings.Join(waiting, ","))
	}
	return nil
}

// check says what a start with these options would, but for files and ports.
func (r *reloader) check(next *options.Set) error {
	cfg, err := agentConfig(next)
	if err != nil {
		return err
	}
	cfg.Finder = r.cfg.Finder
	return cfg.WithDefaults().Validate()
}

// compare returns the options that differ from those in force, in themselves or in
// the file that they name. What waits for a
// restart keeps its old value, so that it is named again next time.
func (r *reloader) compare(next *options.Set) (changed, waiting []string) {
	for _, v := range next.Values() {
		old, name := r.set.Value(v.Option.Name), v.Option.Name
		switch same := old.Text == v.Text; {
		case same && old.SameContent(v):
			continue
		case same:
			name += " (the file's content)"
			if v.Option.Live || v.Option.Reread {
				changed = append(changed, name)
				continue
			}
		case v.Option.Live:
			changed = append(changed, name)
			continue
		}
		waiting = append(waiting, name)
		next.Keep(old)
	}
	return changed, waiting
}

// apply hands on what can change. What can be refused goes first.
func (r *reloader) apply(next *options.Set) error {
	level, err := parseLevel(next.Text("log-level"))
	if err != nil {
		return err
	}
	limit, catchup := next.Size("limit-rate"), next.Size("catchup-rate")
	if err := agent.CheckLimits(limit, catchup); err != nil {
		return err
	}
	if err := r.connect(next); err != nil {
		return err
	}
	r.level.Set(level)
	return r.agent.SetLimits(limit, catchup)
}

// connect takes keys, certificates and seeds. The link goes first, because it is
// the one that can refuse what it is given; gossip has the same keys.
func (r *reloader) connect(next *options.Set) error {
	gossip, ok := r.cfg.Finder.(finder)
	if !ok {
		return nil // talks to a broker only
	}
	var keys link.Keys
	var err error
	if path := next.Text("key-file"); path != "" {
		if keys, err = link.ReadKeys(path); err != nil {
			return err
		}
	}
	before := r.set.List("join")
	if err := gossip.SetSeeds(next.List("join")); err != nil {
		return err
	}
	if err := r.cfg.Security.Reload(securityOptions(next, keys, r.log)); err != nil {
		return errors.Join(err, gossip.SetSeeds(before))
	}
	return gossip.SetKeys(keys.Bytes())
}

// newLevel is the log's level, which reload changes.
func newLevel(set *options.Set) (*slog.LevelVar, error) {
	l, err := parseLevel(set.Text("log-level"))
	if err != nil {
		return nil, placed(set, err)
	}
	level := new(slog.LevelVar)
	level.Set(l)
	return level, nil
}

// securityOptions are the link's part of the options.
func securityOptions(set *options.Set, keys link.Keys, log *slog.Logger) link.SecurityOptions {
	return link.SecurityOptions{Mode: set.Text("link-security"), Keys: keys,
		Cert: set.Text("tls-cert"), Key: set.Text("tls-key"), CA: set.Text("tls-ca"), Insecure: set.Switch("insecure"), Log: log}
}
