package options

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/haagent/haagent/wire"
)

// Layer is one of the places that values come from, the weakest one first.
type Layer int

// The layers.
const (
	FromDefault Layer = iota
	FromBrokerConf
	FromFile
	FromEnv
	FromFlag
)

// Origin is where a value was given.
type Origin struct {
	Layer Layer
	File  string // of FromFile and FromBrokerConf
	Line  int    // in File, from 1; 0 where the file says it by not saying it
	Name  string // of the variable of FromEnv, or the property of FromBrokerConf
}

// String returns "flag", "HAAGENT_DIR", "/etc/haagent.yml:3" or "default".
func (o Origin) String() string {
	switch o.Layer {
	case FromFlag:
		return "flag"
	case FromEnv:
		return o.Name
	case FromFile, FromBrokerConf:
		if o.Line == 0 {
			return visible(o.File)
		}
		return visible(o.File) + ":" + strconv.Itoa(o.Line)
	}
	return "default"
}

// Value is what one option has.
type Value struct {
	Option Option
	Text   string // "" where nothing was given and there is no default
	Origin Origin
	Idle   bool // was given, and does nothing

	content string // digest of the file that Text names; "" where it is not a file, or cannot be read
}

// SameContent reports whether the files that two values name had the same in them.
func (v Value) SameContent(other Value) bool { return v.content == other.content }

// Set is the outcome of Resolve.
type Set struct {
	values map[string]Value
	order  []string
	// Warnings are what should be said, and stops nobody.
	Warnings []string
}

// Sources are what Resolve reads, besides the files that it is told of.
type Sources struct {
	Flags   map[string]string // by the options' names: those that were given
	Environ []string          // as of os.Environ
}

// Error says which value cannot be used, where it was given, and what can be
// done.
type Error struct {
	Origin Origin
	Key    string // the option; the key as it is written where there is no such option
	Value  string
	Why    string
	Try    string
}

// Error returns place, key, value and reason in one line.
func (e *Error) Error() string {
	value := ""
	if e.Value != "" {
		value = " " + strconv.Quote(e.Value)
	}
	switch e.Origin.Layer {
	case FromEnv:
		return fmt.Sprintf("%s%s: %s", e.Origin.Name, value, e.Why)
	case FromFile, FromBrokerConf:
		key := e.Key
		if e.Origin.Name != "" {
			key = e.Origin.Name
		}
		key = visible(key)
		if key == "" {
			return fmt.Sprintf("%s: %s", e.Origin, e.Why)
		}
		return fmt.Sprintf("%s: %s%s: %s", e.Origin, key, value, e.Why)
	}
	return fmt.Sprintf("--%s%s: %s", e.Key, value, e.Why)
}

// Resolve finds the value of every option of the table. Errors are an *Error.
func Resolve(table []Option, from Sources) (*Set, error) {
	r := &resolver{table: table, set: &Set{values: make(map[string]Value, len(table))}}
	for _, o := range table {
		r.set.order = append(r.set.order, o.Name)
		r.set.values[o.Name] = Value{Option: o, Text: o.Default}
	}
	flags, err := r.flags(from.Flags)
	if err != nil {
		return nil, err
	}
	env, err := r.environ(from.Environ)
	if err != nil {
		return nil, err
	}
	r.lay(env)
	r.lay(flags)
	file, err := r.file(r.set.Text("config"))
	if err != nil {
		return nil, err
	}
	r.lay(file)
	if err := r.brokerConf(r.set.Text("broker-conf"), from.Environ); err != nil {
		return nil, err
	}
	r.idle()
	r.digest()
	return r.set, nil
}

type resolver struct {
	table []Option
	set   *Set
}

// lay puts values over those of weaker layers.
func (r *resolver) lay(values []Value) {
	for _, v := range values {
		if there := r.set.values[v.Option.Name]; there.Origin.Layer < v.Origin.Layer {
			r.set.values[v.Option.Name] = v
		}
	}
}

// value checks a value for an option.
func value(o Option, text string, from Origin) (Value, error) {
	normal, err := o.normal(text)
	if err != nil {
		return Value{}, &Error{Origin: from, Key: o.Name, Value: text, Why: err.Error(), Try: o.try()}
	}
	return Value{Option: o, Text: normal, Origin: from}, nil
}

func (r *resolver) flags(given map[string]string) ([]Value, error) {
	var list []Value
	for _, name := range slices.Sorted(maps.Keys(given)) {
		o, ok := Lookup(r.table, name)
		if !ok {
			return nil, &Error{Origin: Origin{Layer: FromFlag}, Key: name, Why: "no such option", Try: "haagent --help"}
		}
		v, err := value(o, given[name], Origin{Layer: FromFlag})
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// environ reads the variables that are options. Others of our prefix are
// misspelt, or come from elsewhere (a container platform sets HAAGENT_PORT for a
// service of that name), so they stop nobody. An empty variable is as good as
// none: environment files have such lines.
func (r *resolver) environ(environ []string) ([]Value, error) {
	byName := make(map[string]Option, len(r.table))
	for _, o := range r.table {
		byName[o.Env()] = o
	}
	var list []Value
	for _, entry := range environ {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || text == "" {
			continue
		}
		o, ok := byName[name]
		if !ok {
			r.unknownVariable(name, byName)
			continue
		}
		v, err := value(o, text, Origin{Layer: FromEnv, Name: name})
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	slices.Sort(r.set.Warnings)
	return list, nil
}

func (r *resolver) unknownVariable(name string, known map[string]Option) {
	said := visible(name) + " in the environment is no option and does nothing"
	if meant := nearest(name, slices.Sorted(maps.Keys(known))); meant != "" {
		said += "; did you mean " + meant + "?"
	}
	r.set.Warnings = append(r.set.Warnings, said)
}

// Values returns all values in the order of the table.
func (s *Set) Values() []Value {
	list := make([]Value, 0, len(s.order))
	for _, name := range s.order {
		list = append(list, s.values[name])
	}
	return list
}

// Value returns what an option has. Asking for one that is not in the table is a
// bug and panics.
func (s *Set) Value(name string) Value {
	v, ok := s.values[name]
	if !ok {
		panic("options: no option " + strconv.Quote(name))
	}
	return v
}

// Fill sets what an option has by default where that follows from other things.
func (s *Set) Fill(name, text string) {
	if v := s.Value(name); v.Origin.Layer == FromDefault {
		v.Text = text
		s.values[name] = v
	}
}

// Explain says what an option has by default where that follows from other things
// and is no value.
func (s *Set) Explain(name, text string) {
	v := s.Value(name)
	v.Option.DefaultText = text
	s.values[name] = v
}

// Keep puts a value of another Set in the place of what this one has.
func (s *Set) Keep(v Value) { s.values[v.Option.Name] = v }

// Given reports whether an option was given anywhere.
func (s *Set) Given(name string) bool { return s.Value(name).Origin.Layer != FromDefault }

// Text returns a value as it was given.
func (s *Set) Text(name string) string { return s.Value(name).Text }

// The getters below read what Resolve has checked; what was not given is 0.

// Switch returns a value of that kind.
func (s *Set) Switch(name string) bool {
	b, err := parseSwitch(s.Text(name))
	return err == nil && b
}

// Whole returns a value of that kind.
func (s *Set) Whole(name string) int64 {
	n, err := strconv.ParseInt(s.Text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Time returns a value of that kind.
func (s *Set) Time(name string) time.Duration {
	d, err := time.ParseDuration(s.Text(name))
	if err != nil {
		return 0
	}
	return d
}

// Size returns a value of kind Size or Rate.
func (s *Set) Size(name string) wire.ByteSize {
	n, err := parseRate(s.Text(name))
	if err != nil {
		return 0
	}
	return n
}

// List returns the parts of a value of that kind.
func (s *Set) List(name string) []string {
	var list []string
	for part := range strings.SplitSeq(s.Text(name), ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// Refuse returns the error for a value that somebody else found out to be
// unusable, with the place where it was given.
func (s *Set) Refuse(key, text, why, try string) error {
	e := &Error{Origin: Origin{Layer: FromFlag}, Key: key, Value: text, Why: why, Try: try}
	if v, ok := s.values[key]; ok && v.Origin.Layer != FromDefault {
		e.Origin = v.Origin
	}
	return e
}

// base returns a path as an error names it.
func base(path string) string { return filepath.Clean(path) }
