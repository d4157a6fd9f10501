//go:build linux

package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// browser is the program that shows pages to tests.
const browser = "chromium"

// render returns the elements of a page after its script has run in a browser that
// reaches nothing else.
func render(t *testing.T, url string) string {
	t.Helper()
	program, err := exec.LookPath(browser)
	if err != nil {
		t.Fatalf("%v: install Debian's package %s", err, browser)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"),
		"--virtual-time-budget=5000", "--dump-dom", url)
	cmd.WaitDelay = 10 * time.Second
	var talk strings.Builder
	cmd.Stderr = &talk
	page, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", browser, err, talk.String())
	}
	return string(page)
}

// TestPage_ShowsStateAndNumbers looks at real agents through a browser: a master
// with a replica, whose name is markup, and that replica.
func TestPage_ShowsStateAndNumbers(t *testing.T) {
	r := newRing(t)
	dir := filepath.Join(t.TempDir(), "source")
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: wire.MiB})
	if err != nil {
		t.Fatal(err)
	}
	for range 1500 {
		if _, err := w.Append(forge.Message{Topic: "t", Body: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const evil = `<img src=x onerror=document.title='owned'>`
	host := r.host()
	master := r.startMaster(dir, "m1", host, "--http", "127.0.0.1:0", "--broker", "127.0.0.1:1", "--segment-size", "1MiB", "--cluster", "c", "--broker-name", "b")
	slave := r.startSlave(filepath.Join(t.TempDir(), "replica"), evil, r.gossip(host), "--http", "127.0.0.1:0", "--cluster", "c", "--broker-name", "b")
	slave.waitState(state.Streaming)

	page := render(t, "http://"+slave.http+"/")
	verified := slave.status().Offsets.Verified
	for _, want := range []string{`<span class="badge" id="state">streaming</span>`, "class=\"tone good\"", grouped(verified), "m1 at " + r.link(host), "&lt;img src=x"} {
		if !strings.Contains(page, want) {
			t.Errorf("the replica's page lacks %q", want)
		}
	}
	page = render(t, "http://"+master.http+"/")
	for _, want := range []string{`id="state">serving</span>`, "1 of 1", "m1", grouped(verified), "&lt;img src=x onerror"} {
		if !strings.Contains(page, want) {
			t.Errorf("the master's page lacks %q", want)
		}
	}
	if strings.Contains(page, "<img") || strings.Contains(page, "owned</title>") {
		t.Error("a name became markup")
	}
	if t.Failed() {
		t.Log(page)
	}
}

// grouped writes an offset as the page does.
func grouped(o wire.PhyOffset) string {
	digits := o.String()
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
