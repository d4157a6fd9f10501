//go:build linux

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/haagent/haagent/agent/state"
)

// said waits until a text stands so many times in the agent's log.
func (a *haagent) said(text string, times int) {
	a.t.Helper()
	waitFor(a.t, fmt.Sprintf("%d times %q in the log", times, text), func() (string, bool) {
		got := strings.Count(a.log.String(), text)
		return fmt.Sprintf("%d times", got), got >= times
	})
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// metric returns the line of one metric.
func (a *haagent) metric(name string) string {
	a.t.Helper()
	r, err := http.Get("http://" + a.http + "/metrics")
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+" ") || strings.HasPrefix(line, name+"{") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// TestReload_OnSIGHUP changes the file of a running agent: what can change does,
// what cannot is named, and a file that cannot be used changes nothing.
func TestReload_OnSIGHUP(t *testing.T) {
	t.Parallel() // most of the time is waiting
	dir := t.TempDir()
	file := filepath.Join(dir, "haagent.yml")
	store := filepath.Join(dir, "store")
	common := "role: slave\nmaster: 127.0.0.1:9\nhttp: 127.0.0.1:0\n"
	overwrite(t, file, common+"dir: "+store+"\n")
	a := startProcess(t, testBinary(t), store, "--config", file)

	overwrite(t, file, common+"dir: "+store+"\nlimit-rate: 1MiB\nlog-level: debug\nack: disk\nretention: keep\n")
	a.signal(syscall.SIGHUP)
	a.said("configuration read again", 1)
	a.said("restart to apply", 1)
	if log := a.log.String(); !strings.Contains(log, "options=ack,retention") || !strings.Contains(log, "changed=limit-rate,log-level") || !strings.Contains(log, "limits changed") {
		t.Errorf("it is not said what has changed:\n%s", log)
	}
	if got := a.status().Ack; got != "memory" {
		t.Errorf("the ack level became %s while the agent runs", got)
	}

	for i, text := range []string{common + "dir: " + store + "\nlimti-rate: 2MiB\n", common + "dir: " + store + "\nlimit-rate: 5\n", "role: slave\nmaster: nowhere\n"} {
		overwrite(t, file, text)
		a.signal(syscall.SIGHUP)
		a.said("the configuration was not read again", i+1)
	}
	log := a.log.String()
	for _, want := range []string{file + ":5: limti-rate: no such option; did you mean limit-rate?", file + ":5: limit-rate", "Try:"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the log:\n%s", want, log)
		}
	}
	if got := a.metric("haagent_config_last_reload_success"); !strings.HasSuffix(got, " 0") {
		t.Errorf("the metric says %q", got)
	}

	overwrite(t, file, common+"dir: "+store+"\nack: disk\n")
	a.signal(syscall.SIGHUP)
	a.said("configuration read again", 2)
	a.signal(syscall.SIGHUP)
	a.said("changed=nothing", 1)
	a.said("options=ack", 2) // named again: the agent still has the old one
	if got := a.metric("haagent_config_last_reload_success"); !strings.HasSuffix(got, " 1") {
		t.Errorf("the metric says %q", got)
	}
	a.term()
}

// TestReload_KeysOfAPair changes the key of a pair that is replicating, in three
// steps, without a restart; then the old key is a stranger's.
func TestReload_KeysOfAPair(t *testing.T) {
	t.Parallel() // most of the time is waiting
	r := newRing(t)
	r.makeKey()
	old := strings.TrimSpace(string(mustRead(t, r.key)))
	host := r.host()
	master := r.startForgedMaster(forgeStore(t), "m1", host)
	slave := r.startSlave(t.TempDir(), "s1", r.gossip(host))
	slave.waitState(state.Streaming)
	fresh := filepath.Join(t.TempDir(), "fresh.key")
	if err := writeKey(fresh); err != nil {
		t.Fatal(err)
	}
	examined(t, exitOK, "--role", "slave", "--dir", slave.dir, "--join", r.gossip(host), "--key-file", r.key, "--http", "")["versions"].wants(t, fine, "m1, s1")
	newer := strings.TrimSpace(string(mustRead(t, fresh)))
	for i, lines := range []string{old + "\n" + newer, newer + "\n" + old, newer} {
		overwrite(t, r.key, lines+"\n")
		for _, a := range []*haagent{master, slave} {
			a.signal(syscall.SIGHUP)
			a.said("configuration read again", i+1)
			a.said(`changed="key-file (the file's content)"`, i+1)
		}
	}
	late := r.startSlave(t.TempDir(), "s2", r.gossip(host)) // has the new key only
	late.waitState(state.Streaming)
	slave.waitState(state.Streaming)
	overwrite(t, fresh, old+"\n")
	r.key = fresh
	stranger := r.startSlave(t.TempDir(), "s9", r.gossip(host))
	stranger.waitCode(state.Unauthorized, "wrong_key")
	for _, a := range []*haagent{stranger, late, slave, master} {
		a.term()
	}
}
