package options

import (
	"fmt"
	"strings"
)

// manDate is the date of the manual pages. It changes with what they say, so
// that the same sources always make the same files.
const manDate = "November 30, 2026"

// manWidth is how long the lines of a page's source get.
const manWidth = 76

// man writes one page in mdoc.
type man struct{ strings.Builder }

func manPage(title, section, name, summary string) *man {
	var m man
	fmt.Fprintf(&m, ".Dd %s\n.Dt %s %s\n.Os\n.Sh NAME\n.Nm %s\n.Nd %s\n", manDate, title, section, name, manEscape(summary))
	return &m
}

// manEscape keeps what mdoc would read as its own.
func manEscape(s string) string {
	s = strings.ReplaceAll(s, `\`, `\e`)
	s = strings.ReplaceAll(s, "--", `\-\-`)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// text writes paragraphs: each sentence begins a line, as mdoc wants it.
func (m *man) text(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			m.WriteString(".Pp\n")
		}
		for _, s := range sentences(paragraph) {
			for _, line := range wrap(s, manWidth) {
				m.WriteString(manEscape(line) + "\n")
			}
		}
	}
}

// sentences splits a paragraph behind full stops.
func sentences(paragraph string) []string {
	var list []string
	var current []string
	for word := range strings.FieldsSeq(paragraph) {
		current = append(current, word)
		if strings.HasSuffix(word, ".") || strings.HasSuffix(word, ".)") {
			list = append(list, strings.Join(current, " "))
			current = nil
		}
	}
	if len(current) > 0 {
		list = append(list, strings.Join(current, " "))
	}
	return list
}

func (m *man) section(title string) { m.WriteString(".Sh " + title + "\n") }

// literal writes lines as they are.
func (m *man) literal(text string) {
	m.WriteString(".Bd -literal -offset indent\n")
	for line := range strings.Lines(text) {
		m.WriteString(manEscape(strings.TrimSuffix(line, "\n")) + "\n")
	}
	m.WriteString(".Ed\n")
}

// tags writes a list of words with what each means.
func (m *man) tags(macro string, rows [][2]string) {
	m.WriteString(".Bl -tag -width Ds\n")
	for _, row := range rows {
		fmt.Fprintf(m, ".It %s %s\n", macro, manEscape(row[0]))
		m.text(row[1])
	}
	m.WriteString(".El\n")
}

// man1 returns haagent(1).
func (p Program) man1() string {
	m := manPage("HAAGENT", "1", "haagent", p.Summary)
	m.section("SYNOPSIS")
	m.WriteString(".Nm\n.Fl -role Ar ROLE\n.Op Ar options\n.Nm\n.Ar command\n.Op Ar options\n")
	m.section("DESCRIPTION")
	m.text(p.Description)
	m.WriteString(".Pp\n")
	m.text("Without a command the agent runs in the foreground. Running it as a service is described in haagent(8), its file in haagent.yml(5).")
	m.section("OPTIONS")
	m.text("Each option is also a variable of the environment and a key of the file. The first of these that says something wins: the option, the variable, the file of --config, the broker's own file of --broker-conf, the default.")
	for _, group := range groups(p.Options) {
		fmt.Fprintf(m, ".Ss %s\n.Bl -tag -width Ds\n", group)
		for _, o := range inGroup(p.Options, group) {
			m.flag(o.Name, o.Arg)
			m.text(sentence(o.Help) + " " + o.More + " " + o.absent() + remarks(o))
		}
		m.WriteString(".El\n")
	}
	m.section("COMMANDS")
	for _, c := range p.Commands {
		m.command("", c)
	}
	m.section("ENVIRONMENT")
	m.text("Each option can be given as a variable: its name in capitals, with _ for -, behind HAAGENT_. An empty variable is as good as none.")
	m.WriteString(".Bl -tag -width Ds\n")
	for _, o := range p.Options {
		fmt.Fprintf(m, ".It Ev %s\n.Fl -%s\n", o.Env(), o.Name)
	}
	m.WriteString(".It Ev NO_COLOR\nno colours in the log on a terminal\n.El\n")
	m.section("FILES")
	m.files()
	m.section("EXIT STATUS")
	m.WriteString(".Bl -tag -width Ds\n")
	for _, e := range p.Exits {
		fmt.Fprintf(m, ".It %d\n", e.Code)
		m.text(e.Meaning)
	}
	m.WriteString(".El\n")
	m.section("EXAMPLES")
	m.text("A master beside a broker, and a replica of it on another host:")
	m.literal("haagent --role master --dir /data/rocketmq/store --key-file /etc/haagent/key\nhaagent --role slave --dir /var/lib/rocketmq/store \\\n    --key-file /etc/haagent/key --join 10.0.0.5")
	m.text("A replica of a broker that has no agent:")
	m.literal("haagent --role slave --dir /var/lib/rocketmq/store --master 10.0.0.5:10911")
	m.text("Whether a replica is less than five seconds behind, for monitoring:")
	m.literal("haagent status --dir /var/lib/rocketmq/store --max-lag 5s")
	m.section("SEE ALSO")
	m.WriteString(".Xr haagent.yml 5 ,\n.Xr haagent 8\n")
	return m.String()
}

func (m *man) flag(name, arg string) {
	if arg == "" {
		fmt.Fprintf(m, ".It Fl -%s\n", name)
		return
	}
	fmt.Fprintf(m, ".It Fl -%s Ar %s\n", name, arg)
}

func (m *man) command(above string, c Command) {
	name := strings.TrimSpace(above + " " + c.Name)
	if len(c.Commands) == 0 {
		fmt.Fprintf(m, ".Ss haagent %s\n", name)
		m.arguments(name, c.Args)
		m.text(sentence(c.Usage))
		if c.Description != "" {
			m.WriteString(".Pp\n")
			m.text(c.Description)
		}
	}
	own := c.Flags
	if m.agentFlags(c) {
		m.WriteString(".Pp\n")
		m.text("All options of the agent can be given.")
		own = nil
		for _, f := range c.Flags {
			if f.Name == "json" {
				own = append(own, f)
			}
		}
	}
	if len(own) > 0 {
		m.WriteString(".Bl -tag -width Ds\n")
		for _, f := range own {
			m.flag(f.Name, f.Arg)
			text := sentence(f.text())
			if f.Default != "" && f.Default != "0" && f.Default != "0s" {
				text += " Default: " + f.Default + "."
			}
			m.text(text)
		}
		m.WriteString(".El\n")
	}
	for _, sub := range c.Commands {
		m.command(name, sub)
	}
}

// arguments writes how a command is called: "DIR [OTHER]" or "bash|zsh|fish".
func (m *man) arguments(name, args string) {
	if args == "" {
		return
	}
	fmt.Fprintf(m, ".D1 Nm Cm %s", name)
	for arg := range strings.FieldsSeq(args) {
		if inner, optional := strings.CutPrefix(arg, "["); optional {
			m.WriteString(" Op")
			arg = strings.TrimSuffix(inner, "]")
		}
		m.WriteString(" Ar " + strings.ReplaceAll(arg, "|", " | "))
	}
	m.WriteString("\n.Pp\n")
}

// agentFlags reports whether a command takes the agent's own options.
func (m *man) agentFlags(c Command) bool {
	for _, f := range c.Flags {
		if f.Name == "role" {
			return true
		}
	}
	return false
}

func (m *man) files() {
	m.tags("Pa", [][2]string{
		{"/etc/haagent/haagent.yml", "The configuration that the packaged unit reads, see haagent.yml(5)."},
		{"DIR/.haagent", "What the agent itself keeps of a replica: its state, generations of the config files, what was set aside or cut off, and the control socket."},
		{"DIR/lock", "The broker's own lock, held while the agent replicates."},
	})
}

// man5 returns haagent.yml(5).
func (p Program) man5() string {
	m := manPage("HAAGENT.YML", "5", "haagent.yml", "configuration of haagent")
	m.section("DESCRIPTION")
	m.text(`The file is YAML with one key for each option, which is the name of the flag without dashes before it. It is read where --config or HAAGENT_CONFIG names it. Flags and variables of the environment stand above it, the broker's own file and the defaults below it.

Lists are written with brackets or as text with commas. Times have a unit (500ms, 10s, 72h), sizes may have one (64MiB, 1GiB).

The file is read strictly. A key that is no option, a key given twice, a value of the wrong type or out of range, anchors, tags and nesting are refused with exit status 3, in one line that says file, line, key and what is wrong. It may have 64 KiB.

Keys that take effect on reload are read again on SIGHUP. Others that have changed are named in the log and wait for a restart.`)
	m.section("KEYS")
	m.WriteString(".Bl -tag -width Ds\n")
	for _, o := range p.Options {
		if o.NoKey {
			continue
		}
		arg := o.Arg
		if arg == "" {
			arg = "true|false"
		}
		fmt.Fprintf(m, ".It Ic %s : Ar %s\n", o.Name, arg)
		m.text(sentence(o.Help) + " " + o.More + " " + o.absent() + remarks(o))
		if len(o.Choices) > 0 {
			m.text("One of " + enumerate(o.Choices) + ".")
		}
		if o.Property != "" {
			m.text("In the broker's own file: " + o.Property + ".")
		}
	}
	m.WriteString(".El\n")
	m.section("THE BROKER'S OWN FILE")
	m.text("With broker-conf the agent takes what the broker was told already. The file is read by the rules of Java properties. A file that has none of a broker's properties is refused, and so is a number that is none, with file and line. Where it does not name a store root, that is $HOME/store, as for the broker.")
	m.section("EXAMPLES")
	m.text("A replica that follows the agent on 10.0.0.5:")
	m.literal("role: slave\ndir: /var/lib/rocketmq/store\nkey-file: /etc/haagent/key\njoin: [10.0.0.5]\nack: disk")
	m.text("Beside a broker, with all that its own file says:")
	m.literal("role: master\nbroker-conf: /etc/rocketmq/broker.conf\nkey-file: /etc/haagent/key")
	m.section("SEE ALSO")
	m.WriteString(".Xr haagent 1 ,\n.Xr haagent 8\n")
	return m.String()
}
