package logs_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/haagent/haagent/cmd/haagent/logs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// say logs one record of each level through h.
func say(h slog.Handler) {
	log := slog.New(h).With("node", "a\nb").WithGroup("g")
	log.Debug("one", "n", 1)
	log.Info("two", "n", 2)
	log.Warn("three\nlines")
	log.Error("four", "cause", io.EOF)
}

func TestFormats(t *testing.T) {
	const colour = "\x1b["
	for _, c := range []struct {
		name          string
		options       logs.Options
		want, without []string
	}{
		{"text elsewhere", logs.Options{}, []string{"time=", `level=INFO msg=two node="a\nb" g.n=2`}, []string{colour, "<6>", "one"}},
		{"debug", logs.Options{Level: slog.LevelDebug}, []string{"level=DEBUG msg=one"}, nil},
		{"terminal", logs.Options{Terminal: true}, []string{colour, "two", "INF"}, []string{"time="}},
		{"terminal without colours", logs.Options{Terminal: true, NoColor: true}, []string{"INF two"}, []string{colour}},
		{"text on a terminal", logs.Options{Terminal: true, Format: logs.Text}, []string{"level=INFO msg=two"}, []string{colour}},
		{"json", logs.Options{Terminal: true, Journal: true, Format: logs.JSON}, []string{`"level":"INFO","msg":"two","node":"a\nb","g":{"n":2}}`}, []string{colour, "<6>"}},
		{"journal", logs.Options{Journal: true, Level: slog.LevelDebug},
			[]string{"<7>msg=one node=", `<6>msg=two node="a\nb" g.n=2`, `<4>msg="three\nlines"`, `<3>msg=four node="a\nb" g.cause=EOF`}, []string{"time=", "level="}},
	} {
		var out bytes.Buffer
		h, err := logs.NewHandler(&out, c.options)
		if err != nil {
			t.Fatal(err)
		}
		say(h)
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, out.String())
			}
		}
		for _, none := range c.without {
			if strings.Contains(out.String(), none) {
				t.Errorf("%s: %q in\n%s", c.name, none, out.String())
			}
		}
	}
	if _, err := logs.NewHandler(io.Discard, logs.Options{Format: "xml"}); err == nil {
		t.Error("xml is a format")
	}
}

// Each line that journald reads begins with a priority: one that does not would be
// filed under another.
func TestJournal_EveryLineHasPriority(t *testing.T) {
	var out bytes.Buffer
	h, err := logs.NewHandler(&out, logs.Options{Journal: true, Level: slog.LevelDebug})
	if err != nil {
		t.Fatal(err)
	}
	say(h)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
	for i, line := range lines {
		if want := []string{"<7>", "<6>", "<4>", "<3>"}[i]; !strings.HasPrefix(line, want) {
			t.Errorf("line %q, want %s", line, want)
		}
	}
}

func TestJournalReads_ThatFileAlone(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	if !logs.JournalReads(f, own) || logs.JournalReads(f, "") || logs.JournalReads(f, "1:1") || logs.JournalReads(&bytes.Buffer{}, own) {
		t.Errorf("%s is not what %s is compared with", own, f.Name())
	}
	if logs.NoColor("") || !logs.NoColor("1") {
		t.Error("NO_COLOR")
	}
}
