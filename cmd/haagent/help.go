package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/cmd/haagent/options"
)

// commandHelp is what COMMAND --help prints. Where a command takes the agent's
// options, they are listed as haagent --help does.
func commandHelp(c *cli.Command) string {
	var b strings.Builder
	b.WriteString("{{.HelpName}} - {{.Usage}}\n\nUSAGE\n   {{.HelpName}}")
	if len(c.Subcommands) > 0 {
		b.WriteString(" COMMAND")
	}
	if len(c.Flags)+len(c.Subcommands) > 0 {
		b.WriteString(" [options]")
	}
	b.WriteString("{{if .ArgsUsage}} {{.ArgsUsage}}{{end}}\n")
	if c.Description != "" {
		b.WriteString("\n{{.Description}}\n")
	}
	if len(c.Subcommands) > 0 {
		b.WriteString("\nCOMMANDS\n{{range .VisibleCommands}}   {{printf \"%-10s\" .Name}} {{.Usage}}\n{{end}}")
	}
	own, agents := flagsOf(c.Flags), takesAgentOptions(c)
	if agents {
		own = slices.DeleteFunc(own, func(f options.Flag) bool {
			_, is := options.Lookup(options.Table(), f.Name)
			return is
		})
	}
	if len(own) > 0 {
		b.WriteString("\nOPTIONS\n" + options.FlagText(own))
	}
	if agents {
		b.WriteString("\nOPTIONS OF THE AGENT (each is also a key of the file of --config, and an\nenvironment variable: HAAGENT_ and its name, as in HAAGENT_KEY_FILE)\n" + options.HelpText(options.Table()))
	}
	return b.String()
}

// takesAgentOptions reports whether a command has all options of the agent.
func takesAgentOptions(c *cli.Command) bool {
	return len(c.Flags) >= len(options.Table())
}

// tidyHelp gives commands and their subcommands our help.
func tidyHelp(commands []*cli.Command) {
	for _, c := range commands {
		c.CustomHelpTemplate = commandHelp(c)
		tidyHelp(c.Subcommands)
	}
}
