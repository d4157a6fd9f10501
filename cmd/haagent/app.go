package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/cmd/haagent/options"
	"github.com/haagent/haagent/discovery"
)

// Exit codes. Scripts compare them.
const (
	exitOK           = 0
	exitRuntime      = 1
	exitUsage        = 2
	exitConfig       = 3
	exitNotConnected = 4
	exitDifferent    = 5
	exitLag          = 6
	exitDisk         = 7
	exitAuth         = 8
	exitIncompatible = 9
	exitLocked       = 10
	exitNoSlave      = 11
)

// exitError carries an exit code, and a next step for the user.
type exitError struct {
	code int
	err  error
	try  string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usageError is what the command line parser found.
type usageError struct{ error }

// run is the whole program but the signals; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := newApp(stdin, stdout, stderr)
	err := app.RunContext(ctx, args)
	if err == nil {
		return exitOK
	}
	code, try := explain(err)
	fmt.Fprintf(stderr, "haagent: %v\n", err)
	if try != "" {
		fmt.Fprintf(stderr, "Try: %s\n", try)
	}
	return code
}

// explain maps an error to its exit code and next step.
func explain(err error) (code int, try string) {
	var exit *exitError
	var cfg *agent.ConfigError
	var usage usageError
	var option *discovery.OptionError
	var given *options.Error
	switch p := state.AsProblem(err); {
	case errors.As(err, &exit):
		return exit.code, exit.try
	case errors.As(err, &given):
		return exitConfig, given.Try
	case errors.As(err, &cfg):
		return exitConfig, cfg.Try
	case errors.As(err, &option):
		return exitConfig, option.Try
	case errors.Is(err, link.ErrSecurityOptions):
		return exitConfig, "see haagent --help"
	case errors.As(err, &usage):
		return exitUsage, "haagent --help"
	case p != nil:
		return stateExit(p.State), p.Try
	case errors.Is(err, replica.ErrLocked):
		return exitLocked, ""
	case errors.Is(err, control.ErrNoAgent):
		return exitNotConnected, "start one with haagent --role slave --dir DIR --master HOST:10911, or name it with --http or --dir"
	case errors.Is(err, os.ErrPermission):
		return exitDisk, "run as a user who may write to the store"
	}
	return exitRuntime, ""
}

// stateExit is the exit code that belongs to a stuck state.
func stateExit(s state.State) int {
	switch s {
	case state.Diverged, state.SourceReplaced, state.SplitBrain, state.Gap, state.Disturbed, state.Promoted:
		return exitDifferent
	case state.NoSpace, state.ReadOnly, state.IOError:
		return exitDisk
	case state.Unauthorized:
		return exitAuth
	case state.Incompatible, state.ProtocolError:
		return exitIncompatible
	case state.Locked:
		return exitLocked
	case state.Searching, state.Connecting:
		return exitNotConnected
	}
	return exitRuntime
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:  "haagent",
		Usage: "live, bootable replicas of RocketMQ broker stores",
		UsageText: "haagent --role master --dir DIR --join HOST          beside a broker\n" +
			"   haagent --role slave --dir DIR --join HOST           a replica of it\n" +
			"   haagent --role slave --dir DIR --master HOST:10911   a replica of a broker without agent\n" +
			"   haagent COMMAND [options]",
		Description:            description,
		Version:                version,
		HideHelpCommand:        true,
		Flags:                  agentFlags(),
		Reader:                 stdin,
		Writer:                 stdout,
		ErrWriter:              stderr,
		Action:                 runAgent,
		OnUsageError:           onUsage,
		ExitErrHandler:         func(*cli.Context, error) {}, // the exit code is decided in run alone
		UseShortOptionHandling: false,
		CustomAppHelpTemplate:  strings.Replace(helpTemplate, "{{agentOptions}}", options.HelpText(options.Table()), 1),
		Commands: []*cli.Command{
			demoCommand(), statusCommand(), membersCommand(), waitCommand(), keygenCommand(), verifyCommand(), promoteCommand(), resyncCommand(), configCommand(), doctorCommand(), completionCommand(), versionCommand(), generateCommand(),
		},
	}
	tidyHelp(app.Commands)
	for _, c := range app.Commands {
		c.OnUsageError = onUsage
		c.Before = refuseAgentOptions
		for _, sub := range c.Subcommands {
			sub.OnUsageError = onUsage
		}
	}
	return app
}

// onUsage says what is wrong with a command line, and what may have been meant.
func onUsage(c *cli.Context, err error, _ bool) error {
	flags, try := c.App.Flags, "haagent --help"
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != c.App.Name {
		flags, try = c.Command.Flags, "haagent "+c.Command.Name+" --help"
	}
	if _, name, unknown := strings.Cut(err.Error(), "flag provided but not defined: -"); unknown {
		err = fmt.Errorf("no such option: --%s", strings.TrimLeft(name, "-"))
		if meant := cli.SuggestFlag(flags, strings.TrimLeft(name, "-"), true); meant != "" {
			err = fmt.Errorf("%w; did you mean %s?", err, meant)
		}
	}
	return &exitError{code: exitUsage, err: err, try: try}
}

// refuseAgentOptions refuses options that stand before a command: they are the
// agent's, and a command that asks a running one would silently ask another.
func refuseAgentOptions(c *cli.Context) error {
	for _, up := range c.Lineage()[1:] {
		for _, name := range up.LocalFlagNames() {
			return usageError{fmt.Errorf("--%s stands before the command %s: give it behind it", name, c.Command.Name)}
		}
	}
	return nil
}

const description = `haagent keeps a live, bootable copy of a broker's store on another machine.
As slave it follows a master agent that gossip finds, or, told by --master, an
unmodified broker alone: it copies the whole commit log and the config files,
checks every message, and acks what it has. As master it stands beside the broker,
serves such slaves, and answers whoever waits for them. An unmodified broker boots
on the copy after haagent promote.`

const helpTemplate = `haagent - {{.Usage}}

USAGE
   {{.UsageText}}

{{.Description}}

COMMANDS
{{range .VisibleCommands}}   {{printf "%-10s" .Name}} {{.Usage}}
{{end}}   COMMAND --help tells more.

OPTIONS (each is also a key of the file of --config, and an environment
variable: HAAGENT_ and its name, as in HAAGENT_KEY_FILE)
{{agentOptions}}
EXIT CODES
   0 ok, 1 run-time, 2 usage, 3 configuration, 4 not connected or not confirmed,
   5 diverged or different, 6 lag above the threshold, 7 disk, 8 authentication,
   9 incompatible peer or store, 10 store locked by another process,
   11 no replica in reach (wait)
`
