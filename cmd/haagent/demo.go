package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name: "demo", Usage: "show replication at work, without Java, root or network",
		Description: "In one process and one temporary directory: a writer grows a store in a broker's format\n" +
			"through a memory map, a stand-in of a stock master serves it over the stock protocols,\n" +
			"and a slave agent copies it. The slave goes away and comes back; at the end both stores\n" +
			"are compared byte by byte. The exit code tells the truth.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Value: 15 * time.Second, Usage: "`TIME` to run, at least 3s"},
			text("rate", "8MiB", "`SIZE` to write in a second"),
			&cli.BoolFlag{Name: "keep", Usage: "keep the directory"},
			&cli.BoolFlag{Name: "verbose", Usage: "show the slave's log"},
		},
		Action: func(c *cli.Context) error {
			rate, err := parseSize(c.String("rate"))
			if err != nil {
				return &agent.ConfigError{Key: "rate", Value: c.String("rate"), Why: err.Error(), Try: "give a size such as 8MiB"}
			}
			if c.Duration("duration") < 3*time.Second {
				return &agent.ConfigError{Key: "duration", Value: c.Duration("duration").String(), Why: "must be at least 3s", Try: "leave it away for 15s"}
			}
			d := &demo{duration: c.Duration("duration"), rate: rate, out: c.App.Writer, screen: newScreen(c.App.ErrWriter), log: slog.New(slog.DiscardHandler)}
			if c.Bool("verbose") {
				if d.log, err = newLogger(d.screen, "info", "auto"); err != nil {
					return err
				}
			}
			return d.inTempDir(c.Context, c.Bool("keep"))
		},
	}
}

// demo is one run of the demonstration.
type demo struct {
	duration time.Duration
	rate     wire.ByteSize
	out      io.Writer // the verdict
	screen   *screen   // the talk
	log      *slog.Logger
	dir      string
	master   *demoMaster
}

func (d *demo) inTempDir(ctx context.Context, keep bool) error {
	dir, err := os.MkdirTemp("", "haagent-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.dir = dir
	err = d.run(ctx)
	if keep {
		fmt.Fprintf(d.out, "kept in %s\n", dir)
		return err
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func (d *demo) say(format string, args ...any) {
	d.screen.settle()
	fmt.Fprintf(d.screen, format+"\n", args...)
}

func (d *demo) source() string  { return filepath.Join(d.dir, "source") }
func (d *demo) replica() string { return filepath.Join(d.dir, "replica") }

// run plays the whole piece: history first, then a slave that starts on an
// empty directory, goes away for a while and comes back, and the verdict.
func (d *demo) run(ctx context.Context) error {
	var err error
	if d.master, err = newDemoMaster(ctx, d.source(), d.rate); err != nil {
		return err
	}
	d.say("source   %s: %d segments of %s in a broker's format, growing by %s/s", d.source(), demoHistory, demoSegment, humanize.IBytes(uint64(d.rate)))
	d.say("master   stock protocols on %s (remoting) and %s (HA)", d.master.remoting.Addr(), d.master.ha.Addr())
	d.say("slave    haagent --role slave --dir %s --master %s", d.replica(), d.master.remoting.Addr())

	ctx, cancel := context.WithTimeout(ctx, d.duration+time.Minute)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	serve, stop := context.WithCancel(ctx)
	group.Go(func() error { return d.master.Run(serve) })
	group.Go(func() error {
		defer stop()
		return d.play(ctx)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return d.verdict(context.WithoutCancel(ctx))
}

// play moves through the acts.
func (d *demo) play(ctx context.Context) error {
	act := d.duration * 4 / 10
	if err := d.slave(ctx, act, false); err != nil {
		return err
	}
	d.say("the slave goes away; the source goes on")
	if err := d.away(ctx, d.duration*2/10); err != nil {
		return err
	}
	d.say("the slave comes back and asks for what it missed")
	return d.slave(ctx, act, true)
}

// away shows the source alone for a while.
func (d *demo) away(ctx context.Context, span time.Duration) error {
	end := time.Now().Add(span)
	for time.Now().Before(end) {
		if err := d.line(ctx, control.Status{State: "away", Offsets: control.Offsets{Verified: wire.NoOffset}}); err != nil {
			return err
		}
	}
	return nil
}

// slave runs the agent for a while. The last time the writer is stopped at the
// end, and the agent may end once it has everything.
func (d *demo) slave(ctx context.Context, span time.Duration, last bool) error {
	a, err := agent.New(agent.Config{Role: agent.RoleSlave, Dir: d.replica(), Master: d.master.remoting.Addr().String(),
		MetadataInterval: time.Second, Version: version}, d.log)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	run, stop := context.WithCancel(ctx)
	group.Go(func() error { return a.Run(run) })
	group.Go(func() error {
		defer stop()
		return d.watch(ctx, a, time.Now().Add(span), last)
	})
	return group.Wait()
}

func (d *demo) watch(ctx context.Context, a *agent.Agent, end time.Time, last bool) error {
	for time.Now().Before(end) {
		if err := d.line(ctx, a.Status()); err != nil {
			return err
		}
	}
	if !last {
		return nil
	}
	d.master.pause()
	for a.Status().Offsets.Acked < d.master.writer.End() || len(a.Status().Metadata.Files) == 0 {
		if err := d.line(ctx, a.Status()); err != nil {
			return fmt.Errorf("the slave did not catch up: %w", err)
		}
	}
	return nil
}

// line shows one line of figures: over the last one on a terminal, and a new
// one each second elsewhere.
func (d *demo) line(ctx context.Context, s control.Status) error {
	written := d.master.writer.End()
	verified := max(s.Offsets.Verified, 0)
	lag := max(written.Sub(verified), 0)
	text := fmt.Sprintf("written %-9s replicated %-9s acked %-9s lag %-9s sync wait %-8s %s",
		size(written), size(verified), size(max(s.Offsets.Acked, 0)), humanize.IBytes(uint64(lag)), d.master.latency().Round(10*time.Microsecond), s.State)
	if s.State == "away" {
		text = fmt.Sprintf("written %-9s nobody acks: a stock SYNC_MASTER answers SLAVE_NOT_AVAILABLE", size(written))
	}
	every := time.Second
	if d.screen.terminal {
		every = 100 * time.Millisecond
	}
	d.screen.rewrite(text)
	if s.State == state.CatchingUp || s.State == state.Connecting || s.State == state.Starting {
		every = 50 * time.Millisecond
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(every):
		return nil
	}
}

func size(o wire.PhyOffset) string { return humanize.IBytes(uint64(o)) }

// verdict promotes the replica and compares both stores from disk.
func (d *demo) verdict(ctx context.Context) error {
	p, err := agent.PromoteDir(d.replica())
	if err != nil {
		return err
	}
	r, err := verify.Compare(ctx, d.source(), d.replica(), nil)
	if err != nil {
		return err
	}
	d.screen.settle()
	answered, timedOut := d.master.waits()
	if !r.Same() || r.A.End != r.B.End || r.A.Messages != r.B.Messages || p.End != r.A.End {
		return &exitError{code: exitDifferent, err: fmt.Errorf("the replica is not equal: source ends at %d with %d messages, replica at %d with %d, first difference %d",
			r.A.End, r.A.Messages, r.B.End, r.B.Messages, r.Different)}
	}
	if answered == 0 || timedOut > 0 {
		return &exitError{code: exitNotConnected, err: fmt.Errorf("%d sync waits were answered, %d were not", answered, timedOut)}
	}
	_, err = fmt.Fprintf(d.out, "identical up to %d: %s compared, %s messages verified, %d sync waits answered (p50 %s, p99 %s)\n",
		r.IdenticalTo, humanize.IBytes(uint64(r.IdenticalTo.Sub(r.From))), humanize.Comma(r.B.Messages), answered,
		d.master.percentile(50).Round(time.Microsecond), d.master.percentile(99).Round(time.Microsecond))
	return err
}
