package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/cmd/haagent/options"
	"github.com/haagent/haagent/wire"
)

// Limits of what a demo can be asked for.
const (
	minDemo                   = 3 * time.Second
	minDemoRate wire.ByteSize = 64 * wire.KiB
)

// How long a demo may take beyond its duration, and beyond that until everybody
// has ended.
const (
	demoMargin = time.Minute
	demoGrace  = 15 * time.Second
)

// exitInterrupted is what shells expect after Ctrl-C.
const exitInterrupted = 130

func demoCommand() *cli.Command {
	return &cli.Command{
		Name: "demo", Usage: "show replication at work, without Java, root or network",
		Description: "In one process and one temporary directory: a writer grows a store in a broker's format\n" +
			"through a memory map, a master agent serves it, and two slave agents that find it by gossip\n" +
			"copy it over TLS, while producers wait for one slave, and for both. One slave goes away and\n" +
			"comes back. At the end both copies are promoted and compared with the source byte by byte.\n" +
			"The exit code tells the truth: 5 where something differs, 4 where a wait was not answered.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "duration", Value: 15 * time.Second, Usage: "`TIME` to write, at least 3s"},
			text("rate", "8MiB", "`SIZE` to write in a second, at least 64KiB"),
			&cli.BoolFlag{Name: "keep", Usage: "keep the directory"},
			&cli.BoolFlag{Name: "verbose", Usage: "show the agents' logs"},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("demo takes no argument, and not %q", c.Args().First())}
			}
			rate, err := options.ParseSize(c.String("rate"))
			if err == nil && rate < minDemoRate {
				err = fmt.Errorf("must be at least %s", minDemoRate)
			}
			if err != nil {
				return &agent.ConfigError{Key: "rate", Value: c.String("rate"), Why: err.Error(), Try: "give a size such as 8MiB"}
			}
			if c.Duration("duration") < minDemo {
				return &agent.ConfigError{Key: "duration", Value: c.Duration("duration").String(), Why: "must be at least 3s", Try: "leave it away for 15s"}
			}
			d := &demo{duration: c.Duration("duration"), rate: rate, out: c.App.Writer, screen: newScreen(c.App.ErrWriter), log: slog.New(slog.DiscardHandler)}
			d.screen.terminal = d.screen.terminal && os.Getenv("TERM") != "dumb"
			d.colours = withColours(d.screen)
			if c.Bool("verbose") {
				if d.log, err = newLogger(d.screen, slog.LevelInfo, "auto"); err != nil {
					return err
				}
			}
			err = d.inTempDir(c.Context, c.Bool("keep"))
			if err != nil && c.Err() != nil {
				return &exitError{code: exitInterrupted, err: errors.New("interrupted")}
			}
			return err
		},
	}
}

// demo is one run of the demonstration.
type demo struct {
	duration time.Duration
	rate     wire.ByteSize
	out      io.Writer // the verdict
	screen   *screen   // the talk
	colours  bool
	log      *slog.Logger

	dir    string
	began  time.Time
	broker *demoBroker
	ring   *demoRing
	master *demoAgent
	slaves []*demoAgent
	waits  *demoWaits
}

func (d *demo) inTempDir(ctx context.Context, keep bool) error {
	dir, err := os.MkdirTemp("", "haagent-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.dir = dir
	if err = d.room(); err == nil {
		err = d.run(ctx)
	}
	d.screen.settle()
	if keep {
		fmt.Fprintf(d.out, "kept in %s\n", dir)
		return err
	}
	if left := os.RemoveAll(dir); left != nil {
		err = errors.Join(err, fmt.Errorf("demo: %w", left))
	}
	return err
}

// room checks that the disk has room for three stores: a writer through a memory
// map dies where it has none.
func (d *demo) room() error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &fs); err != nil {
		return fmt.Errorf("demo: %s: %w", d.dir, err)
	}
	const ahead = 3 // segments that are laid out before they are written
	free := float64(fs.Bavail) * float64(fs.Bsize)
	need := 3 * (float64(d.rate)*d.duration.Seconds() + float64((demoHistory+ahead)*demoSegment))
	if need <= free {
		return nil
	}
	return &exitError{code: exitDisk, try: "give a smaller --rate or --duration, or set TMPDIR to a larger disk",
		err: fmt.Errorf("demo: the source and its two copies need %s, and %s has %s", humanize.IBytes(uint64(need)), os.TempDir(), humanize.IBytes(uint64(free)))}
}

// say puts a line above the figures.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.screen, "%5.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// errDemoTooLong ends a demo that hangs.
var errDemoTooLong = errors.New("took too long")

// run plays the whole piece and gives the verdict.
func (d *demo) run(ctx context.Context) error {
	d.began = time.Now()
	if err := d.cast(ctx); err != nil {
		return err
	}
	limit := d.duration + demoMargin
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errDemoTooLong)
	defer cancel()
	group, stage := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(stage)
	defer stop()
	group.Go(func() error { return d.broker.Run(running) })
	group.Go(func() error { return d.show(running) })
	var ends map[string]wire.PhyOffset
	group.Go(func() error {
		defer stop()
		defer d.waits.drain()
		defer d.broker.pause()
		var err error
		ends, err = d.play(running, group)
		return err
	})
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }() // outlives run only where somebody hangs, which ends the process
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(demoGrace):
			err = fmt.Errorf("demo: not everybody has ended %s after they were told to", demoGrace)
		}
	}
	if err != nil {
		return err
	}
	return d.verdict(ctx, ends)
}

// cast makes everybody who plays.
func (d *demo) cast(ctx context.Context) error {
	var err error
	if d.ring, err = newDemoRing(ctx, d.log); err != nil {
		return err
	}
	source := filepath.Join(d.dir, "source")
	if d.broker, err = newDemoBroker(ctx, source, d.rate, demoHistory); err != nil {
		return err
	}
	d.master = &demoAgent{ring: d.ring, bind: d.ring.seed, cfg: agent.Config{Role: agent.RoleMaster, Node: "master", Dir: source, Broker: d.broker.remoting.Addr().String()}}
	for id := int64(1); id <= 2; id++ {
		node := fmt.Sprintf("slave-%d", id)
		d.slaves = append(d.slaves, &demoAgent{ring: d.ring, bind: loopback0, cfg: agent.Config{Role: agent.RoleSlave, Node: node, BrokerID: id, Dir: filepath.Join(d.dir, node)}})
	}
	d.waits = &demoWaits{client: d.master.client(), short: min(d.duration/30, demoPatience/10), holds: d.holding}
	return nil
}

// holding returns how many slaves have verified the log up to end.
func (d *demo) holding(end wire.PhyOffset) (n int) {
	for _, x := range d.slaves {
		if x.holds() >= end {
			n++
		}
	}
	return n
}
