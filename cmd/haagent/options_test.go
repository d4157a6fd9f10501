package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/cmd/haagent/options"
)

// paper is everything that speaks of options and commands.
type paper struct {
	flags []cli.Flag // of the command line
	help  string
	files map[string][]byte // as of options.Program.Artefacts
}

func paperOf(app *cli.App) paper {
	return paper{flags: app.Flags, help: app.CustomAppHelpTemplate, files: program(app).Artefacts()}
}

// lacks returns a sentence for every place that does not know an option of the
// table or a command, and for everything that is there and in no table.
func (p paper) lacks(table []options.Option, commands []options.Command) []string {
	var wrong []string
	demand := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	in := func(file, pattern string) bool {
		return regexp.MustCompile("(?m)" + pattern).Match(p.files[file])
	}
	known := map[string]bool{}
	for _, o := range table {
		known[o.Name] = true
		name, variable := regexp.QuoteMeta(o.Name), regexp.QuoteMeta(o.Env())
		demand(o.Help != "" && o.Group != "" && (o.Kind == options.Switch || o.Arg != ""), "--%s has no help, no chapter or no word for its value", o.Name)
		demand(slices.ContainsFunc(p.flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), o.Name) }), "--%s is no flag", o.Name)
		demand(regexp.MustCompile(`(?m)^ +--`+name+`\b`).MatchString(p.help), "--%s is not in --help", o.Name)
		demand(in("packaging/man/haagent.1", `^\.It Fl -`+name+`( Ar|$)`), "--%s is not in haagent(1)", o.Name)
		demand(in("packaging/man/haagent.1", `^\.It Ev `+variable+`$`), "%s is not in haagent(1)", o.Env())
		demand(in("docs/configuration.md", `^### `+name+`$`), "--%s is not in docs/configuration.md", o.Name)
		demand(in("docs/configuration.md", `^`+variable+`=`), "%s is not in docs/configuration.md", o.Env())
		demand(in("packaging/completions/haagent.bash", ` --`+name+`[ ']`), "--%s is not completed in bash", o.Name)
		demand(in("packaging/completions/_haagent", `^ +'--`+name+`\[`), "--%s is not completed in zsh", o.Name)
		demand(in("packaging/completions/haagent.fish", ` -l `+name+` `), "--%s is not completed in fish", o.Name)
		if o.NoKey {
			continue
		}
		demand(in("packaging/man/haagent.yml.5", `^\.It Ic `+name+` : `), "%s is not in haagent.yml(5)", o.Name)
		demand(in("packaging/haagent.yml", `^#`+name+`: `), "%s is not in packaging/haagent.yml", o.Name)
		demand(in("docs/configuration.md", `^`+name+`: `), "the key %s is not in docs/configuration.md", o.Name)
		demand(!o.Live || in("packaging/man/haagent.8", regexp.QuoteMeta(o.Name)), "haagent(8) does not say that %s can be reloaded", o.Name)
	}
	for _, f := range p.flags {
		demand(known[f.Names()[0]], "the flag --%s is in no table", f.Names()[0])
	}
	for file, pattern := range map[string]string{"packaging/haagent.yml": `(?m)^#([a-z-]+):`, "packaging/man/haagent.yml.5": `(?m)^\.It Ic ([a-z-]+) :`, "docs/configuration.md": `(?m)^### (.*)$`} {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(p.files[file], -1) {
			demand(known[string(m[1])], "%s explains %s, which is in no table", file, m[1])
		}
	}
	return append(wrong, p.lacksCommands(commands)...)
}

func (p paper) lacksCommands(commands []options.Command) []string {
	var wrong []string
	for _, c := range commands {
		for file, pattern := range map[string]string{
			"packaging/man/haagent.1":            `^\.Ss haagent (\w+ )?` + c.Name + `$`,
			"packaging/completions/haagent.bash": `/` + c.Name + `[|/)]`,
			"packaging/completions/_haagent":     `'` + c.Name + `:`,
			"packaging/completions/haagent.fish": ` -a ` + c.Name + ` `,
		} {
			if len(c.Commands) == 0 && !regexp.MustCompile("(?m)"+pattern).Match(p.files[file]) {
				wrong = append(wrong, fmt.Sprintf("the command %s is not in %s", c.Name, file))
			}
		}
		for _, f := range c.Flags {
			if !bytes.Contains(p.files["packaging/man/haagent.1"], []byte(".It Fl -"+f.Name)) {
				wrong = append(wrong, fmt.Sprintf("--%s of %s is not in haagent(1)", f.Name, c.Name))
			}
		}
		wrong = append(wrong, p.lacksCommands(c.Commands)...)
	}
	return wrong
}

// TestOptions_AreTheSameEverywhere holds flags, keys, variables, help, manual,
// completions, example file and reference against the one table.
func TestOptions_AreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	app := newApp(nil, nil, nil)
	if wrong := paperOf(app).lacks(options.Table(), program(app).Commands); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
}

// TestOptions_LacksAreFound shows that the check finds what it is for: papers
// that were made without an option or a command, or with one too many.
func TestOptions_LacksAreFound(t *testing.T) {
	t.Parallel()
	app := newApp(nil, nil, nil)
	full := program(app)
	without := full
	without.Options = slices.DeleteFunc(slices.Clone(full.Options), func(o options.Option) bool { return o.Name == "limit-rate" })
	without.Commands = withoutFlag(full.Commands, "limit-rate")
	old := paper{flags: slices.DeleteFunc(slices.Clone(app.Flags), func(f cli.Flag) bool { return f.Names()[0] == "limit-rate" }),
		help: options.HelpText(without.Options), files: without.Artefacts()}
	want := []string{
		"--limit-rate is no flag", "--limit-rate is not in --help", "--limit-rate is not in haagent(1)", "HAAGENT_LIMIT_RATE is not in haagent(1)",
		"--limit-rate is not in docs/configuration.md", "HAAGENT_LIMIT_RATE is not in docs/configuration.md",
		"--limit-rate is not completed in bash", "--limit-rate is not completed in zsh", "--limit-rate is not completed in fish",
		"limit-rate is not in haagent.yml(5)", "limit-rate is not in packaging/haagent.yml", "the key limit-rate is not in docs/configuration.md",
		"haagent(8) does not say that limit-rate can be reloaded",
	}
	if got := old.lacks(full.Options, without.Commands); !slices.Equal(got, want) {
		t.Errorf("papers without an option: found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got := paperOf(app).lacks(without.Options, full.Commands)
	slices.Sort(got)
	want = []string{
		"docs/configuration.md explains limit-rate, which is in no table", "packaging/haagent.yml explains limit-rate, which is in no table",
		"packaging/man/haagent.yml.5 explains limit-rate, which is in no table", "the flag --limit-rate is in no table",
	}
	if !slices.Equal(got, want) {
		t.Errorf("papers with an option too many: found\n%s", strings.Join(got, "\n"))
	}
	bare := full.Options[0]
	bare.Help = ""
	if got := paperOf(app).lacks([]options.Option{bare}, nil); len(got) == 0 || got[0] != "--role has no help, no chapter or no word for its value" {
		t.Errorf("an option without help: found %q", got)
	}
	more := append(slices.Clone(full.Commands), options.Command{Name: "dance", Flags: []options.Flag{{Name: "tango"}}})
	if got := paperOf(app).lacks(full.Options, more); len(got) != 5 {
		t.Errorf("a command that nobody knows: found %q", got)
	}
}

// withoutFlag returns the commands without one of their flags.
func withoutFlag(commands []options.Command, name string) []options.Command {
	list := slices.Clone(commands)
	for i := range list {
		list[i].Flags = slices.DeleteFunc(slices.Clone(list[i].Flags), func(f options.Flag) bool { return f.Name == name })
		list[i].Commands = withoutFlag(list[i].Commands, name)
	}
	return list
}

// TestGenerated_FilesAreThoseOfTheTable compares the files beside the sources
// with what the table yields today.
func TestGenerated_FilesAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	files := program(newApp(nil, nil, nil)).Artefacts()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(checkout, filepath.FromSlash(name)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the options say (%v): make generate", name, err)
		}
	}
	if len(files) < 8 {
		t.Errorf("%d files are made", len(files))
	}
}

// TestGenerate_WritesThem runs the command behind make generate.
func TestGenerate_WritesThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"haagent", "generate", dir}, nil, &stdout, &stderr); code != exitOK {
		t.Fatalf("ended with %d: %s", code, stderr.String())
	}
	for name, want := range program(newApp(nil, nil, nil)).Artefacts() {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		stdout.Reset()
		want, _ := program(newApp(nil, nil, nil)).Completion(shell)
		if code := run(t.Context(), []string{"haagent", "completion", shell}, nil, &stdout, &stderr); code != exitOK || stdout.String() != want {
			t.Errorf("completion %s ended with %d", shell, code)
		}
	}
}

// TestOptions_DefaultsAreThoseOfTheAgent keeps what the papers say of defaults
// true.
func TestOptions_DefaultsAreThoseOfTheAgent(t *testing.T) {
	t.Parallel()
	set, err := options.Resolve(options.Table(), options.Sources{Flags: map[string]string{"role": "slave", "dir": "/s"}})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := agentConfig(set)
	if err != nil {
		t.Fatal(err)
	}
	bare := agent.Config{Role: agent.RoleSlave, Dir: "/s", HTTP: agent.DefaultHTTP, Version: version, Retention: agent.Retention{Follow: true}}.WithDefaults()
	if got, want := fmt.Sprintf("%+v", cfg.WithDefaults()), fmt.Sprintf("%+v", bare); got != want {
		t.Errorf("the table's defaults make\n%s\nthe agent's are\n%s", got, want)
	}
}

// TestSuggestion_IsACommandForUsers: "extra" is nearest to one that only builds use.
func TestSuggestion_IsACommandForUsers(t *testing.T) {
	t.Parallel()
	var out, talk bytes.Buffer
	if code := run(t.Context(), []string{"haagent", "extra"}, strings.NewReader(""), &out, &talk); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(talk.String(), "generate") || !strings.HasPrefix(talk.String(), `haagent: no such command: "extra".`) {
		t.Errorf("it says %s", talk.String())
	}
}
