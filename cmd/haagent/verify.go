package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/dustin/go-humanize/english"
	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

func verifyCommand() *cli.Command {
	return &cli.Command{
		Name: "verify", Usage: "walk over a store, or compare two: verify DIR [OTHER]", ArgsUsage: "DIR [OTHER]",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print the result as JSON"}},
		Action: func(c *cli.Context) error {
			args, asJSON := flagsAnywhere(c)
			switch len(args) {
			case 1:
				return verifyOne(c, args[0], asJSON)
			case 2:
				return verifyTwo(c, args[0], args[1], asJSON)
			}
			return usageError{errors.New("verify takes one or two store directories")}
		},
	}
}

// flagsAnywhere accepts --json behind the directories too.
func flagsAnywhere(c *cli.Context) (args []string, asJSON bool) {
	asJSON = c.Bool("json")
	for _, a := range c.Args().Slice() {
		if a == "--json" || a == "-json" {
			asJSON = true
			continue
		}
		args = append(args, a)
	}
	return args, asJSON
}

// logOf returns what verify reads for dir: the directory of the segments, where a
// replica with the store root dir has them elsewhere, else dir itself.
func logOf(dir string) string {
	if st, err := replica.ReadState(dir); err == nil && st.CommitLogDir != "" {
		return st.CommitLogDir
	}
	return dir
}

func verifyOne(c *cli.Context, dir string, asJSON bool) error {
	r, err := verify.Store(c.Context, logOf(dir), nil)
	if err != nil {
		return verifyError(err)
	}
	if asJSON {
		err = printJSON(c.App.Writer, r)
	} else {
		err = printReport(c.App.Writer, r)
	}
	if err != nil {
		return err
	}
	if r.Bad != nil {
		return &exitError{code: exitDifferent, err: fmt.Errorf("%s: %s at %d: %s", dir, r.Bad.File, r.Bad.PhyOffset, r.Bad.Reason),
			try: "restore the store from a replica: a broker would delete everything behind this place"}
	}
	return nil
}

func printReport(w io.Writer, r verify.Report) error {
	if _, err := fmt.Fprintf(w, "%s: min %d, valid end %d, %s of %s, %s\n", r.Dir, r.Min, r.End,
		english.Plural(r.Segments, "segment", ""), r.SegmentSize, english.Plural(int(r.Messages), "message", "")); err != nil {
		return err
	}
	var err error
	switch {
	case r.Bad != nil:
		_, err = fmt.Fprintf(w, "%s: first bad place at %d in %s: %s\n", r.Dir, r.Bad.PhyOffset, r.Bad.File, r.Bad.Reason)
	case r.Torn != nil:
		_, err = fmt.Fprintf(w, "%s: the last message, at %d, is not finished: %s\n", r.Dir, r.Torn.PhyOffset, r.Torn.Reason)
	}
	return err
}

func verifyTwo(c *cli.Context, a, b string, asJSON bool) error {
	r, err := verify.Compare(c.Context, logOf(a), logOf(b), nil)
	if err != nil {
		return verifyError(err)
	}
	if asJSON {
		if err := printJSON(c.App.Writer, r); err != nil {
			return err
		}
	} else if err := printComparison(c.App.Writer, r); err != nil {
		return err
	}
	if r.Same() {
		return nil
	}
	return &exitError{code: exitDifferent, err: fmt.Errorf("%s and %s are not the same", a, b), try: "haagent verify on each of them tells which one is damaged"}
}

func printComparison(w io.Writer, r verify.Comparison) error {
	for _, one := range []verify.Report{r.A, r.B} {
		if err := printReport(w, one); err != nil {
			return err
		}
	}
	var err error
	switch {
	case r.Different != wire.NoOffset:
		_, err = fmt.Fprintf(w, "different at %d (identical from %d up to there)\n", r.Different, r.From)
	case r.From > r.IdenticalTo:
		_, err = fmt.Fprintf(w, "nothing in common: one ends at %d, the other begins at %d\n", r.IdenticalTo, r.From)
	default:
		_, err = fmt.Fprintf(w, "identical up to %d\n", r.IdenticalTo)
		for _, longer := range []verify.Report{r.A, r.B} {
			if extra := longer.End.Sub(r.IdenticalTo); extra > 0 && err == nil {
				_, err = fmt.Fprintf(w, "%s goes on for %d bytes\n", longer.Dir, extra)
			}
		}
	}
	return err
}

// verifyError gives the exit code of a store that cannot be read.
func verifyError(err error) error {
	var foreign *commitlog.ForeignFileError
	var length *commitlog.LengthError
	switch {
	case errors.Is(err, verify.ErrNoStore):
		return &exitError{code: exitIncompatible, err: err, try: "give a store root (storePathRootDir) or its commitlog directory"}
	case errors.As(err, &foreign):
		return &exitError{code: exitIncompatible, err: err, try: "move " + foreign.Path + " elsewhere: no broker boots with it there"}
	case errors.As(err, &length):
		return &exitError{code: exitIncompatible, err: err, try: "look at " + length.Path + ": all segments of a store have one length"}
	}
	return err
}
