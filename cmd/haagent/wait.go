package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/wire"
)

// askFlags say which agent a command asks.
func askFlags() []cli.Flag {
	return []cli.Flag{
		text("http", agent.DefaultHTTP, "`HOST:PORT` of the agent's status page"),
		&cli.StringFlag{Name: "dir", Usage: "ask the agent of the store at `DIR` instead", EnvVars: env("dir")},
	}
}

func waitCommand() *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until replicas hold the log up to an offset",
		Description: `Prints PUT_OK (exit code 0) as soon as so many replicas hold every byte below the
offset, FLUSH_SLAVE_TIMEOUT (4) where they do not within the timeout, and
SLAVE_NOT_AVAILABLE (11), at once, where no replica is in reach. Ask the agent of
the master.`,
		Flags: append([]cli.Flag{
			&cli.Int64Flag{Name: "offset", Usage: "`N`: the end of what replicas shall hold, in bytes from the log's beginning"},
			&cli.BoolFlag{Name: "now", Usage: "the end of what the log shows now, instead of --offset"},
			&cli.IntFlag{Name: "acks", Value: control.DefaultWaitAcks, Usage: fmt.Sprintf("`K` replicas shall hold it, at most %d", control.MaxWaitAcks)},
			&cli.DurationFlag{Name: "timeout", Value: control.DefaultWaitTimeout, Usage: fmt.Sprintf("for how much `TIME` to wait, at most %s", control.MaxWaitTimeout)},
			&cli.BoolFlag{Name: "json", Usage: "print the whole answer as JSON"},
		}, askFlags()...),
		Action: func(c *cli.Context) error {
			r, err := waitRequest(c)
			if err != nil {
				return usageError{err}
			}
			a, err := askAgent(c, func(client *control.Client, ctx context.Context) (control.WaitAnswer, error) {
				return client.Wait(ctx, r)
			})
			if refused := new(control.RefusedError); errors.As(err, &refused) {
				return &exitError{code: exitNotConnected, err: err, try: refused.Failure.Try}
			}
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = printJSON(c.App.Writer, a)
			} else {
				_, err = fmt.Fprintln(c.App.Writer, a.Result)
			}
			if err != nil {
				return err
			}
			return waitExit(a)
		},
	}
}

// waitRequest reads the flags of wait.
func waitRequest(c *cli.Context) (control.WaitRequest, error) {
	r := control.WaitRequest{Offset: wire.PhyOffset(c.Int64("offset")), Now: c.Bool("now"), Acks: c.Int("acks"), Timeout: c.Duration("timeout")}
	switch {
	case c.Args().Present():
		return r, fmt.Errorf("wait takes no argument; give --offset %s to wait for that offset", c.Args().First())
	case c.IsSet("offset") && r.Now:
		return r, errors.New("--offset and --now are two different ends: give one of them")
	case !c.IsSet("offset") && !r.Now:
		return r, errors.New("nothing to wait for: give --offset N, or --now")
	}
	return r, r.Check()
}

// waitExit turns an answer into an exit code, and its reason into the line that
// goes with it.
func waitExit(a control.WaitAnswer) error {
	switch a.Result {
	case acks.PutOK:
		return nil
	case acks.SlaveNotAvailable:
		return &exitError{code: exitNoSlave, err: errors.New(cmp.Or(a.Reason, string(a.Result)))}
	}
	return &exitError{code: exitNotConnected, err: errors.New(cmp.Or(a.Reason, string(a.Result)))}
}

func membersCommand() *cli.Command {
	return &cli.Command{
		Name: "members", Usage: "list the agents that gossip knows",
		Flags: append([]cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print them as JSON"}}, askFlags()...),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("members takes no argument; give --dir %s to ask the agent of that store", c.Args().First())}
			}
			s, err := askAgent(c, (*control.Client).Status)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return printJSON(c.App.Writer, append([]control.Member{}, s.Members...))
			}
			if len(s.Members) == 0 {
				fmt.Fprintln(c.App.ErrWriter, "this agent knows no members: it runs without gossip")
			}
			if err := printMembers(c.App.Writer, s.Members); err != nil {
				return err
			}
			return printOthers(c.App.ErrWriter, c, s)
		},
	}
}

func printMembers(w io.Writer, members []control.Member) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tADDR\tROLE\tGROUP\tSTATUS")
	for _, m := range members {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s/%s/%d\t%s\n", m.Node, m.Addr, m.Role, m.Cluster, m.BrokerName, m.BrokerID, m.Status)
	}
	return t.Flush()
}
