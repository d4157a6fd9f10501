package brokertest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCache_TwoProcessesFetchOnce lets two processes start with an empty cache
// at the same time: Maven runs once, and both find the same whole jars.
func TestCache_TwoProcessesFetchOnce(t *testing.T) {
	t.Parallel()
	dir, tools := t.TempDir(), t.TempDir()
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		t.Fatal(err)
	}
	runs := filepath.Join(tools, "runs")
	script := "#!/bin/sh\necho run >> '" + runs + "'\nexec '" + mvn + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(tools, "mvn"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// What an interrupted fetch of older code may have left is no obstacle.
	if err := os.MkdirAll(filepath.Join(dir, "lib-4.9.7", "half.jar"), 0o755); err != nil {
		t.Fatal(err)
	}
	var paths [2]string
	var wait sync.WaitGroup
	for i := range paths {
		wait.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fetchVariable+"=4.9.7", "HAAGENT_BROKER_CACHE="+dir,
				"PATH="+tools+string(filepath.ListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("process %d: %v\n%s", i, err, out)
			}
			paths[i] = strings.TrimSpace(string(out))
		})
	}
	wait.Wait()
	if paths[0] != paths[1] || !strings.Contains(paths[0], "lib-4.9.7") {
		t.Errorf("class paths %q", paths)
	}
	if text, err := os.ReadFile(runs); err != nil || string(text) != "run\n" {
		t.Errorf("mvn ran %q, %v", text, err)
	}
	for _, name := range []string{"lib-4.9.7/.complete", "lib-4.9.7/rocketmq-broker-4.9.7.jar"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "fetch-") || strings.HasPrefix(e.Name(), "compile-") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "lib-4.9.7", "half.jar")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the interrupted fetch left is still there: %v", err)
	}
}

// TestCache_WhatIsMissingIsNamed checks the messages of a machine that cannot fetch.
func TestCache_WhatIsMissingIsNamed(t *testing.T) {
	broken := t.TempDir()
	script := "#!/bin/sh\necho 'no such artifact'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(broken, "mvn"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		version    Version
		want       []string
	}{
		{"no mvn", "/nonexistent", V497, []string{"4.9.7", "mvn", "not on the PATH"}},
		{"failing mvn", broken + ":/bin:/usr/bin", V497, []string{"4.9.7", "copy-dependencies", "exit status 1", "no such artifact"}},
		{"no version", os.Getenv("PATH"), "latest", []string{`"latest"`, "no version", versionsVariable}},
		{"no version, but a path", os.Getenv("PATH"), "../../etc", []string{"no version"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("HAAGENT_BROKER_CACHE", dir)
			t.Setenv("PATH", c.path)
			cache, err := openCache()
			if err != nil {
				t.Fatal(err)
			}
			_, err = cache.classPath(c.version)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "lib-"+string(c.version))); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a failed fetch left a lib directory: %v", err)
			}
		})
	}
}

// TestJVM_MissingJavaIsNamed checks the message of a machine without Java.
func TestJVM_MissingJavaIsNamed(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	_, err := startJVM(jvmOptions{home: t.TempDir(), main: "Nothing"})
	if err == nil || !strings.Contains(err.Error(), "java") || !strings.Contains(err.Error(), "PATH") {
		t.Errorf("error is %v", err)
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		env  string
		want []Version
	}{
		{"", []Version{V497, V533}},
		{"5.5.0", []Version{V550}},
		{"4.5.2, 4.9.7,5.1.4", []Version{V452, V497, V514}},
	} {
		t.Setenv(versionsVariable, c.env)
		if diff := cmp.Diff(c.want, Versions()); diff != "" {
			t.Errorf("%q: %s", c.env, diff)
		}
	}
	for v, want := range map[Version]int{V452: 4, V550: 5, "": 0, "5": 0, "latest": 0, "4.9.7-SNAPSHOT": 4} {
		if got := v.Major(); got != want {
			t.Errorf("major of %q is %d, not %d", v, got, want)
		}
	}
}

func TestVersion_AtLeast(t *testing.T) {
	t.Parallel()
	ascending := []Version{V452, "4.9.0", V497, "4.10.0", V514, V533, V550, "10.0.0"}
	for i, v := range ascending {
		for k, first := range ascending {
			if got := v.AtLeast(first); got != (i >= k) {
				t.Errorf("%s is at least %s: %t", v, first, got)
			}
		}
	}
	if Version("no version").AtLeast(V452) || !Version("5.3.3-SNAPSHOT").AtLeast(V533) {
		t.Error("words were compared")
	}
}
