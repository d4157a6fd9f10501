package options_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/cmd/haagent/options"
	"github.com/haagent/haagent/wire"
)

// write puts a text into a new file.
func write(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// refused returns the error that Resolve must have.
func refused(t testing.TB, from options.Sources) *options.Error {
	t.Helper()
	set, err := options.Resolve(options.Table(), from)
	e := new(options.Error)
	if !errors.As(err, &e) {
		t.Fatalf("%+v: want an *Error, got %v (%v)", from, err, set)
	}
	if e.Try == "" || strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("%q: no next step, or not one line (Try: %q)", err, e.Try)
	}
	return e
}

func resolved(t testing.TB, from options.Sources) *options.Set {
	t.Helper()
	set, err := options.Resolve(options.Table(), from)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestResolve_Precedence gives one option in every place and takes one place
// away after the other.
func TestResolve_Precedence(t *testing.T) {
	t.Parallel()
	yml := write(t, "haagent.yml", "# first line\ncluster: of-file\n")
	conf := write(t, "broker.conf", "brokerName=b\nbrokerClusterName = of-broker\nstorePathRootDir=/s\n")
	from := options.Sources{
		Flags:   map[string]string{"config": yml, "broker-conf": conf, "cluster": "of-flag"},
		Environ: []string{"HOME=/h", "HAAGENT_CLUSTER=of-env", "HAAGENT_NODE="},
	}
	check := func(text, origin string) {
		t.Helper()
		v := resolved(t, from).Value("cluster")
		if v.Text != text || v.Origin.String() != origin {
			t.Errorf("cluster is %q from %s, want %q from %s", v.Text, v.Origin, text, origin)
		}
	}
	check("of-flag", "flag")
	delete(from.Flags, "cluster")
	check("of-env", "HAAGENT_CLUSTER")
	from.Environ = nil
	check("of-file", yml+":2")
	delete(from.Flags, "config")
	check("of-broker", conf+":2")
	delete(from.Flags, "broker-conf")
	check("", "default")
}

// TestResolve_PrecedenceProperty gives random options in random places: the
// strongest place that says something wins, for each option by itself.
func TestResolve_PrecedenceProperty(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	table := slices.DeleteFunc(options.Table(), func(o options.Option) bool { return o.NoKey || o.Name == "broker-conf" || o.Name == "role" })
	rapid.Check(t, func(t *rapid.T) {
		from := options.Sources{Flags: map[string]string{}}
		var yml strings.Builder
		want := map[string]string{}
		for _, o := range table {
			for layer := range 3 {
				if !rapid.Bool().Draw(t, fmt.Sprint(o.Name, layer)) {
					continue
				}
				text := sample(t, o)
				switch layer {
				case 0:
					fmt.Fprintf(&yml, "%s: %s\n", o.Name, quoted(o, text))
				case 1:
					from.Environ = append(from.Environ, o.Env()+"="+text)
				case 2:
					from.Flags[o.Name] = text
				}
				want[o.Name] = text // later layers are stronger
			}
		}
		path := filepath.Join(dir, "p.yml")
		if err := os.WriteFile(path, []byte(yml.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		from.Environ = append(from.Environ, "HAAGENT_CONFIG="+path)
		set, err := options.Resolve(options.Table(), from)
		if err != nil {
			t.Fatalf("%v\n%s", err, yml.String())
		}
		for _, o := range table {
			text, given := want[o.Name]
			if !given {
				text = o.Default
			}
			if o.Off && text == "off" {
				text = ""
			}
			if got := set.Value(o.Name); got.Text != text || set.Given(o.Name) != given {
				t.Errorf("%s is %q from %s, want %q\n%s%v", o.Name, got.Text, got.Origin, text, yml.String(), from)
			}
		}
	})
}

// sample draws a value that an option can have.
func sample(t *rapid.T, o options.Option) string {
	switch o.Kind {
	case options.Switch:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, o.Name)
	case options.Whole:
		high := o.Max
		if high == 0 {
			high = 1 << 40
		}
		return fmt.Sprint(rapid.Int64Range(o.Min, high).Draw(t, o.Name))
	case options.Time:
		return time.Duration(rapid.Int64Range(o.Min, o.Max).Draw(t, o.Name)).String()
	case options.Size, options.Rate:
		return rapid.SampledFrom([]string{"1", "1GiB", "64MB", "512k", "1073741824"}).Draw(t, o.Name)
	case options.Choice:
		return rapid.SampledFrom(o.Choices).Draw(t, o.Name)
	case options.List:
		return strings.Join(rapid.SliceOfN(rapid.StringMatching(`[a-z0-9.:\[\]/-]{1,12}`), 1, 4).Draw(t, o.Name), ",")
	}
	return rapid.StringMatching(`[^\x00-\x1f\x{7f}-\x{a0}\x{feff}\x{2028}\x{2029}]{1,20}`).Draw(t, o.Name)
}

// quoted writes a text in YAML, in quotes where it is one.
func quoted(o options.Option, text string) string {
	if o.Kind == options.Switch {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// TestResolve_Getters reads each kind.
func TestResolve_Getters(t *testing.T) {
	t.Parallel()
	set := resolved(t, options.Sources{Flags: map[string]string{
		"insecure": "true", "relay-acks": "2", "tail-settle": "1m30s", "segment-size": "1g", "limit-rate": "0", "join": " a, b:1 ,,c", "http": "off", "ha-bind": "",
	}})
	if !set.Switch("insecure") || set.Whole("relay-acks") != 2 || set.Time("tail-settle") != 90*time.Second ||
		set.Size("segment-size") != wire.GiB || set.Size("limit-rate") != 0 || !slices.Equal(set.List("join"), []string{"a", "b:1", "c"}) || set.Text("http") != "" {
		t.Errorf("%+v", set.Show())
	}
	if set.Given("node") || !set.Given("http") || set.Whole("broker-id") != 0 || set.Size("catchup-rate") != 0 {
		t.Error("what was not given is not zero")
	}
	set.Fill("node", "n")
	set.Fill("http", "x")
	if set.Text("node") != "n" || set.Text("http") != "" {
		t.Error("defaults are filled in where nothing was given, and only there")
	}
}

// TestResolve_Environment: what is no option is said, and stops nobody.
func TestResolve_Environment(t *testing.T) {
	t.Parallel()
	set := resolved(t, options.Sources{Environ: []string{"PATH=/bin", "HAAGENT_DIRR=/x", "HAAGENT_PORT=tcp://10.0.0.1:80", "HAAGENT_NODE=", "HAAGENT_UNRELATED_THING=1"}})
	want := []string{
		"HAAGENT_DIRR in the environment is no option and does nothing; did you mean HAAGENT_DIR?",
		"HAAGENT_PORT in the environment is no option and does nothing",
		"HAAGENT_UNRELATED_THING in the environment is no option and does nothing",
	}
	got := slices.Clone(set.Warnings)
	for i, w := range got { // PORT is near to nothing that it must name
		if strings.HasPrefix(w, "HAAGENT_PORT ") {
			got[i], _, _ = strings.Cut(w, ";")
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings are %q", set.Warnings)
	}
	if set.Given("node") {
		t.Error("an empty variable counts")
	}
	if e := refused(t, options.Sources{Environ: []string{"HAAGENT_ACK=paper"}}); e.Error() != `HAAGENT_ACK "paper": no such level` || e.Try != "give memory or disk" {
		t.Errorf("%v, Try: %s", e, e.Try)
	}
}

// TestResolve_ValuesOutOfRange: each is refused, wherever it is given.
func TestResolve_ValuesOutOfRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, why string }{
		{"role", "king", "no such role"},
		{"role", "slvae", "no such role; did you mean slave?"},
		{"relay-acks", "17", "must be between 0 and 16"},
		{"relay-acks", "-1", "must be at least 0"},
		{"relay-acks", "two", "not a whole number"},
		{"relay-acks", "0x1", "not a whole number"},
		{"broker-id", "-1", "must be at least 0"},
		{"broker-id", "9223372036854775808", "not a whole number"},
		{"metadata-interval", "10", "not a time with its unit"},
		{"metadata-interval", "999ms", "must be at least 1s"},
		{"metadata-interval", "25h", "must be at most 24h0m0s"},
		{"segment-size", "0", "not a size"},
		{"segment-size", "much", "not a size"},
		{"segment-size", "-1GiB", "not a size"},
		{"segment-size", "99999999999GiB", "not a size"},
		{"limit-rate", "fast", "not a rate"},
		{"insecure", "maybe", "neither true nor false"},
		{"log-level", "loud", "no such level"},
		{"dir", "a\nb", "holds a line break or a NUL byte"},
		{"node", "a\x00", "holds a line break or a NUL byte"},
	} {
		e := refused(t, options.Sources{Flags: map[string]string{c.name: c.value}})
		if e.Why != c.why || !strings.HasPrefix(e.Error(), "--"+c.name+" ") {
			t.Errorf("--%s %q: %v", c.name, c.value, e)
		}
		if strings.ContainsAny(c.value, "\n\x00") {
			continue
		}
		o, _ := options.Lookup(options.Table(), c.name)
		if e := refused(t, options.Sources{Environ: []string{o.Env() + "=" + c.value}}); e.Why != c.why || !strings.HasPrefix(e.Error(), o.Env()+" ") {
			t.Errorf("%s=%q: %v", o.Env(), c.value, e)
		}
		yml := write(t, "c.yml", "\n"+c.name+": "+c.value+"\n")
		if e := refused(t, options.Sources{Flags: map[string]string{"config": yml}}); !strings.HasPrefix(e.Error(), yml+":2: "+c.name+" ") {
			t.Errorf("in a file: %v", e)
		}
	}
	if e := refused(t, options.Sources{Flags: map[string]string{"spell": "x"}}); e.Why != "no such option" {
		t.Errorf("%v", e)
	}
}
