package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
)

// runAgent is the command without a name: the agent in the foreground.
func runAgent(c *cli.Context) error {
	if c.Args().Present() {
		return usageError{fmt.Errorf("no such command: %q. %s", c.Args().First(), cli.SuggestCommand(c.App.Commands, c.Args().First()))}
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
	screen := newScreen(c.App.ErrWriter)
	log, err := newLogger(screen, set.Text("log-level"), set.Text("log-format"))
	if err != nil {
		return err
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
	return placed(set, runWithProgress(c.Context, a, newSupervisor(a, nil, log), screen, log))
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

// showProgress draws a bar while catching up on a terminal, and writes a line
// every ten seconds elsewhere.
func showProgress(ctx context.Context, status func() control.Status, screen *screen, log *slog.Logger) error {
	every := 10 * time.Second
	if screen.terminal {
		every = 250 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer screen.hideBar()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := status()
		if screen.terminal {
			screen.showBar(s)
			continue
		}
		log.Info("progress", "state", string(s.State), "verified", s.Offsets.Verified, "acked", s.Offsets.Acked,
			"source", s.Offsets.Source, "lagBytes", s.LagBytes, "bytesPerSecond", int64(s.BytesPerSecond))
	}
}

// newLogger writes to the screen: colours on a terminal, text for journald and
// files, JSON on request.
func newLogger(w *screen, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, &agent.ConfigError{Key: "log-level", Value: level, Why: "no such level", Try: "give debug, info, warn or error"}
	}
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})), nil
	case format == "auto" && w.terminal:
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: l, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""})), nil
	case format == "auto", format == "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
	}
	return nil, &agent.ConfigError{Key: "log-format", Value: format, Why: "no such format", Try: "give auto, text or json"}
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
