package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent/link"
)

func keygenCommand() *cli.Command {
	return &cli.Command{
		Name: "keygen", Usage: "make a key for --key-file", ArgsUsage: "[FILE]",
		Description: "Writes a new key into FILE, readable by its owner only, or to stdout. All agents of a\n" +
			"ring have the same file. To change keys: add the new one as second line everywhere, then\n" +
			"make it the first line everywhere, then take the old one out; reload the agents after each (SIGHUP).",
		Action: func(c *cli.Context) error {
			switch c.NArg() {
			case 0:
				_, err := fmt.Fprintln(c.App.Writer, link.NewKey())
				return err
			case 1:
				return writeKey(c.Args().First())
			}
			return usageError{errors.New("keygen writes one file")}
		},
	}
}

// writeKey makes the file. One that is there is left alone: others may depend on
// what it holds.
func writeKey(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &exitError{code: exitConfig, err: fmt.Errorf("%s is there already and was left alone", path), try: "give another FILE, or remove it where no agent uses it any more"}
	}
	if err != nil {
		return &exitError{code: exitConfig, err: fmt.Errorf("make key file: %w", err), try: "give a FILE in a directory that is there, and that you may write to"}
	}
	_, err = fmt.Fprintln(f, link.NewKey())
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	return nil
}
