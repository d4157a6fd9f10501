package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/cmd/haagent/options"
)

// verdict is how bad a finding is.
type verdict string

// The verdicts.
const (
	fine verdict = "ok"
	odd  verdict = "warn" // works, but not as one may think
	bad  verdict = "fail"
)

// finding is one thing that doctor has looked at.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Text    string  `json:"text"`
	Try     string  `json:"try,omitempty"`

	exit int // of a bad one; 0: run-time
}

// doctor looks at everything around an agent, and changes nothing.
type doctor struct {
	set  *options.Set
	cfg  agent.Config
	conf *options.BrokerConf // the broker's own file; nil: not given
	live *stock.BrokerConfig // what the broker answered; nil: it did not

	findings []finding
}

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "say in words what is in force around an agent, and what is wrong",
		Description: "Takes the agent's options behind it. Looks at the options, the broker and its own file,\n" +
			"the directory, the disk, the keys and the other agents, and changes nothing. Without\n" +
			"options it takes the file of the installed service, /etc/haagent/haagent.yml. The exit\n" +
			"code is 0, or that of the worst finding.",
		Flags: append(agentFlags(), &cli.BoolFlag{Name: "json", Usage: "print the findings as JSON"}),
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usageError{fmt.Errorf("doctor takes options only, and not %q", c.Args().First())}
			}
			set, from, err := resolveInstalled(c, configDir)
			if err != nil {
				return err
			}
			d := &doctor{set: set}
			if from != "" {
				d.found("config", fine, "", "no options were given: those of %s are looked at, as the service's agent has them", from)
			}
			if err := d.examine(c.Context); err != nil {
				return err
			}
			if c.Bool("json") {
				err = printJSON(c.App.Writer, d.findings)
			} else {
				err = d.print(c.App.Writer)
			}
			if err != nil {
				return err
			}
			return d.exit()
		},
	}
}

// examine makes all findings. Options that no agent could be told are an error.
func (d *doctor) examine(ctx context.Context) error {
	cfg, err := agentConfig(d.set)
	if err != nil {
		return err
	}
	d.cfg = cfg.WithDefaults()
	if d.cfg.Role == "" {
		if from := d.set.Text("config"); from != "" {
			return d.set.Refuse("role", "", "is missing, in "+from+" too", "set role: there, or give --role")
		}
		return d.set.Refuse("role", "", "is missing", "give the options of the agent, or --config FILE")
	}
	if path := d.set.Text("broker-conf"); path != "" {
		if d.conf, err = options.ReadBrokerConf(path); err != nil {
			return err
		}
	}
	d.options(ctx)
	d.broker(ctx)
	d.store()
	d.disk()
	d.home()
	d.seeds(ctx)
	d.peers(ctx)
	return nil
}

func (d *doctor) found(check string, v verdict, try, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, Verdict: v, Text: fmt.Sprintf(format, args...), Try: try})
}

// options says what a start would, and what was given and does nothing.
func (d *doctor) options(ctx context.Context) {
	for _, w := range d.set.Warnings {
		text, try, _ := strings.Cut(w, ". Try: ")
		d.found("options", odd, cmp.Or(try, "take it out"), "%s", text)
	}
	running, err := check(ctx, d.set)
	switch {
	case err != nil:
		err = placed(d.set, err)
		code, try := explain(err)
		d.findings = append(d.findings, finding{Check: "options", Verdict: bad, Text: err.Error(), Try: try, exit: code})
	case running:
		d.found("options", fine, "", "an agent works on %s, and these options can be used", d.cfg.Dir)
	default:
		d.found("options", fine, "", "an agent would start with these options")
	}
}

func (d *doctor) print(w io.Writer) error {
	for _, f := range d.findings {
		if _, err := fmt.Fprintf(w, "%-5s %-12s %s\n", f.Verdict, f.Check, f.Text); err != nil {
			return err
		}
		if f.Try != "" {
			if _, err := fmt.Fprintf(w, "%-18s Try: %s\n", "", f.Try); err != nil {
				return err
			}
		}
	}
	return nil
}

// exit is the code of the worst finding. What is merely odd is none.
func (d *doctor) exit() error {
	for _, f := range d.findings {
		if f.Verdict == bad {
			return &exitError{code: cmp.Or(f.exit, exitRuntime), err: errors.New(f.Text), try: f.Try}
		}
	}
	return nil
}
