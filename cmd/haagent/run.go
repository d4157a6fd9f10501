package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/cmd/haagent/options"
)

// runAgent is the command without a name: the agent in the foreground.
func runAgent(c *cli.Context) error {
	if c.Args().Present() {
		return usageError{fmt.Errorf("no such command: %q. %s", c.Args().First(), cli.SuggestCommand(c.App.VisibleCommands(), c.Args().First()))}
	}
	set, err := resolve(c)
	if err != nil {
		return err
	}
	if set.Text("role") == "" && set.Text("dir") == "" {
		return cli.ShowAppHelp(c)
	}
	cfg, err := agentConfig(set)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // an agent outlives whoever reads its log
	screen := newScreen(c.App.ErrWriter)
	level, err := newLevel(set)
	if err != nil {
		return err
	}
	log, err := newLogger(screen, level, set.Text("log-format"))
	if err != nil {
		return placed(set, err)
	}
	for _, w := range set.Warnings {
		log.Warn(w)
	}
	if err := connect(set, &cfg, log); err != nil {
		return placed(set, err)
	}
	a, err := agent.New(cfg, log)
	if err != nil {
		return placed(set, err)
	}
	log.Info("haagent", "version", version, "role", string(cfg.Role), "dir", cfg.Dir, "ack", string(cfg.Ack))
	again := &reloader{read: func() (*options.Set, error) { return resolve(c) }, set: set, cfg: cfg, agent: a, level: level, log: log}
	return placed(set, counting(log, func() error {
		return runWithProgress(c.Context, a, newSupervisor(a, again.reload, log), screen, log)
	}))
}

// errEnded ends the progress display with the agent.
var errEnded = errors.New("ended")

// runWithProgress runs the agent until ctx ends, and tells how it gets on beside it,
// until it has ended.
func runWithProgress(ctx context.Context, a *agent.Agent, supervisor *supervisor, screen *screen, log *slog.Logger) error {
	group, show := errgroup.WithContext(context.WithoutCancel(ctx))
	group.Go(func() error {
		if err := a.Run(ctx); err != nil {
			return err
		}
		return errEnded
	})
	group.Go(func() error { return showProgress(show, a.Status, screen, log) })
	group.Go(func() error {
		supervisor.Run(show, ctx.Done())
		return nil
	})
	if err := group.Wait(); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

func isTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && isatty.IsTerminal(f.Fd())
}

// discardErrors keeps a broken terminal from ending the agent.
func discardErrors(w io.Writer, b []byte) {
	if _, err := w.Write(b); err != nil {
		return
	}
}
