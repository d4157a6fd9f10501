package options

import (
	"fmt"
	"strings"
)

// ExampleFile returns the commented YAML file that packages install. Taking the
// "#" off a line that has no blank behind it sets an option.
func ExampleFile(table []Option) string {
	var b strings.Builder
	b.WriteString(`# Configuration of haagent, the replication agent for RocketMQ brokers.
#
# Lines that begin with "# " explain. A line such as "#ack: disk" is an option
# that can be given: take the "#" off and change the value.
#
# An option of the command line stands above a HAAGENT_ variable of the
# environment, that above this file, and this file above the broker's own file
# of broker-conf. Check changes with: haagent config check --config FILE
# The manual is haagent.yml(5).
`)
	for _, group := range groups(table) {
		fmt.Fprintf(&b, "\n#\n# %s\n#\n", group)
		for _, o := range inGroup(table, group) {
			if o.NoKey {
				continue
			}
			b.WriteString("\n")
			comment(&b, sentence(o.Help))
			comment(&b, o.More)
			comment(&b, o.absent()+remarks(o))
			fmt.Fprintf(&b, "#%s: %s\n", o.Name, exampleValue(o))
		}
	}
	return b.String()
}

// remarks say who uses an option, and when a change takes effect.
func remarks(o Option) string {
	text := ""
	if len(o.Roles) > 0 {
		text += " For " + strings.Join(o.Roles, " and ") + "."
	}
	if o.Live {
		text += " Takes effect on reload."
	}
	return text
}

func comment(b *strings.Builder, text string) {
	for _, line := range wrap(text, 76) {
		fmt.Fprintf(b, "# %s\n", line)
	}
}

// exampleValue returns the option's example in YAML.
func exampleValue(o Option) string {
	if o.Kind == List {
		return "[" + strings.ReplaceAll(o.Example, ",", ", ") + "]"
	}
	if o.Kind == Switch || o.Kind == Whole {
		return o.Example
	}
	return quote(o.Example)
}
