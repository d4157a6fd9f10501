//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/cmd/haagent/options"
)

// TestConfig_BadInput: each ends by itself, with its own exit code, one line that
// says what and where, and one that says what to do. A start and a check say the
// same.
func TestConfig_BadInput(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(t, l) }) // behind the parallel ones
	taken := l.Addr().String()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := filepath.Join(dir, "good.key")
	if err := writeKey(key); err != nil {
		t.Fatal(err)
	}
	open := file("open.key", string(mustRead(t, key)), 0o644)
	slave := []string{"--role", "slave", "--dir", filepath.Join(dir, "store"), "--http", ""}
	gossiping := slices.Concat(slave, []string{"--gossip-bind", "127.0.0.1:0"})
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"unknown key", []string{"--config", file("a.yml", "role: slave\nakc: disk\n", 0o600)}, exitConfig, "a.yml:2: akc: no such option; did you mean ack?"},
		{"value out of range", []string{"--config", file("b.yml", "role: master\nrelay-acks: 99\n", 0o600)}, exitConfig, `b.yml:2: relay-acks "99": must be between 0 and 16`},
		{"value that the agent refuses", with(slave, "--config", file("c.yml", "\nmaster: nowhere\n", 0o600)), exitConfig, `c.yml:2: master "nowhere": not HOST:PORT`},
		{"no config file", []string{"--config", filepath.Join(dir, "none.yml")}, exitConfig, "none.yml"},
		{"broker.conf", with(slave, "--broker-conf", file("broker.conf", "brokerName=a\nbrokerId=x\n", 0o600)), exitConfig, `broker.conf:2: brokerId "x": not a whole number`},
		{"no key file", with(gossiping, "--key-file", filepath.Join(dir, "none.key")), exitAuth, "none.key"},
		{"open key file", with(gossiping, "--key-file", open), exitAuth, open},
		{"no key in it", with(gossiping, "--key-file", file("bad.key", "secret\n", 0o600)), exitAuth, "line 1 is not base64"},
		{"no certificate", with(gossiping, "--tls-cert", key, "--tls-key", key, "--tls-ca", key), exitAuth, "certificate"},
		{"a part of a certificate", with(gossiping, "--tls-cert", key), exitConfig, "--tls-ca"},
		{"port in use", with(slave[:4], "--master", "127.0.0.1:9", "--http", taken), exitConfig, taken},
		{"gossip port in use", with(slave, "--gossip-bind", taken), exitConfig, taken},
		{"a file for a directory", []string{"--role", "slave", "--dir", key, "--http", "", "--master", "127.0.0.1:9"}, exitConfig, key},
		{"options that exclude each other", []string{"--role", "master", "--dir", dir, "--master", "127.0.0.1:9", "--http", ""}, exitConfig, "--master"},
		{"an observer with a directory", []string{"--role", "observer", "--dir", dir, "--http", ""}, exitConfig, "--dir"},
		{"ACL file", with(slave, "--broker-acl-file", file("acl", "accessKey=a\n", 0o600)), exitConfig, "secretKey is missing"},
		{"ACL file for all", with(slave, "--broker-acl-file", file("acl-open", "accessKey=a\nsecretKey=b\n", 0o644)), exitConfig, "others than its owner may use it"},
		{"below a file", []string{"--role", "slave", "--dir", filepath.Join(key, "store"), "--http", "", "--master", "127.0.0.1:9"}, exitConfig, "leads through something that is no directory"},
		{"segments in the root", with(slave, "--commitlog-dir", slave[3], "--master", "127.0.0.1:9"), exitConfig, "a directory of their own"},
		{"brokers' authority", with(slave, "--broker-tls", "--broker-tls-ca", key), exitConfig, "no certificate in PEM form"},
		{"certificate for brokers without key", with(slave, "--broker-tls", "--broker-tls-cert", key), exitConfig, "its key is missing"},
		{"key for brokers without certificate", with(slave, "--broker-tls", "--broker-tls-key", key), exitConfig, "its certificate is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, command := range [][]string{nil, {"config", "check"}} {
				start := time.Now()
				stdout, stderr, code := haagentCommand(t, with(command, c.args...)...)
				var errors []string
				for line := range strings.Lines(stderr) {
					if strings.HasPrefix(line, "haagent: ") {
						errors = append(errors, line)
					}
				}
				if code != c.code || len(errors) != 1 || !strings.Contains(errors[0], c.says) || !strings.Contains(stderr, "\nTry: ") && !strings.HasPrefix(stderr, "Try: ") || stdout != "" {
					t.Errorf("%v ended with %d, want %d and %q:\n%s%s", command, code, c.code, c.says, stdout, stderr)
				}
				if took := time.Since(start); took > 30*time.Second {
					t.Errorf("took %v", took)
				}
			}
		})
	}
}

// TestConfig_Show prints where each value comes from, and no secret.
func TestConfig_Show(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := filepath.Join(dir, "k")
	if err := writeKey(key); err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimSpace(string(mustRead(t, key)))
	acl := filepath.Join(dir, "acl")
	overwrite(t, acl, "accessKey=name\nsecretKey=hush-hush\n")
	yml := filepath.Join(dir, "c.yml")
	overwrite(t, yml, "role: master\n\nack: disk\nkey-file: "+key+"\nbroker-acl-file: "+acl+"\n")
	conf := filepath.Join(dir, "broker.conf")
	overwrite(t, conf, "brokerName=b7\nstorePathRootDir=/data/store\n")
	args := []string{"config", "show", "--config", yml, "--broker-conf", conf, "--segment-size", "1MiB"}
	stdout, stderr, code := haagentCommand(t, append(args, "--json")...)
	var shown []options.Shown
	if want := "warning: " + yml + ": ack has no effect with --role master, only with slave\n"; stderr != want {
		t.Errorf("said %q, want %q", stderr, want)
	}
	if err := json.Unmarshal([]byte(stdout), &shown); err != nil || code != exitOK {
		t.Fatalf("ended with %d, %v: %s%s", code, err, stdout, stderr)
	}
	got := map[string]string{}
	for _, s := range shown {
		got[s.Key] = fmt.Sprintf("%s from %s", s.Value, s.Origin)
	}
	for name, want := range map[string]string{
		"role": "master from " + yml + ":1", "ack": "disk from " + yml + ":3", "broker-name": "b7 from " + conf + ":1", "dir": "/data/store from " + conf + ":2",
		"segment-size": "1MiB from flag", "http": "127.0.0.1:10916 from default", "commitlog-dir": "/data/store/commitlog from default", "key-file": key + " from " + yml + ":4",
		"gossip-bind": "0.0.0.0:7946 from default", "link-bind": "0.0.0.0:10915 from default",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if len(shown) != len(options.Table()) {
		t.Errorf("%d of %d options are shown", len(shown), len(options.Table()))
	}
	table, _, code := haagentCommand(t, args...)
	if code != exitOK || !strings.Contains(table, conf+":1") {
		t.Errorf("ended with %d: %s", code, table)
	}
	for _, hidden := range []string{secret, "hush-hush"} {
		if strings.Contains(stdout+table, hidden) {
			t.Errorf("a secret is shown: %q", hidden)
		}
	}
}

// TestConfig_OptionsOfAnotherRole are told and stop nobody, a start as little as a
// check.
func TestConfig_OptionsOfAnotherRole(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	args := []string{"--role", "slave", "--dir", dir, "--master", "127.0.0.1:9", "--http", "127.0.0.1:0", "--relay-acks", "1", "--ha-bind", "0.0.0.0:1", "--ha-allow", "10.0.0.0/8"}
	told := []string{"--relay-acks, --ha-bind have no effect with --role slave, only with master", "--ha-allow has no effect with --role slave, only with master or observer"}
	stdout, stderr, code := haagentCommand(t, append([]string{"config", "check"}, args...)...)
	a := startProcess(t, testBinary(t), dir, args...)
	for _, want := range told {
		if code != exitOK || !strings.Contains(stderr, "warning: "+want+"\n") {
			t.Errorf("the check ended with %d: %s%s", code, stdout, stderr)
		}
		a.said(want, 1)
	}
	a.term()
}

// TestConfig_Check: what would start is found good, beside the running agent too,
// and nothing is left behind.
func TestConfig_Check(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	args := []string{"--role", "slave", "--dir", dir, "--master", "127.0.0.1:9"}
	stdout, stderr, code := haagentCommand(t, append([]string{"config", "check"}, args...)...)
	if code != exitOK || !strings.HasPrefix(stdout, "ok") || stderr != "" {
		t.Errorf("ended with %d: %s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the check made the directory")
	}
	if err := os.MkdirAll(filepath.Join(dir, "letters"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := haagentCommand(t, append([]string{"config", "check"}, args...)...); code != exitIncompatible || !strings.Contains(stderr, "not_a_store") {
		t.Errorf("with something else in the directory it ended with %d: %s", code, stderr)
	}
	for _, c := range [][]string{{"config"}, {"config", "check", "x"}, {"config", "dance"}, {"completion"}, {"completion", "tcsh"}, {"generate"}} {
		if _, stderr, code := haagentCommand(t, c...); code != exitUsage || !strings.Contains(stderr, "Try: ") {
			t.Errorf("%v ended with %d: %s", c, code, stderr)
		}
	}
}
