package options

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/haagent/haagent/wire"
)

// Kind is what a value is made of.
type Kind int

// The kinds of values.
const (
	Text    Kind = iota // anything
	Switch              // true or false
	Whole               // a whole number, from Min to Max
	Time                // a span of time with its unit, from Min to Max nanoseconds
	Size                // bytes with a unit, 1 at least
	Rate                // bytes a second with a unit; 0: no limit
	Address             // HOST:PORT
	List                // texts with commas between them, or a YAML list
	File                // a file that is read
	Dir                 // a directory
	Choice              // one of Choices
)

// Option is one option of the agent. Its name is the flag's, and the key's in
// the YAML file.
type Option struct {
	Name  string
	Kind  Kind
	Arg   string // what stands for the value in texts: DIR, HOST:PORT; none for a Switch
	Group string // the chapter that it belongs to

	Default     string // as it would be given; "" where there is none
	DefaultText string // what is used instead, where it depends on other things

	Help    string // one line, without a full stop
	More    string // the manual's sentences beyond Help; paragraphs have empty lines between them
	Example string // a value that can be given

	Choices  []string // of a Choice
	Min, Max int64    // of a Whole or Time; Max 0: no limit
	Off      bool     // "off" is the empty value

	Roles    []string // who uses it; nil: every role
	Needs    []string // it does something only where one of these is given; nil: always
	Peers    bool     // it does something only where other agents are talked to
	Live     bool     // takes effect on SIGHUP
	Secret   bool     // names a file whose content is never shown
	Property string   // what --broker-conf says it by
	NoKey    bool     // not to be given in the YAML file
	Reread   bool     // names a file that is read again by itself
}

// Env returns the name of the option's environment variable.
func (o Option) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

const envPrefix = "HAAGENT_"

// Usable reports whether an agent of that role uses the option.
func (o Option) Usable(role string) bool {
	return len(o.Roles) == 0 || role == "" || slices.Contains(o.Roles, role)
}

// normal returns a value in the form that the getters of Set read, or why it
// cannot be one.
func (o Option) normal(value string) (string, error) {
	if value == "" {
		return "", nil
	}
	if o.Off && value == "off" {
		return "", nil
	}
	if strings.ContainsAny(value, "\x00\n\r") {
		return "", fmt.Errorf("holds a line break or a NUL byte")
	}
	var err error
	switch o.Kind {
	case Switch:
		_, err = parseSwitch(value)
	case Whole:
		err = o.checkWhole(value)
	case Time:
		err = o.checkTime(value)
	case Size:
		_, err = ParseSize(value)
	case Rate:
		_, err = parseRate(value)
	case Choice:
		err = o.checkChoice(value)
	}
	return value, err
}

func (o Option) checkWhole(value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("not a whole number")
	case n < o.Min:
		return fmt.Errorf("must be at least %d", o.Min)
	case o.Max != 0 && n > o.Max:
		return fmt.Errorf("must be between %d and %d", o.Min, o.Max)
	}
	return nil
}

func (o Option) checkTime(value string) error {
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return fmt.Errorf("not a time with its unit")
	case int64(d) < o.Min:
		return fmt.Errorf("must be at least %s", time.Duration(o.Min))
	case o.Max != 0 && int64(d) > o.Max:
		return fmt.Errorf("must be at most %s", time.Duration(o.Max))
	}
	return nil
}

func (o Option) checkChoice(value string) error {
	if slices.Contains(o.Choices, value) {
		return nil
	}
	if meant := nearest(value, o.Choices); meant != "" {
		return fmt.Errorf("no such %s; did you mean %s?", strings.ToLower(o.Arg), meant)
	}
	return fmt.Errorf("no such %s", strings.ToLower(o.Arg))
}

// try says what can be given.
func (o Option) try() string {
	switch o.Kind {
	case Switch:
		return "give true or false"
	case Choice:
		return "give " + enumerate(o.Choices)
	}
	if o.Example == "" {
		return "give " + o.Arg
	}
	return "give " + o.Arg + ", for example " + o.Example
}

// enumerate returns "a, b or c".
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func parseSwitch(s string) (bool, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("neither true nor false")
	}
	return b, nil
}

// ParseSize reads "1GiB", "64MiB", "1048576"; units without i count as binary
// too, as brokers' documentation uses them. A size is 1 at least.
func ParseSize(s string) (wire.ByteSize, error) {
	binary := strings.NewReplacer("kb", "KiB", "KB", "KiB", "MB", "MiB", "mb", "MiB", "GB", "GiB", "gb", "GiB").Replace(strings.TrimSpace(s))
	if n := len(binary); n > 1 && strings.ContainsRune("kKmMgG", rune(binary[n-1])) {
		binary = strings.ToUpper(binary) + "iB"
	}
	n, err := humanize.ParseBytes(binary)
	if err != nil || n == 0 || n > 1<<62 {
		return 0, fmt.Errorf("not a size")
	}
	return wire.ByteSize(n), nil
}

// parseRate reads what ParseSize does, and 0.
func parseRate(s string) (wire.ByteSize, error) {
	if strings.TrimSpace(s) == "0" {
		return 0, nil
	}
	n, err := ParseSize(s)
	if err != nil {
		return 0, fmt.Errorf("not a rate")
	}
	return n, nil
}
