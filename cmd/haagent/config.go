package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/cmd/haagent/options"
	"github.com/haagent/haagent/discovery"
)

func configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "show or check what an agent is told: config show, config check", HideHelpCommand: true,
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "print the value of every option, and where it was given",
				Description: "Takes the agent's options behind it, and reads the same environment and files.\n" +
					"Secrets are in files: their names are printed, never what is in them.",
				Flags: append(agentFlags(), &cli.BoolFlag{Name: "json", Usage: "print them as JSON"}), Action: printOptions,
			},
			{
				Name: "check", Usage: "say what a start with these options would, without starting",
				Description: "Takes the agent's options behind it, reads the files that they name, and looks\n" +
					"whether the directories can be used and the ports are free. The exit code is that of\n" +
					"a start: 0 where it would go well, 3 for an option, 7 for a directory, 8 for a key,\n" +
					"10 where somebody else works there; 5, 7 or 9 also where an agent would stay up, and\n" +
					"do nothing, because of what DIR holds.",
				Flags: agentFlags(), Action: checkOptions,
			},
		},
		Action: func(*cli.Context) error { return usageError{errors.New("config needs a second word: show or check")} },
	}
}

// told reads the options of a command that takes the agent's.
func told(c *cli.Context) (*options.Set, error) {
	if c.Args().Present() {
		return nil, usageError{fmt.Errorf("config %s takes options only, and not %q", c.Command.Name, c.Args().First())}
	}
	set, err := resolve(c)
	if err != nil {
		return nil, err
	}
	for _, w := range set.Warnings {
		fmt.Fprintln(c.App.ErrWriter, "warning:", w)
	}
	return set, nil
}

func printOptions(c *cli.Context) error {
	set, err := told(c)
	if err != nil {
		return err
	}
	cfg, err := agentConfig(set)
	if err != nil {
		return err
	}
	cfg = cfg.WithDefaults()
	if cfg.Role != "" {
		set.Fill("node", cfg.Node)
		set.Fill("commitlog-dir", cfg.CommitLogDir)
		set.Fill("broker-id", strconv.FormatInt(cfg.BrokerID, 10))
		fillBinds(set, cfg.Role)
	}
	return set.Print(c.App.Writer, c.Bool("json"))
}

// fillBinds puts in where the agent would listen.
func fillBinds(set *options.Set, role agent.Role) {
	gossip, link := binds(set)
	if gossips(set) {
		set.Fill("gossip-bind", gossip)
	} else {
		set.Explain("gossip-bind", "no gossip: a broker is followed, and neither --join nor this is given")
	}
	if role == agent.RoleMaster {
		set.Fill("link-bind", link)
	}
}

func checkOptions(c *cli.Context) error {
	set, err := told(c)
	if err != nil {
		return err
	}
	running, err := check(c.Context, set)
	if err != nil {
		return placed(set, err)
	}
	if running {
		fmt.Fprintln(c.App.ErrWriter, "an agent works on that directory: whether the ports are free was not looked at")
	}
	if dir := awaited(set); dir != "" {
		fmt.Fprintln(c.App.ErrWriter, "there is no "+dir+" yet: an agent would wait for it")
	}
	_, err = fmt.Fprintln(c.App.Writer, "ok: an agent would start with this")
	return err
}

// awaited returns the directory that a master would wait for; "" where there is none.
func awaited(set *options.Set) string {
	cfg, err := agentConfig(set)
	if err != nil || cfg.Role != agent.RoleMaster {
		return ""
	}
	dir := cfg.WithDefaults().CommitLogDir
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return dir
	}
	return ""
}

// check does what a start does, but for starting. Where an agent of the same
// directory is running, the ports are its own.
func check(ctx context.Context, set *options.Set) (running bool, err error) {
	cfg, err := agentConfig(set)
	if err != nil {
		return false, err
	}
	quiet := slog.New(slog.DiscardHandler)
	gossip, err := protect(set, &cfg, quiet)
	if err != nil {
		return false, err
	}
	if gossip != nil {
		cfg.Finder = finder{} // New asks whether there is one
	}
	a, err := agent.New(cfg, quiet)
	if err != nil {
		return false, err
	}
	if running = cfg.Dir != "" && answers(ctx, cfg.Dir); !running {
		if err := a.CheckLock(); err != nil {
			return false, err
		}
	}
	if err := a.CheckDir(); err != nil {
		return running, err
	}
	if gossip != nil {
		if running {
			gossip.Bind, gossip.Advertise = "127.0.0.1:0", ""
		}
		if err := discovery.Check(*gossip); err != nil {
			return running, err
		}
	}
	if running {
		return true, nil
	}
	return false, a.CheckPorts(ctx)
}

// answers reports whether an agent works on a directory.
func answers(ctx context.Context, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := control.DialSocket(replica.AgentDir(dir)).Status(ctx)
	return err == nil
}
