package options

import (
	"regexp"
	"strings"
)

// Program is all that is said of haagent on paper: its options and its commands.
type Program struct {
	Summary     string // one line
	Description string
	Options     []Option
	Commands    []Command
	Exits       []Exit
}

// Command is one command of the program, or of another command.
type Command struct {
	Name, Usage, Args, Description string
	Flags                          []Flag
	Commands                       []Command
}

// Flag is a flag of a command.
type Flag struct {
	Name, Arg, Usage, Default string
	Env                       string // the variable that says it too
}

// Exit is an exit code and what it says.
type Exit struct {
	Code    int
	Meaning string
}

// Artefacts returns the files that are made from the program and kept beside the
// sources, by their paths from the root of the module.
func (p Program) Artefacts() map[string][]byte {
	return map[string][]byte{
		"docs/configuration.md":              []byte(p.Markdown()),
		"packaging/haagent.yml":              []byte(ExampleFile(p.Options)),
		"packaging/man/haagent.1":            []byte(p.man1()),
		"packaging/man/haagent.yml.5":        []byte(p.man5()),
		"packaging/man/haagent.8":            []byte(p.man8()),
		"packaging/completions/haagent.bash": []byte(p.bash()),
		"packaging/completions/_haagent":     []byte(p.zsh()),
		"packaging/completions/haagent.fish": []byte(p.fish()),
	}
}

// Completion returns the completions for a shell: bash, zsh or fish.
func (p Program) Completion(shell string) (script string, ok bool) {
	switch shell {
	case "bash":
		return p.bash(), true
	case "zsh":
		return p.zsh(), true
	case "fish":
		return p.fish(), true
	}
	return "", false
}

// says returns what is used where an option is not given.
func (o Option) says() string {
	switch {
	case o.Default != "":
		return o.Default
	case o.DefaultText != "":
		return o.DefaultText
	}
	return "none"
}

// absent is the sentence about that.
func (o Option) absent() string {
	if says := o.says(); strings.HasPrefix(says, "required") {
		return sentence(says)
	}
	return "Default: " + o.says() + "."
}

// wrap breaks a text into lines of at most width letters; a word that is longer
// gets its own line.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// sentence makes a sentence of a line of help.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, _, _ := strings.Cut(text, " ")
	if strings.ToLower(first) != first { // a property of the broker, such as listenPort
		return text + "."
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// groups returns the chapters in their order.
func groups(table []Option) []string {
	var list []string
	for _, o := range table {
		if len(list) == 0 || list[len(list)-1] != o.Group {
			list = append(list, o.Group)
		}
	}
	return list
}

func inGroup(table []Option, group string) []Option {
	var list []Option
	for _, o := range table {
		if o.Group == group {
			list = append(list, o)
		}
	}
	return list
}

// text is what is said of a flag beside its name and the word for its value.
func (f Flag) text() string {
	return plain(strings.TrimPrefix(f.Usage, "`"+f.Arg+"`: "))
}

var backquoted = regexp.MustCompile("`([^`]*)`")

// plain takes the marks of placeholders out of a usage text.
func plain(usage string) string { return backquoted.ReplaceAllString(usage, "$1") }
