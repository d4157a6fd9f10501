package options

import (
	"fmt"
	"strings"
)

// Columns of the help.
const (
	helpIndent = 3
	helpColumn = 32
	helpWidth  = 100
)

// HelpText returns the options as `haagent --help` lists them.
func HelpText(table []Option) string {
	var b strings.Builder
	for _, group := range groups(table) {
		fmt.Fprintf(&b, "  %s\n", group)
		for _, o := range inGroup(table, group) {
			text := o.Help
			switch says := o.says(); {
			case says == "none", o.Kind == Switch:
			case strings.HasPrefix(says, "required"):
				text += "; " + says
			default:
				text += " (default: " + says + ")"
			}
			writeHelp(&b, strings.TrimSpace("--"+o.Name+" "+o.Arg), text)
		}
	}
	return b.String()
}

// FlagText returns the flags of a command in the same form.
func FlagText(flags []Flag) string {
	var b strings.Builder
	for _, f := range flags {
		text := f.text()
		var notes []string
		if value := strings.Trim(f.Default, `"`); value != "" && value != "0" && value != "0s" {
			notes = append(notes, "default: "+value)
		}
		if f.Env != "" {
			notes = append(notes, "or "+f.Env)
		}
		if len(notes) > 0 {
			text += " (" + strings.Join(notes, ", ") + ")"
		}
		writeHelp(&b, strings.TrimSpace("--"+f.Name+" "+f.Arg), text)
	}
	return b.String()
}

func writeHelp(b *strings.Builder, left, text string) {
	lines := wrap(text, helpWidth-helpColumn)
	if len(left) > helpColumn-helpIndent-2 {
		fmt.Fprintf(b, "%*s%s\n", helpIndent, "", left)
		left = ""
	}
	for i, line := range lines {
		if i > 0 {
			left = ""
		}
		fmt.Fprintf(b, "%*s%-*s%s\n", helpIndent, "", helpColumn-helpIndent, left, line)
	}
}
