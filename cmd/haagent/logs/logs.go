// Package logs writes the agent's log: for people on a terminal, for journald, for
// files, or as JSON; and it counts what repeats instead of writing it again.
package logs

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/lmittmann/tint"
)

// Formats of a log.
const (
	Auto = "auto" // colours on a terminal, text elsewhere
	Text = "text"
	JSON = "json"
)

// Options say how a log is written.
type Options struct {
	Level    slog.Leveler // default info
	Format   string       // Auto where empty
	Terminal bool         // it is written to a terminal
	Journal  bool         // it is read by journald, which has a clock of its own
	NoColor  bool
}

// NewHandler returns what writes records to w. The error is about Format.
func NewHandler(w io.Writer, o Options) (slog.Handler, error) {
	switch {
	case o.Format == JSON:
		return slog.NewJSONHandler(w, &slog.HandlerOptions{Level: o.Level}), nil
	case o.Format != Auto && o.Format != Text && o.Format != "":
		return nil, fmt.Errorf("%q is none of %s, %s and %s", o.Format, Auto, Text, JSON)
	case o.Format != Text && o.Terminal:
		return tint.NewTextHandler(w, &tint.Options{Level: o.Level, TimeFormat: time.TimeOnly, NoColor: o.NoColor}), nil
	case o.Journal:
		return newJournal(w, o.Level), nil
	}
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: o.Level}), nil
}

// JournalReads reports whether f goes to journald, which names the device and
// inode of its end in the variable JOURNAL_STREAM. A process whose output was
// redirected since still has the variable, but not that file.
func JournalReads(f any, variable string) bool {
	file, ok := f.(*os.File)
	if !ok || variable == "" {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && variable == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// NoColor reports whether the variable NO_COLOR asks for none: whatever it says.
func NoColor(variable string) bool { return strings.TrimSpace(variable) != "" }
