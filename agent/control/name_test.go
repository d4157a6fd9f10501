package control_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
)

// named is a status of the agent of a directory.
func named(dir, node string) control.Handlers {
	return control.Handlers{Status: func() control.Status { return control.Status{Dir: dir, Node: node, State: state.Searching} }}
}

// dialDir asks the agent of dir as status --dir does.
func dialDir(dir string) *control.Client { return control.DialDir(dir, filepath.Join(dir, ".haagent")) }

// answers waits until the agent of dir answers, and fails where it is another one.
func answers(t *testing.T, client *control.Client, node string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); ; {
		s, err := client.Status(t.Context())
		if err == nil && s.Node != node {
			t.Fatalf("%s answers, not %s", s.Node, node)
		}
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s does not answer: %v", node, err)
		}
	}
}

// An agent answers for its directory in whatever state that is, and leaves nothing
// there or above.
func TestName_AnswersWithoutAFile(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]string{"empty": "", "missing": "store", "all missing": "a/b/c", "long": strings.Repeat("long/", 50)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dir := filepath.Join(root, below)
			serve(t, func(ctx context.Context) error { return named(dir, "n1").ServeName(ctx, dir) })
			answers(t, dialDir(dir), "n1")
			if _, err := dialDir(dir + "x").Status(t.Context()); !errors.Is(err, control.ErrNoAgent) {
				t.Errorf("of the directory beside it: %v", err)
			}
			if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
				t.Errorf("%v, %v", left, err)
			}
			if err := os.MkdirAll(dir, 0o750); err != nil { // as opening the store does
				t.Fatal(err)
			}
			answers(t, dialDir(dir), "n1")
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(dir, link); err != nil {
				t.Fatal(err)
			}
			answers(t, dialDir(link), "n1")
			if _, err := dialDir(dir).Promote(t.Context()); err == nil {
				t.Error("promoted by name")
			}
		})
	}
}

// The name is the first one's until that ends, and then the second one's. The
// socket is so too.
func TestName_SecondAgentWaits(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(h control.Handlers, ctx context.Context, dir string) error{
		"name": func(h control.Handlers, ctx context.Context, dir string) error { return h.ServeName(ctx, dir) },
		"socket": func(h control.Handlers, ctx context.Context, dir string) error {
			return h.ServeSocket(ctx, filepath.Join(dir, ".haagent"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, ".haagent"), 0o750); err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- run(named(dir, "first"), ctx, dir) }()
			answers(t, dialDir(dir), "first")
			brief, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := run(named(dir, "brief"), brief, dir); err != nil {
				t.Errorf("a second one that ends first: %v", err)
			}
			answers(t, dialDir(dir), "first")
			serve(t, func(ctx context.Context) error { return run(named(dir, "second"), ctx, dir) })
			answers(t, dialDir(dir), "first")
			end()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			answers(t, dialDir(dir), "second")
		})
	}
}

// All agents of this host are found, each with its own directory.
func TestLocal_FindsAgents(t *testing.T) {
	t.Parallel()
	var dirs []string
	for i := range 3 {
		dir := filepath.Join(t.TempDir(), "store")
		dirs = append(dirs, dir)
		node := fmt.Sprint("local", i)
		serve(t, func(ctx context.Context) error { return named(dir, node).ServeName(ctx, dir) })
		answers(t, dialDir(dir), node)
	}
	liar := t.TempDir() // says that it is the agent of another directory
	serve(t, func(ctx context.Context) error { return named(dirs[0], "liar").ServeName(ctx, liar) })
	answers(t, dialDir(liar), "liar")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); ; { // a busy machine may leave some out
		found := map[string]string{}
		for _, s := range control.Local(t.Context()) {
			if s.Node == "liar" {
				t.Fatal("it is believed that an agent works on another directory than its name says")
			}
			found[s.Dir] = s.Node
		}
		if found[dirs[0]] == "local0" && found[dirs[1]] == "local1" && found[dirs[2]] == "local2" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("found %v", found)
		}
	}
}

func TestLocalNames(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "unix")
	var lines strings.Builder
	lines.WriteString("Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0: 2 0 10000 1 1 11 @haagent/aa\n" + "0: 3 0 0 1 3 12 @haagent/aa\n" + "0: 3 0 0 1 3 13\n" + "0: 2 0 10000 1 1 14 /run/haagent/bb\n" +
		"0: 2 0 10000 1 1 15 @other/cc\n" + "0: 2 0 10000 1 1 16 @haagent/a name\n")
	for i := range 1000 {
		fmt.Fprintf(&lines, "0: 2 0 10000 1 1 16 @haagent/%d\n", i)
	}
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	names, err := control.LocalNames(path)
	if err != nil || len(names) != 256 || names[0] != "@haagent/aa" || names[1] != "@haagent/0" {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := control.LocalNames(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
