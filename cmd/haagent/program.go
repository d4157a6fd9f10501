package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/cmd/haagent/options"
)

// program is what is said of haagent on paper: the help, the manual, the
// completions and the reference.
func program(app *cli.App) options.Program {
	return options.Program{Summary: app.Usage, Description: app.Description, Options: options.Table(), Commands: commandsOf(app.Commands), Exits: exits}
}

func commandsOf(commands []*cli.Command) []options.Command {
	var list []options.Command
	for _, c := range commands {
		if c.Hidden || c.Name == "help" { // the library adds help when it runs
			continue
		}
		list = append(list, options.Command{Name: c.Name, Usage: c.Usage, Args: c.ArgsUsage, Description: c.Description,
			Flags: flagsOf(c.Flags), Commands: commandsOf(c.Subcommands)})
	}
	return list
}

var placeholder = regexp.MustCompile("`([^`]+)`")

func flagsOf(flags []cli.Flag) []options.Flag {
	var list []options.Flag
	for _, f := range flags {
		documented, ok := f.(cli.DocGenerationFlag)
		if !ok || slices.Contains(f.Names(), "help") {
			continue
		}
		one := options.Flag{Name: f.Names()[0], Usage: documented.GetUsage()}
		if variables := documented.GetEnvVars(); len(variables) > 0 {
			one.Env = variables[0]
		}
		if documented.TakesValue() {
			one.Arg, one.Default = "VALUE", documented.GetValue()
			if m := placeholder.FindStringSubmatch(one.Usage); m != nil {
				one.Arg = m[1]
			}
		}
		list = append(list, one)
	}
	return list
}

// exits are the exit codes and what each says.
var exits = []options.Exit{
	{Code: exitOK, Meaning: "ok"},
	{Code: exitRuntime, Meaning: "run-time"},
	{Code: exitUsage, Meaning: "usage"},
	{Code: exitConfig, Meaning: "configuration"},
	{Code: exitNotConnected, Meaning: "not connected or not confirmed"},
	{Code: exitDifferent, Meaning: "diverged or different"},
	{Code: exitLag, Meaning: "lag above the threshold"},
	{Code: exitDisk, Meaning: "disk"},
	{Code: exitAuth, Meaning: "authentication"},
	{Code: exitIncompatible, Meaning: "incompatible peer or store"},
	{Code: exitLocked, Meaning: "store locked by another process"},
	{Code: exitNoSlave, Meaning: "no replica in reach (wait)"},
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print what a shell needs to complete command lines", ArgsUsage: "bash|zsh|fish",
		Description: "For bash: haagent completion bash > /etc/bash_completion.d/haagent; for zsh into a file\n" +
			"_haagent in a directory of fpath; for fish into ~/.config/fish/completions/haagent.fish.",
		Action: func(c *cli.Context) error {
			script, ok := program(c.App).Completion(c.Args().First())
			if !ok || c.NArg() != 1 {
				return usageError{errors.New("completion takes one shell: bash, zsh or fish")}
			}
			_, err := fmt.Fprint(c.App.Writer, script)
			return err
		},
	}
}

// generateCommand writes the files that are made from the options, for those who
// change them: see the Makefile. A test holds the files against the options.
func generateCommand() *cli.Command {
	return &cli.Command{
		Name: "generate", Hidden: true, Usage: "write manual, completions, example and reference below DIR", ArgsUsage: "DIR",
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usageError{errors.New("generate takes the root of a checkout")}
			}
			for name, content := range program(c.App).Artefacts() {
				path := filepath.Join(c.Args().First(), filepath.FromSlash(name))
				if err := cmp.Or(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
					return fmt.Errorf("write %s: %w", name, err)
				}
			}
			return nil
		},
	}
}
