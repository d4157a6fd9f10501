package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/cmd/haagent/options"
)

// TestAdvice_LoopbackAdvertised: an address that leads others to themselves is said,
// where this agent listens for others.
func TestAdvice_LoopbackAdvertised(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags map[string]string
		want  string // start of the one line
	}{
		"to itself":                  {map[string]string{"role": "observer", "insecure": "true", "gossip-advertise": "127.0.0.1:7946"}, "--gossip-advertise 127.0.0.1:7946 leads"},
		"by a name":                  {map[string]string{"role": "observer", "gossip-bind": "10.0.0.5:7946", "gossip-advertise": "localhost:7946"}, "--gossip-advertise localhost:7946 leads"},
		"without a port":             {map[string]string{"role": "observer", "key-file": "/k", "gossip-advertise": "::1"}, "--gossip-advertise ::1 leads"},
		"the link":                   {map[string]string{"role": "master", "key-file": "/k", "link-advertise": "127.0.0.2:10915"}, "--link-advertise 127.0.0.2:10915 leads"},
		"the link, with certificate": {map[string]string{"role": "master", "tls-cert": "/c", "link-advertise": "127.0.0.2:10915"}, "--link-advertise 127.0.0.2:10915 leads"},
		"on this host only":          {map[string]string{"role": "master", "gossip-advertise": "127.0.0.1:7946", "link-advertise": "127.0.0.1:10915"}, ""},
		"bound to this host":         {map[string]string{"role": "observer", "insecure": "true", "gossip-bind": "127.0.0.1:7946", "gossip-advertise": "127.0.0.1:7946"}, ""},
		"to where it is":             {map[string]string{"role": "observer", "insecure": "true", "gossip-advertise": "10.0.0.5:7946"}, ""},
		"of no effect":               {map[string]string{"role": "slave", "insecure": "true", "link-advertise": "127.0.0.1:1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := options.Resolve(options.Table(), options.Sources{Flags: c.flags})
			if err != nil {
				t.Fatal(err)
			}
			got := advice(set)
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want) || !strings.Contains(got[0], ". Try: ")) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestResolveInstalled: without options, the file of the installed service is meant.
func TestResolveInstalled(t *testing.T) {
	t.Parallel()
	role := "role: slave\n"
	for name, c := range map[string]struct {
		files map[string]string
		args  []string
		from  string // file that is taken
		try   string // what the error says; none: no error
	}{
		"the service's":        {map[string]string{"haagent.yml": role, "b.yml": role}, nil, "haagent.yml", ""},
		"the only one":         {map[string]string{"b.yml": role}, nil, "b.yml", ""},
		"one of several":       {map[string]string{"b.yml": role, "c.yml": role}, nil, "", "c.yml"},
		"none":                 {nil, nil, "", "there is no "},
		"as it was installed":  {map[string]string{"haagent.yml": "# nothing yet\n"}, nil, "", "--config FILE"},
		"options are given":    {map[string]string{"haagent.yml": role}, []string{"--role", "observer"}, "", ""},
		"a directory is given": {map[string]string{"haagent.yml": role}, []string{"--dir", "/s"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			app := &cli.App{Flags: agentFlags(), Action: func(ctx *cli.Context) error {
				set, from, err := resolveInstalled(ctx, dir)
				if err != nil {
					return err
				}
				if want := filepath.Join(dir, c.from); c.from != "" && (from != want || set.Text("config") != want) || c.from == "" && from != "" {
					t.Errorf("took %q", from)
				}
				return nil
			}}
			err := app.RunContext(t.Context(), append([]string{"haagent"}, c.args...))
			if code, try := explain(err); c.try == "" && err != nil || c.try != "" && (code != exitConfig || !strings.Contains(try, c.try)) {
				t.Errorf("got %v, Try: %s", err, try)
			}
		})
	}
}

// TestHelp_OfCommands: each says its options once and in lines that fit, and the
// commands that take the agent's options list them as the program does.
func TestHelp_OfCommands(t *testing.T) {
	t.Parallel()
	var walk func(commands []*cli.Command, words ...string)
	seen := 0
	walk = func(commands []*cli.Command, words ...string) {
		for _, c := range commands {
			args := append(slices.Clone(words), c.Name)
			var out, talk bytes.Buffer
			if code := run(t.Context(), slices.Concat([]string{"haagent"}, args, []string{"--help"}), nil, &out, &talk); code != exitOK {
				t.Errorf("%v ended with %d: %s", args, code, talk.String())
			}
			seen++
			text := out.String()
			if !strings.HasPrefix(text, "haagent "+strings.Join(args, " ")+" - ") || strings.Contains(text, "default: false") || strings.Contains(text, "{{") {
				t.Errorf("%v: %s", args, text)
			}
			for line := range strings.Lines(text) {
				if len(line) > 101 {
					t.Errorf("%v: a line of %d letters: %s", args, len(line)-1, line)
				}
			}
			for _, f := range flagsOf(c.Flags) {
				if n := strings.Count(text, " --"+f.Name+" ") + strings.Count(text, " --"+f.Name+"\n"); n < 1 || f.Arg != "" && strings.Contains(text, " "+f.Arg+": ") {
					t.Errorf("%v: --%s is said %d times, or its value twice:\n%s", args, f.Name, n, text)
				}
			}
			if takesAgentOptions(c) != strings.Contains(text, options.HelpText(options.Table())) {
				t.Errorf("%v: the agent's options are not told as the program tells them", args)
			}
			walk(c.Subcommands, args...)
		}
	}
	walk(newApp(nil, nil, nil).Commands)
	if seen < 14 {
		t.Errorf("only %d commands were looked at", seen)
	}
}
