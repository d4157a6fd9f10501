package options_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/cmd/haagent/options"
)

// TestResolve_WithoutEffect: what was given and does nothing is said once for each
// place and reason, and is no error.
func TestResolve_WithoutEffect(t *testing.T) {
	t.Parallel()
	own := write(t, "own.yml", "role: master\nack: disk\nretention: keep\nha-allow: 10.0.0.0/8\n")
	shared := write(t, "shared.yml", "ack: disk\nlink-bind: 10.0.0.5:10915\nha-allow: 10.0.0.0/8\n")
	conf := write(t, "broker.conf", "brokerName=b\nlistenPort=10911\nstorePathRootDir=/s\n")
	for _, c := range []struct {
		name  string
		flags map[string]string
		env   []string
		want  []string
		idle  string // names, with blanks between them
	}{
		{"nothing given", map[string]string{"role": "master"}, nil, nil, ""},
		{"no role yet", map[string]string{"ack": "disk"}, nil, nil, ""},
		{"another role's", map[string]string{"role": "master", "ack": "disk", "on-divergence": "rewind"}, nil,
			[]string{"--ack, --on-divergence have no effect with --role master, only with slave"}, "ack on-divergence"},
		{"of two roles", map[string]string{"role": "slave", "remoting-bind": "10.0.0.5:1"}, nil, []string{"--remoting-bind has no effect with --role slave, only with master or observer"}, "remoting-bind"},
		{"a variable", map[string]string{"role": "slave"}, []string{"HAAGENT_RELAY_ACKS=1"}, []string{"HAAGENT_RELAY_ACKS has no effect with --role slave, only with master"}, "relay-acks"},
		{"as it is by default", map[string]string{"role": "master", "ack": "memory", "relay-acks": "0"}, nil, nil, ""},
		{"switched off", map[string]string{"role": "slave", "ha-bind": "off", "insecure": "false"}, nil, nil, ""},
		{"its like missing", map[string]string{"role": "master", "ha-allow": "10.0.0.0/8"}, nil, []string{"--ha-allow has no effect without --ha-bind or --remoting-bind"}, "ha-allow"},
		{"its like switched off", map[string]string{"role": "master", "ha-allow": "10.0.0.0/8", "ha-bind": "off"}, nil, []string{"--ha-allow has no effect without --ha-bind or --remoting-bind"}, "ha-allow"},
		{"its like given", map[string]string{"role": "master", "ha-allow": "10.0.0.0/8", "remoting-bind": "10.0.0.5:1"}, nil, nil, ""},
		{"TLS not asked for", map[string]string{"role": "slave", "broker-tls-ca": "/ca"}, nil, []string{"--broker-tls-ca has no effect without --broker-tls"}, "broker-tls-ca"},
		{"TLS asked for", map[string]string{"role": "slave", "broker-tls-ca": "/ca", "broker-tls": "true"}, nil, nil, ""},
		{"nobody to gossip with", map[string]string{"role": "slave", "master": "10.0.0.5:1", "key-file": "/k", "compress": "zstd"}, nil,
			[]string{"--key-file, --compress have no effect on a slave that follows a broker and does not gossip: that needs --join or --gossip-bind"}, "key-file compress"},
		{"somebody to gossip with", map[string]string{"role": "slave", "master": "10.0.0.5:1", "key-file": "/k", "join": "10.0.0.6"}, nil, nil, ""},
		{"a file of one role", map[string]string{"config": own}, nil,
			[]string{own + ": ha-allow has no effect without --ha-bind or --remoting-bind", own + ": ack, retention have no effect with --role master, only with slave"}, "ha-allow ack retention"},
		{"a file of several roles", map[string]string{"config": shared, "role": "master", "ha-bind": "10.0.0.5:1"}, nil, nil, "ack"},
		{"a file of several roles, but for no one", map[string]string{"config": shared}, []string{"HAAGENT_ROLE=master"},
			[]string{shared + ": ha-allow has no effect without --ha-bind or --remoting-bind"}, "ha-allow ack"},
		{"the broker's own file", map[string]string{"broker-conf": conf, "role": "slave"}, nil, nil, ""},
		{"what is refused elsewhere", map[string]string{"role": "master", "master": "10.0.0.5:1"}, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			set := resolved(t, options.Sources{Flags: c.flags, Environ: c.env})
			if !slices.Equal(set.Warnings, c.want) {
				t.Errorf("got  %q\nwant %q", set.Warnings, c.want)
			}
			var idle []string
			for _, v := range set.Values() {
				if v.Idle {
					idle = append(idle, v.Option.Name)
				}
			}
			if got := strings.Join(idle, " "); got != c.idle {
				t.Errorf("marked are %q, want %q", got, c.idle)
			}
		})
	}
}

// TestShow_HidesNothingAndFoolsNobody: what a terminal would obey is escaped in the
// table and in JSON, which still holds the value itself.
func TestShow_HidesNothingAndFoolsNobody(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "\x1b[2J")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "c.yml")
	if err := os.WriteFile(file, []byte("cluster: \"a\\u202eb\\e[31m\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const node = "x\x1b[2J\u009b31m\x7fy"
	set := resolved(t, options.Sources{Flags: map[string]string{"role": "slave", "node": node, "config": file, "broker-name": "plain ü"}})
	var table, object strings.Builder
	if err := set.Print(&table, false); err != nil {
		t.Fatal(err)
	}
	if err := set.Print(&object, true); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{table.String(), object.String()} {
		if strings.ContainsAny(text, "\x1b\u009b\x7f\u202e") {
			t.Errorf("it would do something to a terminal: %q", text)
		}
	}
	for _, want := range []string{`"x\x1b[2J\u009b31m\x7fy"`, `"a\u202eb\x1b[31m"`, "plain ü ", `\x1b[2J/c.yml":1`} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%s is not in\n%s", want, table.String())
		}
	}
	var shown []options.Shown
	if err := json.Unmarshal([]byte(object.String()), &shown); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(shown, func(s options.Shown) bool { return s.Key == "node" }); shown[i].Value != node {
		t.Errorf("JSON has %q", shown[i].Value)
	}
}

// TestResolve_SameContent: a file with another content is seen under the same name.
func TestResolve_SameContent(t *testing.T) {
	t.Parallel()
	key := write(t, "key", "one\n")
	read := func() options.Value {
		return resolved(t, options.Sources{Flags: map[string]string{"key-file": key}}).Value("key-file")
	}
	before := read()
	if !before.SameContent(read()) {
		t.Error("an untouched file differs")
	}
	if err := os.WriteFile(key, []byte("two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if before.SameContent(read()) {
		t.Error("a changed file does not differ")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if before.SameContent(read()) {
		t.Error("a missing file does not differ")
	}
}
