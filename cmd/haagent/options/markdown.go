package options

import (
	"fmt"
	"strings"
)

// Markdown returns docs/configuration.md.
func (p Program) Markdown() string {
	var b strings.Builder
	b.WriteString(markdownHead)
	for _, group := range groups(p.Options) {
		fmt.Fprintf(&b, "\n## %s\n\n| option | default | for | live |\n|---|---|---|---|\n", group)
		for _, o := range inGroup(p.Options, group) {
			live := ""
			if o.Live {
				live = "yes"
			}
			roles := strings.Join(o.Roles, ", ")
			if roles == "" {
				roles = "all"
			}
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s |\n", o.Name, o.Name, markdownDefault(o), roles, live)
		}
		for _, o := range inGroup(p.Options, group) {
			p.markdownOption(&b, o)
		}
	}
	b.WriteString(markdownTail)
	return b.String()
}

func markdownDefault(o Option) string {
	if o.Default != "" {
		return "`" + o.Default + "`"
	}
	return o.says()
}

func (p Program) markdownOption(b *strings.Builder, o Option) {
	fmt.Fprintf(b, "\n### %s\n\n%s", o.Name, markdownText(sentence(o.Help)))
	if o.More != "" {
		fmt.Fprintf(b, " %s", markdownText(o.More))
	}
	b.WriteString("\n\n```text\n")
	fmt.Fprintf(b, "--%s\n", strings.TrimSpace(o.Name+" "+o.Arg))
	if o.Kind == Switch {
		fmt.Fprintf(b, "%s=true\n", o.Env())
	} else {
		fmt.Fprintf(b, "%s=%s\n", o.Env(), o.Example)
	}
	if !o.NoKey {
		fmt.Fprintf(b, "%s: %s\n", o.Name, exampleValue(o))
	}
	b.WriteString("```\n")
	if o.Property != "" {
		fmt.Fprintf(b, "\nIn the broker's own file: `%s`.\n", o.Property)
	}
	if o.Secret {
		b.WriteString("\nThe file holds a secret: `config show` prints its name and never what is in it.\n")
	}
}

// markdownText marks options as code.
func markdownText(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		core := strings.TrimRight(w, ".,:;)")
		if strings.HasPrefix(core, "--") || strings.HasPrefix(core, "DIR/") {
			words[i] = "`" + core + "`" + w[len(core):]
		}
	}
	return strings.Join(words, " ")
}

const markdownHead = `# Configuration

All options of the agent. This page is made from the table that the program
reads them with (` + "`make generate`" + `); the commented file that packages install is
[packaging/haagent.yml](../packaging/haagent.yml).

Each option can be given in five places. The first of these that says something
wins:

1. a flag, ` + "`--ack disk`" + `
2. the environment, ` + "`HAAGENT_ACK=disk`" + `: the flag's name in capitals, with _ for -
3. the YAML file of ` + "`--config FILE`" + `, ` + "`ack: disk`" + `
4. the broker's own properties, ` + "`--broker-conf FILE`" + `
5. the default

` + "```text" + `
$ haagent config show --config /etc/haagent/haagent.yml
KEY            VALUE                             ORIGIN
role           slave                             /etc/haagent/haagent.yml:12
dir            /var/lib/rocketmq/store           HAAGENT_DIR
ack            memory                            default
...
` + "```" + `

` + "`haagent config show [--json]`" + ` prints what is in force and where each value was
given, ` + "`haagent config check`" + ` says what a start would, without starting. Both take
the agent's options behind them.

The YAML file is flat: one key for each option, which is the flag's name. Lists
are written as ` + "`join: [10.0.0.5, 10.0.0.6]`" + ` or as text with commas. It is read
strictly: a key that is no option, a key given twice, a value of the wrong type or
out of range, anchors, tags and nesting are refused, in one line that says file,
line, key and what is wrong, with exit code 3. It may have 64 KiB. Paths are
relative to where the agent was started.

An empty variable of the environment is as good as none. One that begins with
HAAGENT_ and is no option is logged as a warning, with the option that was probably
meant; it stops nobody, because container platforms set such variables by
themselves.

An option that does nothing for the role, or without another one, is a warning at
the start and in ` + "`config check`" + ` and is marked in ` + "`config show`" + `. A file that
does not name the role may be shared by several: options of another role in it are
nothing to be warned of.

Times have a unit (` + "`500ms`, `10s`, `72h`" + `), sizes may have one (` + "`64MiB`, `1GiB`" + `;
` + "`64MB` and `64m`" + ` are the same).

On SIGHUP the agent reads everything again. Options with "live" take effect;
changed ones without it are named in the log, and wait for a restart. Where the new
configuration cannot be used, the agent says so and goes on with the old one.
`

const markdownTail = `
## The broker's own file

` + "`--broker-conf FILE`" + ` takes what the broker was told already. The file is read by
the rules of Java properties: comments with # or !, continued lines, escapes, and
=, : or a blank between key and value. A file that has none of a broker's
properties is refused, and so is a number that is none, with file and line.

| property | option |
|---|---|
| ` + "`brokerClusterName`" + ` | ` + "`cluster`" + ` |
| ` + "`brokerName`" + ` | ` + "`broker-name`" + ` |
| ` + "`brokerId`" + ` | ` + "`broker-id`" + ` |
| ` + "`storePathRootDir`" + `, or $HOME/store where it is not there | ` + "`dir`" + ` |
| ` + "`storePathCommitLog`" + ` | ` + "`commitlog-dir`" + ` |
| ` + "`mappedFileSizeCommitLog`" + ` | ` + "`segment-size`" + ` |
| ` + "`listenPort`, `bindAddress`" + ` | ` + "`broker`" + ` |

An observer takes nothing of it that it has no use for. ` + "`haagent doctor`" + ` reads more of it.
`
