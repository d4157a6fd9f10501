package options

import (
	"fmt"
	"slices"
	"strings"
)

// completes tells what a shell can offer for a value.
func completes(kind Kind, arg string) string {
	switch {
	case kind == Dir || arg == "DIR":
		return "dir"
	case kind == File || arg == "FILE":
		return "file"
	}
	return ""
}

// choice is one flag as completions see it.
type choice struct {
	name, arg, usage string
	values           []string
	offer            string // dir, file or ""
}

func (p Program) agentChoices() []choice {
	list := []choice{{name: "help", usage: "show the help"}, {name: "version", usage: "print the version"}}
	for _, o := range p.Options {
		list = append(list, choice{name: o.Name, arg: o.Arg, usage: o.Help, values: o.Choices, offer: completes(o.Kind, o.Arg)})
	}
	return list
}

// choices returns the flags of a command; those of the agent have its values.
func (p Program) choices(c Command) []choice {
	list := []choice{{name: "help", usage: "show the help"}}
	for _, f := range c.Flags {
		one := choice{name: f.Name, arg: f.Arg, usage: f.text(), offer: completes(Text, f.Arg)}
		if o, ok := Lookup(p.Options, f.Name); ok && o.Arg == f.Arg {
			one.values, one.offer = o.Choices, completes(o.Kind, o.Arg)
		}
		list = append(list, one)
	}
	return list
}

// A place is a command, or a command of a command, with what can follow it.
type place struct {
	words   []string // the commands that lead there
	command Command
}

func (p Program) places() []place {
	var list []place
	for _, c := range p.Commands {
		list = append(list, place{[]string{c.Name}, c})
		for _, sub := range c.Commands {
			list = append(list, place{[]string{c.Name, sub.Name}, sub})
		}
	}
	return list
}

// bash returns the completions for bash.
func (p Program) bash() string {
	var b strings.Builder
	b.WriteString("# Completions of haagent for bash, made by haagent completion bash.\n\n_haagent() {\n" +
		"    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= word i\n" +
		"    COMPREPLY=()\n" +
		"    for ((i = 1; i < COMP_CWORD; i++)); do\n" +
		"        word=${COMP_WORDS[i]}\n" +
		"        case \"$path/$word\" in\n")
	var all []string
	for _, at := range p.places() {
		all = append(all, "/"+strings.Join(at.words, "/"))
	}
	fmt.Fprintf(&b, "            %s) path=$path/$word ;;\n        esac\n    done\n", strings.Join(all, "|"))
	b.WriteString("    case \"$prev\" in\n")
	for _, c := range p.valued() {
		fmt.Fprintf(&b, "        --%s) %s; return ;;\n", c.name, bashValue(c))
	}
	b.WriteString("    esac\n    case \"$path\" in\n")
	fmt.Fprintf(&b, "        '') COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", bashWords(p.Commands, p.agentChoices()))
	for _, at := range p.places() {
		words := bashWords(at.command.Commands, p.choices(at.command))
		if extra := argWords(at.command); extra != "" {
			words = extra + " " + words
		}
		fmt.Fprintf(&b, "        /%s)\n            COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n", strings.Join(at.words, "/"), words)
		if offer := argOffer(at.command); offer != "" {
			fmt.Fprintf(&b, "            [[ $cur == -* ]] || COMPREPLY+=($(compgen %s -- \"$cur\"))\n", map[string]string{"dir": "-d", "file": "-f"}[offer])
		}
		b.WriteString("            ;;\n")
	}
	b.WriteString("    esac\n}\n\ncomplete -F _haagent haagent\n")
	return b.String()
}

// valued returns every flag with a value once.
func (p Program) valued() []choice {
	var list []choice
	add := func(more []choice) {
		for _, c := range more {
			if c.arg != "" && !slices.ContainsFunc(list, func(have choice) bool { return have.name == c.name }) {
				list = append(list, c)
			}
		}
	}
	add(p.agentChoices())
	for _, at := range p.places() {
		add(p.choices(at.command))
	}
	return list
}

func bashValue(c choice) string {
	switch {
	case len(c.values) > 0:
		return fmt.Sprintf("COMPREPLY=($(compgen -W '%s' -- \"$cur\"))", strings.Join(c.values, " "))
	case c.offer == "dir":
		return "COMPREPLY=($(compgen -d -- \"$cur\"))"
	case c.offer == "file":
		return "COMPREPLY=($(compgen -f -- \"$cur\"))"
	}
	return ":"
}

func bashWords(commands []Command, flags []choice) string {
	var words []string
	for _, c := range commands {
		words = append(words, c.Name)
	}
	for _, f := range flags {
		words = append(words, "--"+f.name)
	}
	return strings.Join(words, " ")
}

// argWords returns the words that a command takes as argument: "bash|zsh|fish".
func argWords(c Command) string {
	if strings.Contains(c.Args, "|") {
		return strings.ReplaceAll(c.Args, "|", " ")
	}
	return ""
}

func argOffer(c Command) string {
	switch {
	case strings.Contains(c.Args, "DIR"):
		return "dir"
	case strings.Contains(c.Args, "FILE"):
		return "file"
	}
	return ""
}

// zsh returns the completions for zsh.
func (p Program) zsh() string {
	var b strings.Builder
	b.WriteString("#compdef haagent\n# Completions of haagent for zsh, made by haagent completion zsh.\n\n")
	p.zshPlace(&b, "_haagent", p.Commands, p.agentChoices(), "")
	for _, at := range p.places() {
		p.zshPlace(&b, "_haagent_"+strings.Join(at.words, "_"), at.command.Commands, p.choices(at.command), zshArgument(at.command))
	}
	b.WriteString("if [ \"$funcstack[1]\" = \"_haagent\" ]; then\n    _haagent \"$@\"\nelse\n    compdef _haagent haagent\nfi\n")
	return b.String()
}

func (p Program) zshPlace(b *strings.Builder, name string, commands []Command, flags []choice, argument string) {
	fmt.Fprintf(b, "%s() {\n    local curcontext=$curcontext state line\n    typeset -A opt_args\n    _arguments -C", name)
	for _, f := range flags {
		fmt.Fprintf(b, " \\\n        '--%s[%s]%s'", f.name, zshText(f.usage), zshValue(f))
	}
	if len(commands) == 0 {
		fmt.Fprintf(b, "%s\n}\n\n", argument)
		return
	}
	b.WriteString(" \\\n        '1: :->command' \\\n        '*:: :->rest'\n    case $state in\n    command)\n        local -a commands\n        commands=(\n")
	for _, c := range commands {
		fmt.Fprintf(b, "            '%s:%s'\n", c.Name, zshText(c.Usage))
	}
	fmt.Fprintf(b, "        )\n        _describe command commands\n        ;;\n    rest)\n        case $words[1] in\n")
	for _, c := range commands {
		fmt.Fprintf(b, "        %s) %s_%s ;;\n", c.Name, name, c.Name)
	}
	b.WriteString("        esac\n        ;;\n    esac\n}\n\n")
}

// zshText takes out what _arguments would read as its own.
func zshText(s string) string {
	return strings.NewReplacer("'", "", "[", "(", "]", ")", ":", "", "\\", "").Replace(s)
}

func zshValue(c choice) string {
	arg := zshText(strings.ToLower(c.arg))
	switch {
	case c.arg == "":
		return ""
	case len(c.values) > 0:
		return ":" + arg + ":(" + strings.Join(c.values, " ") + ")"
	case c.offer == "dir":
		return ":" + arg + ":_files -/"
	case c.offer == "file":
		return ":" + arg + ":_files"
	}
	return ":" + arg + ": "
}

func zshArgument(c Command) string {
	switch {
	case argWords(c) != "":
		return " \\\n        '1: :(" + argWords(c) + ")'"
	case argOffer(c) == "dir":
		return " \\\n        '*: :_files -/'"
	case argOffer(c) == "file":
		return " \\\n        '*: :_files'"
	}
	return ""
}

// fish returns the completions for fish.
func (p Program) fish() string {
	var b strings.Builder
	b.WriteString("# Completions of haagent for fish, made by haagent completion fish.\n\ncomplete -c haagent -f\n")
	var names []string
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	none := "'not __fish_seen_subcommand_from " + strings.Join(names, " ") + "'"
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "complete -c haagent -n %s -a %s -d '%s'\n", none, c.Name, fishText(c.Usage))
	}
	for _, f := range p.agentChoices() {
		fmt.Fprintf(&b, "complete -c haagent -n %s%s\n", none, fishFlag(f))
	}
	for _, at := range p.places() {
		seen := "__fish_seen_subcommand_from " + at.words[0]
		if len(at.words) > 1 {
			seen += "; and __fish_seen_subcommand_from " + at.words[1]
		}
		for _, sub := range at.command.Commands {
			fmt.Fprintf(&b, "complete -c haagent -n '%s' -a %s -d '%s'\n", seen, sub.Name, fishText(sub.Usage))
		}
		for word := range strings.FieldsSeq(argWords(at.command)) {
			fmt.Fprintf(&b, "complete -c haagent -n '%s' -a %s\n", seen, word)
		}
		if argOffer(at.command) != "" {
			fmt.Fprintf(&b, "complete -c haagent -n '%s' -F\n", seen)
		}
		for _, f := range p.choices(at.command) {
			fmt.Fprintf(&b, "complete -c haagent -n '%s'%s\n", seen, fishFlag(f))
		}
	}
	return b.String()
}

func fishFlag(c choice) string {
	text := " -l " + c.name
	switch {
	case len(c.values) > 0:
		text += " -x -a '" + strings.Join(c.values, " ") + "'"
	case c.offer == "dir":
		text += " -x -a '(__fish_complete_directories)'"
	case c.offer == "file":
		text += " -r -F"
	case c.arg != "":
		text += " -x"
	}
	return text + " -d '" + fishText(c.usage) + "'"
}

func fishText(s string) string { return strings.NewReplacer("\\", "", "'", "").Replace(s) }
