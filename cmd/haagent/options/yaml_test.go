package options_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/cmd/haagent/options"
)

// TestYAML_Accepted: values as people write them, and what they are.
func TestYAML_Accepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       map[string]string
	}{
		{"nothing", "", nil},
		{"comments only", "# one\n\n  # two\n", nil},
		{"a document mark", "---\nrole: slave\n", map[string]string{"role": "slave"}},
		{"plain", "role: slave\nack: disk # why not\n", map[string]string{"role": "slave", "ack": "disk"}},
		{"quoted", "node: '10'\ncluster: \"a: b\"\n", map[string]string{"node": "10", "cluster": "a: b"}},
		{"numbers", "relay-acks: 2\nsegment-size: 1073741824\nnode: 1.50\n", map[string]string{"relay-acks": "2", "segment-size": "1073741824", "node": "1.50"}},
		{"times", "metadata-interval: 10s\nretention: 72h\n", map[string]string{"metadata-interval": "10s", "retention": "72h"}},
		{"an address", "broker: 127.0.0.1:10911\n", map[string]string{"broker": "127.0.0.1:10911"}},
		{"a list", "join: [a, 'b:7946', 10.0.0.5]\n", map[string]string{"join": "a,b:7946,10.0.0.5"}},
		{"a list with dashes", "ha-allow:\n  - 10.0.0.0/8\n  - 192.168.7.5\n", map[string]string{"ha-allow": "10.0.0.0/8,192.168.7.5"}},
		{"a list as text", "join: a, b\n", map[string]string{"join": "a, b"}},
		{"a switch", "insecure: true\n", map[string]string{"insecure": "true"}},
		{"off", "http: off\n", map[string]string{"http": ""}},
		{"empty where that means off", "http: ''\n", map[string]string{"http": ""}},
		{"in braces", "{role: slave, dir: /s}\n", map[string]string{"role": "slave", "dir": "/s"}},
		{"a folded text", "node: >\n  one\n", map[string]string{"node": "one"}},
		{"DOS lines", "role: slave\r\nack: disk\r\n", map[string]string{"role": "slave", "ack": "disk"}},
		{"a byte order mark", "\ufeffrole: slave\n", map[string]string{"role": "slave"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			values, err := options.ParseYAML(options.Table(), "x.yml", []byte(c.text))
			got := map[string]string{}
			for _, v := range values {
				got[v.Option.Name] = v.Text
			}
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("%q is %q, %v; want %q", c.text, got, err, c.want)
			}
		})
	}
}

// TestYAML_Refused: one line that says file, line, key and what is wrong.
func TestYAML_Refused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"a misspelt key", "role: slave\nakc: disk\n", `x.yml:2: akc: no such option; did you mean ack?`},
		{"an underscore", "role: slave\n\nkey_file: /k\n", `x.yml:3: key_file: no such option; did you mean key-file?`},
		{"a capital", "Role: slave\n", `x.yml:1: Role: no such option; did you mean role?`},
		{"a strange key", "zookeeper: a\n", `x.yml:1: zookeeper: no such option`},
		{"itself", "config: y.yml\n", `x.yml:1: config: cannot be said in the file itself`},
		{"twice", "ack: disk\nrole: slave\nack: disk\n", `x.yml:3: ack: is given twice, first in line 1`},
		{"out of range", "relay-acks: 99\n", `x.yml:1: relay-acks "99": must be between 0 and 16`},
		{"a word for a number", "relay-acks: two\n", `x.yml:1: relay-acks "two": not a whole number`},
		{"a list for a text", "role: [slave]\n", `x.yml:1: role: must be a single value, not a list`},
		{"a map", "role:\n  name: slave\n", `x.yml:1: role: must be a single value: options are not nested`},
		{"a map in a list", "join: [{a: b}]\n", `x.yml:1: join: must be a list of texts`},
		{"a comma in a list", "join: ['a,b']\n", `x.yml:1: join "a,b": one of the list is empty or has a comma in it`},
		{"no value", "role: slave\ndir:\n", `x.yml:2: dir: has no value: leave the line away`},
		{"an empty text", "dir: ''\n", `x.yml:1: dir: is empty: leave the line away`},
		{"a text for a switch", "insecure: 'true'\n", `x.yml:1: insecure "true": must be true or false, without quotes`},
		{"yes", "insecure: yes\n", `x.yml:1: insecure "yes": must be true or false, without quotes`},
		{"one", "insecure: 1\n", `x.yml:1: insecure "1": must be true or false`},
		{"a switch for a text", "node: true\n", `x.yml:1: node "true": must not be true or false: put it in quotes if it is a text`},
		{"an anchor", "dir: &a /x\ncommitlog-dir: *a\n", `x.yml:1: dir: must be a plain value, without anchors and tags`},
		{"a tag", "dir: !!str /x\n", `x.yml:1: dir: must be a plain value, without anchors and tags`},
		{"a merge", "<<: {dir: /x}\n", `x.yml:1: a key must be the name of an option, and "<<" is none`},
		{"a number as key", "1: slave\n", `x.yml:1: a key must be the name of an option, and "1" is none`},
		{"a list of options", "- role: slave\n", `x.yml:1: the file holds no options, but something else`},
		{"a word", "slave\n", `x.yml:1: the file holds no options, but something else`},
		{"two documents", "role: slave\n---\nack: disk\n", `x.yml:3: a second document begins here`},
		{"a directive", "# of ours\n%YAML 1.2\n---\nrole: slave\n", `x.yml:2: begins with %: directives of YAML such as %YAML are not read`},
		{"a key of escapes", "\"\\e[2Jzookeeper\": a\n", `x.yml:1: "\x1b[2Jzookeeper": no such option`},
		{"a NUL byte", "role: slave\n\x00\n", `x.yml:2: holds a NUL byte, this is no text`},
		{"not UTF-8", "role: slave\ndir: /data/\xff\n", `x.yml:2: is not UTF-8`},
		{"more lines than options", strings.Repeat("a: b\n", 1000), `x.yml:513: is one of more than 512 lines`},
		{"a long line", "role: slave\nnode: " + strings.Repeat("- ", 5000), `x.yml:2: is longer than 2048 bytes`},
		{"brackets", "role: slave\njoin: " + strings.Repeat("[", 100) + "\n", `x.yml:2: has too many open brackets`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			values, err := options.ParseYAML(options.Table(), "x.yml", []byte(c.text))
			e := new(options.Error)
			if !errors.As(err, &e) || e.Error() != c.want || e.Try == "" {
				t.Errorf("%q: got %v, %+v\nwant %s", c.text, values, err, c.want)
			}
		})
	}
	for _, text := range []string{"role: 'slave\n", "role: slave\n\tack: disk\n", "a: b: c\n", "role: slave\n ack: disk\n", "]", "key-file: @x\n"} {
		values, err := options.ParseYAML(options.Table(), "x.yml", []byte(text))
		if e := new(options.Error); !errors.As(err, &e) || strings.Contains(e.Error(), "\n") || !strings.HasPrefix(e.Error(), "x.yml:") || e.Try == "" {
			t.Errorf("%q: %v, %v", text, values, err)
		}
	}
}

// TestYAML_Files: what is no readable file of a bounded size is refused at once.
func TestYAML_Files(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{
		filepath.Join(dir, "none.yml"): "no such file or directory",
		dir:                            "it is no regular file",
		pipe:                           "it is no regular file",
		write(t, "long.yml", strings.Repeat("# a comment of a line\n", 3000)): "it is longer than 65536 bytes",
	} {
		for _, name := range []string{"config", "broker-conf"} {
			e := refused(t, options.Sources{Flags: map[string]string{name: path}})
			if e.Why != why || !strings.HasPrefix(e.Error(), "--"+name+" ") {
				t.Errorf("%s %s: %v", name, path, e)
			}
		}
		if e := refused(t, options.Sources{Environ: []string{"HAAGENT_CONFIG=" + path}}); !strings.HasPrefix(e.Error(), "HAAGENT_CONFIG ") {
			t.Errorf("%v", e)
		}
	}
}

// FuzzYAML: no text makes it panic, take long, or say more than one line; what is
// accepted are options, each once.
func FuzzYAML(f *testing.F) {
	for _, seed := range yamlSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			return
		}
		start := time.Now()
		values, err := options.ParseYAML(options.Table(), "x.yml", text)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		if e := new(options.Error); err != nil && (!errors.As(err, &e) || strings.ContainsAny(err.Error(), "\n\r") || e.Try == "") {
			t.Errorf("%q", err)
		}
		var names []string
		for _, v := range values {
			if v.Origin.Line < 1 || v.Option.NoKey || slices.Contains(names, v.Option.Name) {
				t.Errorf("%+v", v)
			}
			names = append(names, v.Option.Name)
		}
	})
}

var yamlSeeds = []string{
	"", "role: slave\ndir: /s\njoin: [a, b]\n", "? role\n: slave\n", "{role: slave", "a: &a [*a]\n", "role: |\n  slave\n", "\ufeffrole: >-\n x\n",
	"role: \"\\u00e9\"\n", "--- 1\n--- 2\n...\n", "!!binary x: y\n", "- - - -\n", "join:\n- a\n-\n", "%YAML 1.2\n---\nrole: slave\n",
}

// TestYAML_CorpusIsThere keeps the fuzz targets from starting with nothing.
func TestYAML_CorpusIsThere(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"FuzzYAML", "FuzzBrokerConf"} {
		files, err := os.ReadDir(filepath.Join("testdata", "fuzz", target))
		if err != nil || len(files) < 3 {
			t.Errorf("%s: %d files, %v", target, len(files), err)
		}
	}
}

// TestExampleFile_LoadsAsItIsAndWithEveryOption: the file that packages install
// sets nothing, and each of its options can be taken in as it stands.
func TestExampleFile_LoadsAsItIsAndWithEveryOption(t *testing.T) {
	t.Parallel()
	text := options.ExampleFile(options.Table())
	values, err := options.ParseYAML(options.Table(), "haagent.yml", []byte(text))
	if err != nil || len(values) != 0 {
		t.Errorf("as it is: %v, %v", values, err)
	}
	var all strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "#"); ok && rest != "\n" && !strings.HasPrefix(rest, " ") {
			line = rest
		}
		all.WriteString(line)
	}
	values, err = options.ParseYAML(options.Table(), "haagent.yml", []byte(all.String()))
	if err != nil || len(values) != len(options.Table())-1 {
		t.Errorf("with everything: %d options of %d, %v", len(values), len(options.Table()), err)
	}
	for line := range strings.Lines(text) {
		if len(line) > 80 {
			t.Errorf("a line of %d letters: %s", len(line), line)
		}
	}
}

// TestCompletions_ParseInBash keeps the script that most people load from being
// no script. It lists commands, flags and values.
func TestCompletions_ParseInBash(t *testing.T) {
	t.Parallel()
	script, ok := options.Program{Options: options.Table(), Commands: []options.Command{
		{Name: "verify", Args: "DIR [OTHER]", Flags: []options.Flag{{Name: "json"}}},
		{Name: "config", Commands: []options.Command{{Name: "show"}, {Name: "check"}}},
		{Name: "completion", Args: "bash|zsh|fish"},
	}}.Completion("bash")
	if !ok {
		t.Fatal("no script")
	}
	for line, want := range map[string]string{
		"haagent ver":                   "verify",
		"haagent --rol":                 "--role",
		"haagent --role sl":             "slave",
		"haagent --role slave --on-div": "--on-divergence",
		"haagent verify --js":           "--json",
		"haagent config sh":             "show",
		"haagent completion z":          "zsh",
	} {
		words := strings.Fields(line)
		asked := script + "\nCOMP_WORDS=(" + line + ")\nCOMP_CWORD=" + string(rune('0'+len(words)-1)) + "\n_haagent\necho \"${COMPREPLY[@]}\"\n"
		cmd := exec.Command("bash", "-c", asked)
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%q completes to %q, %v; want %q", line, got, err, want)
		}
	}
}
