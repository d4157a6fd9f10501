package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
)

func versionCommand() *cli.Command {
	return &cli.Command{Name: "version", Usage: "print the version", Action: func(c *cli.Context) error {
		_, err := fmt.Fprintln(c.App.Writer, "haagent", version)
		return err
	}}
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "say how an agent is",
		Flags: append(askFlags(),
			&cli.BoolFlag{Name: "json", Usage: "print the whole status as JSON"},
			&cli.BoolFlag{Name: "watch", Usage: "print it every second"},
			&cli.DurationFlag{Name: "max-lag", Usage: "exit with 6 where the replica is more than `TIME` behind, 4 where it is not connected"},
		),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("status takes no argument; give --dir %s to ask the agent of that store", c.Args().First())}
			}
			for {
				s, err := askAgent(c, (*control.Client).Status)
				if err != nil {
					if absent := new(absentError); errors.As(err, &absent) && absent.left != nil && !c.Bool("json") {
						err = errors.Join(err, printLeft(c.App.Writer, *absent.left))
					}
					return err
				}
				if err := printStatus(c.App.Writer, s, c.Bool("json")); err != nil {
					return err
				}
				if !c.Bool("json") {
					if err := printOthers(c.App.Writer, c, s); err != nil {
						return err
					}
				}
				if !c.Bool("watch") {
					return judge(s, c.Duration("max-lag"), c.IsSet("max-lag"))
				}
				select {
				case <-c.Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		},
	}
}

// judge turns a status into an exit code, for monitoring.
func judge(s control.Status, limit time.Duration, set bool) error {
	if !set {
		return nil
	}
	if !s.State.Ready() {
		code := exitNotConnected
		if s.State.Stuck() {
			code = stateExit(s.State)
		}
		return &exitError{code: code, err: fmt.Errorf("the agent is in state %s: %s", s.State, s.Reason), try: s.Try}
	}
	if s.LagSeconds > limit.Seconds() {
		return &exitError{code: exitLag, err: fmt.Errorf("the replica is %.1f s behind, more than %s", s.LagSeconds, limit)}
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func dirFlag() cli.Flag {
	return &cli.StringFlag{Name: "dir", Usage: "store root `DIR` of the replica", EnvVars: env("dir"), Required: false}
}

func yesFlag() cli.Flag { return &cli.BoolFlag{Name: "yes", Usage: "do not ask"} }

// needDir returns --dir, or the error for its lack.
func needDir(c *cli.Context) (string, error) {
	if c.String("dir") == "" {
		return "", usageError{errors.New("--dir is missing")}
	}
	return c.String("dir"), nil
}

// confirm asks on a terminal and needs --yes elsewhere.
func confirm(c *cli.Context, question string) error {
	if c.Bool("yes") {
		return nil
	}
	if !isTerminal(c.App.Reader) {
		return &exitError{code: exitUsage, err: errors.New("nobody can be asked here"), try: "add --yes"}
	}
	fmt.Fprintf(c.App.ErrWriter, "%s [y/N] ", question)
	line, err := bufio.NewReader(c.App.Reader).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(line)); a != "y" && a != "yes" {
		return &exitError{code: exitRuntime, err: errors.New("not confirmed, nothing was changed")}
	}
	return nil
}

func promoteCommand() *cli.Command {
	return &cli.Command{
		Name: "promote", Usage: "end replication and make the replica ready for a broker",
		Flags: []cli.Flag{dirFlag(), yesFlag()},
		Action: func(c *cli.Context) error {
			dir, err := needDir(c)
			if err != nil {
				return err
			}
			if err := confirm(c, "End replication into "+dir+" and hand it to a broker?"); err != nil {
				return err
			}
			p, err := control.DialSocket(replica.AgentDir(dir)).Promote(c.Context)
			if st, failed := replica.ReadState(dir); errors.Is(err, control.ErrNoAgent) || err != nil && failed == nil && st.Promoted {
				p, err = agent.PromoteDir(dir) // a master's agent may stand there by now
			}
			if err != nil {
				return notOpen(c.Context, dir, err)
			}
			return printPromotion(c.App.Writer, p)
		},
	}
}

// notOpen says what an agent that has no open replica at dir waits for, where one
// works there; err is why dir cannot be promoted without it.
func notOpen(ctx context.Context, dir string, err error) error {
	s, failed := control.DialDir(dir, replica.AgentDir(dir)).Status(ctx)
	p := state.AsProblem(err)
	if failed != nil || p == nil {
		return err
	}
	return &exitError{code: stateExit(p.State), err: fmt.Errorf("%w; the agent that works there is %s", err, s.Line()), try: cmp.Or(s.Try, p.Try)}
}

// printPromotion prints the properties that a broker needs, and how to start it.
func printPromotion(w io.Writer, p control.Promotion) error {
	dir, err := filepath.Abs(p.Dir)
	if err != nil {
		return err
	}
	// An older agent does not say it.
	logDir, err := filepath.Abs(cmp.Or(p.CommitLogDir, replica.RememberedLogDir(dir)))
	if err != nil {
		return err
	}
	name := p.BrokerName
	if name == "" {
		name = "BROKER-NAME"
	}
	cluster := p.Cluster
	if cluster == "" {
		cluster = "CLUSTER-NAME"
	}
	warning := ""
	if _, err := os.Stat(filepath.Join(dir, "config", "topics.json")); err != nil {
		warning = "# No config files were replicated: topics and consumer positions are not there.\n"
	}
	_, err = fmt.Fprintf(w, `# %s is ready: its log goes from %d to %d, epoch %d.
# Each message was checked when it came; haagent verify checks them again from disk.
# Put these lines into a broker.conf (beside namesrvAddr, listenPort and your own settings):
brokerClusterName=%s
brokerName=%s
brokerId=0
brokerRole=ASYNC_MASTER
storePathRootDir=%s
storePathCommitLog=%s
mappedFileSizeCommitLog=%d
# and start an unmodified broker of the source's version with it:
#   sh bin/mqbroker -c broker.conf
# It rebuilds its queues from the log before it serves.
%s`, dir, p.Min, p.End, p.Epoch, cluster, name, dir, logDir, p.SegmentSize, warning)
	return err
}

func resyncCommand() *cli.Command {
	return &cli.Command{
		Name: "resync", Usage: "set a replica's log aside, so that the source is copied anew",
		Flags: []cli.Flag{dirFlag(), yesFlag()},
		Action: func(c *cli.Context) error {
			dir, err := needDir(c)
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); err != nil {
				return &exitError{code: exitConfig, err: err, try: "give the store root of a replica"}
			}
			if err := confirm(c, "Set the log and config in "+dir+" aside and start anew?"); err != nil {
				return err
			}
			aside, err := resync(dir)
			if errors.Is(err, replica.ErrLocked) {
				return &exitError{code: exitLocked, err: err, try: "stop the agent or broker that runs on " + dir + " first"}
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.App.Writer, "the old log is in %s\n", aside)
			return err
		},
	}
}

// resync sets a log aside that neither a broker nor an agent uses. A master agent
// leaves the store's own lock to its broker, and has another one.
func resync(dir string) (aside string, err error) {
	lock, err := replica.AcquireLock(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	master, err := replica.AcquireAgentLock(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, master.Release()) }()
	return replica.Resync(dir, "", time.Now())
}
