package agent_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the path that every import of our own begins with.
const module = "github.com/haagent/haagent/"

// A room is what one package may import besides the standard library. Imports
// point down: a package may only name packages that stand before it.
type room struct {
	dir     string   // below the module's root
	imports []string // our own packages by their dir, others by their path or the start of it
	why     string   // what would be lost with one import more
}

// rooms are all packages of the product, from the ground up.
var rooms = []room{
	{"wire", nil, "the words for offsets and sizes are for everybody, so they depend on nobody"},
	{"wire/ha", []string{"wire"}, "a codec knows bytes only: no socket, no log, no clock"},
	{"wire/remoting", []string{"wire"}, "a codec knows bytes only: no socket, no log, no clock"},
	{"wire/link", []string{"wire"}, "a codec knows bytes only: no socket, no log, no clock"},
	{"agent/state", nil, "every room can run into a problem, so the words for problems depend on none"},
	{"agent/wake", nil, "whoever waits for a change is told alike, whatever changed"},
	{"agent/beside", nil, "whoever works beside somebody knows nothing of the work"},
	{"agent/meter", []string{"wire"}, "whoever works counts by itself, and knows nothing of who reads"},
	{"agent/pace", []string{"wire", "golang.org/x/time"}, "rates are arithmetic on bytes and clocks: whoever moves bytes asks"},
	{"agent/retry", []string{"agent/state", "github.com/cenkalti/backoff/v5"}, "whoever tries again does it alike, whatever it tries"},
	{"agent/serve", []string{"agent/retry", "golang.org/x/sync"}, "a server's connections are owned alike, whatever is spoken on them"},
	{"agent/commitlog", []string{"wire", "golang.org/x/sys"}, "reading the format needs no writer, no peer and no state"},
	{"agent/forge", []string{"wire", "agent/commitlog", "golang.org/x/sys"}, "a forged store must not be judged by the code that replicates it"},
	{"agent/replica", []string{"wire", "agent/meter", "agent/wake", "agent/state", "agent/commitlog", "golang.org/x/sys", "github.com/google/renameio/v2"},
		"the one writer of a store must not know whom its bytes came from"},
	{"agent/metadata", []string{"wire", "agent/wake", "wire/remoting", "golang.org/x/sys"}, "config files are kept by bytes, whatever asked for them"},
	{"agent/acks", []string{"wire", "agent/wake"}, "who has what is arithmetic: no clock, no socket, no log"},
	{"agent/watch", []string{"github.com/fsnotify/fsnotify"}, "a hint that something changed knows nothing of what changed"},
	{"agent/source", []string{"wire", "agent/wake", "agent/state", "agent/commitlog", "agent/watch", "golang.org/x/sys"}, "a log is read alike, whoever follows it"},
	{"agent/verify", []string{"wire", "agent/commitlog"}, "a store is judged from disk alone, not by who wrote it"},
	{"agent/stock", []string{"wire", "agent/beside", "agent/meter", "wire/ha", "agent/wake", "wire/remoting", "agent/state", "agent/commitlog", "agent/replica", "agent/metadata", "agent/retry", "agent/pace", "agent/serve",
		"golang.org/x/sync", "golang.org/x/sys"}, "talking to brokers needs no status page and no role"},
	{"agent/link", []string{"wire", "agent/beside", "agent/meter", "wire/link", "agent/state", "agent/commitlog", "agent/acks", "agent/source", "agent/replica", "agent/metadata", "agent/retry", "agent/pace", "agent/serve",
		"golang.org/x/sync", "golang.org/x/sys", "github.com/klauspost/compress", "golang.org/x/time"}, "agents talk to each other without a broker and without a status page"},
	{"agent/control", []string{"wire", "agent/meter", "agent/state", "agent/acks", "github.com/dustin/go-humanize", "github.com/prometheus/client_golang"}, "what asks and answers about an agent takes functions, so that it can be tested without one"},
	{"agent", []string{"wire", "agent/meter", "wire/remoting", "agent/state", "agent/commitlog", "agent/acks", "agent/watch", "agent/source", "agent/replica", "agent/metadata",
		"agent/stock", "agent/link", "agent/control", "agent/pace", "agent/retry",
		"github.com/google/renameio/v2", "github.com/cenkalti/backoff/v5", "golang.org/x/sync"}, "an agent is told everything by its Config: it reads no flags and chooses no logger"},
	{"discovery", []string{"github.com/hashicorp/memberlist"}, "gossip knows members, not logs"},
	{"cmd/haagent/options", []string{"wire", "wire/remoting", "github.com/goccy/go-yaml", "github.com/dustin/go-humanize"},
		"what can be said of options is told by a table: it knows no command line and no agent"},
	{"cmd/haagent/logs", []string{"github.com/lmittmann/tint"}, "how lines are written has nothing to do with what they say"},
	{"cmd/haagent", []string{"cmd/haagent/options", "cmd/haagent/logs", "wire", "wire/remoting", "agent", "agent/state", "agent/acks", "agent/link", "discovery", "agent/commitlog", "agent/replica", "agent/stock", "agent/control", "agent/verify", "agent/forge",
		"github.com/urfave/cli/v2", "github.com/mattn/go-isatty", "github.com/vbauerster/mpb/v8", "github.com/dustin/go-humanize",
		"github.com/coreos/go-systemd/v22", "golang.org/x/sync"}, "the only place that knows the command line and the terminal"},
	{"packaging", nil, "it holds what is installed beside the program, and tests of that"},
	{"agent/brokertest", []string{"wire"}, "it starts Java brokers for tests of every room, and so must not depend on what is tested"},
}

// testLibraries are what tests may import besides what the room's own files may.
// Tests may import every room of ours as well, but never a command.
var testLibraries = []string{
	"github.com/google/go-cmp", "github.com/rogpeppe/go-internal", "go.uber.org/goleak", "pgregory.net/rapid",
	"golang.org/x/sync", "golang.org/x/sys",
}

// testRooms are rooms that only tests may import.
var testRooms = []string{"agent/brokertest"}

// TestImports_PointDown reads the imports of every file, of whatever operating
// system, and holds them against the table.
func TestImports_PointDown(t *testing.T) {
	t.Parallel()
	wrong, err := checkImports(os.DirFS(".."), rooms)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// TestImports_TableIsOrdered keeps the table itself honest: no room may name one
// that stands behind it.
func TestImports_TableIsOrdered(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range rooms {
		for _, name := range r.imports {
			if own := !strings.Contains(name, "."); own && !seen[name] {
				t.Errorf("%s may import %s, which does not stand before it", r.dir, name)
			}
		}
		if r.why == "" {
			t.Errorf("%s is bound without a reason", r.dir)
		}
		seen[r.dir] = true
	}
}

// TestImports_ForbiddenOnesAreFound shows that the check finds what it is for.
func TestImports_ForbiddenOnesAreFound(t *testing.T) {
	t.Parallel()
	table := []room{
		{"wire", nil, "the ground"},
		{"agent/low", []string{"wire", "golang.org/x/sys"}, "low knows nobody"},
		{"agent/brokertest", nil, "tests only"},
		{"agent", []string{"wire", "agent/low"}, "agent takes what it is told"},
	}
	for _, c := range []struct {
		name, file, source string
		want               string // "" where all is well
	}{
		{"down", "agent/x.go", `import "` + module + `agent/low"`, ""},
		{"standard library", "wire/x.go", `import "os/exec"`, ""},
		{"below an allowed path", "agent/low/x.go", `import "golang.org/x/sys/unix"`, ""},
		{"up", "agent/low/x.go", `import "` + module + `agent"`, "agent/low/x.go imports agent: low knows nobody"},
		{"up from the ground", "wire/x.go", `import "` + module + `agent/low"`, "wire/x.go imports agent/low: the ground"},
		{"a library", "agent/low/x.go", `import "github.com/urfave/cli/v2"`, "agent/low/x.go imports github.com/urfave/cli/v2: low knows nobody"},
		{"a path that only begins alike", "agent/low/x.go", `import "golang.org/x/system"`, "agent/low/x.go imports golang.org/x/system: low knows nobody"},
		{"for another system", "agent/low/x_windows.go", `import "` + module + `agent"`, "agent/low/x_windows.go imports agent: low knows nobody"},
		{"behind a build tag", "agent/low/x.go", "//go:build never\n\nimport \"" + module + "agent\"", "agent/low/x.go imports agent: low knows nobody"},
		{"cgo", "agent/low/x.go", `import "C"`, "agent/low/x.go imports C: the product is one static binary without cgo"},
		{"test rooms in the product", "agent/x.go", `import "` + module + `agent/brokertest"`, "agent/x.go imports agent/brokertest: only tests may start brokers"},
		{"test rooms in tests", "agent/x_test.go", `import "` + module + `agent/brokertest"`, ""},
		{"test libraries in the product", "agent/x.go", `import "pgregory.net/rapid"`, "agent/x.go imports pgregory.net/rapid: agent takes what it is told"},
		{"test libraries in tests", "agent/x_test.go", `import "pgregory.net/rapid"`, ""},
		{"any library in tests", "agent/x_test.go", `import "github.com/stretchr/testify"`, "agent/x_test.go imports github.com/stretchr/testify: agent takes what it is told"},
		{"commands in tests", "agent/x_test.go", `import "` + module + `cmd/haagent"`, "agent/x_test.go imports cmd/haagent: agent takes what it is told"},
		{"an unknown room", "agent/new/x.go", "", "agent/new is not in the table of rooms: add it, with what it may import and why"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, r := range table {
				writeSource(t, dir, r.dir+"/doc.go", "")
			}
			writeSource(t, dir, c.file, c.source)
			wrong, err := checkImports(os.DirFS(dir), table)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			if !slices.Equal(wrong, want) {
				t.Errorf("found %q, want %q", wrong, want)
			}
		})
	}
	t.Run("a room that is gone", func(t *testing.T) {
		t.Parallel()
		wrong, err := checkImports(os.DirFS(t.TempDir()), table[:1])
		if err != nil || len(wrong) != 1 || wrong[0] != "wire is in the table of rooms and has no Go file" {
			t.Errorf("found %q, %v", wrong, err)
		}
	})
}

// writeSource writes a Go file that consists of imports; a build tag may stand
// before them.
func writeSource(t *testing.T, root, file, imports string) {
	t.Helper()
	full := filepath.Join(root, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	tag, rest, tagged := strings.Cut(imports, "\n\n")
	text := "package p\n\n" + imports + "\n"
	if tagged {
		text = tag + "\n\npackage p\n\n" + rest + "\n"
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkImports returns one sentence for each import below root that the table
// does not allow, and for each package that is not in it.
func checkImports(root fs.FS, table []room) ([]string, error) {
	var wrong []string
	found := map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		dir := path.Dir(name)
		i := slices.IndexFunc(table, func(r room) bool { return r.dir == dir })
		if i < 0 {
			if !found[dir] {
				wrong = append(wrong, dir+" is not in the table of rooms: add it, with what it may import and why")
			}
			found[dir] = true
			return nil
		}
		found[dir] = true
		imports, err := importsOf(root, name)
		if err != nil {
			return err
		}
		for _, imported := range imports {
			if why := table[i].refuses(imported, strings.HasSuffix(name, "_test.go")); why != "" {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", name, strings.TrimPrefix(imported, module), why))
			}
		}
		return nil
	})
	for _, r := range table {
		if !found[r.dir] {
			wrong = append(wrong, r.dir+" is in the table of rooms and has no Go file")
		}
	}
	return wrong, err
}

func importsOf(root fs.FS, name string) ([]string, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		paths = append(paths, imported)
	}
	return paths, nil
}

// refuses returns why the room must not import a package; "" where it may.
func (r room) refuses(imported string, test bool) string {
	if imported == "C" {
		return "the product is one static binary without cgo"
	}
	own, isOwn := strings.CutPrefix(imported, module)
	switch {
	case !strings.Contains(strings.Split(imported, "/")[0], "."): // the standard library
		return ""
	case isOwn && test && (own == r.dir || !strings.HasPrefix(own, "cmd/")):
		return ""
	case slices.Contains(testRooms, own):
		return "only tests may start brokers"
	case isOwn && slices.Contains(r.imports, own):
		return ""
	case !isOwn && allowed(r.imports, imported), !isOwn && test && allowed(testLibraries, imported):
		return ""
	}
	return r.why
}

// allowed reports whether one of the paths is imported or a parent of it.
func allowed(paths []string, imported string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return imported == p || strings.HasPrefix(imported, p+"/")
	})
}
