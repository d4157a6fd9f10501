package logs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
)

// journal writes text for journald: a priority before each line, which it takes
// off again, and neither time nor level, which it has.
//
//	<6>msg="replicas are served" link=0.0.0.0:10915
type journal struct {
	shared *journalOut
	text   slog.Handler // writes into shared.line
}

// journalOut belongs to a journal and those made of it.
type journalOut struct {
	mu   sync.Mutex
	line bytes.Buffer
	to   io.Writer
}

func newJournal(w io.Writer, level slog.Leveler) *journal {
	out := &journalOut{to: w}
	drop := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}
	return &journal{shared: out, text: slog.NewTextHandler(&out.line, &slog.HandlerOptions{Level: level, ReplaceAttr: drop})}
}

// priority is the syslog priority of a level.
func priority(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "<3>"
	case l >= slog.LevelWarn:
		return "<4>"
	case l >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(ctx context.Context, l slog.Level) bool { return j.text.Enabled(ctx, l) }

// Handle implements slog.Handler. A record is one line, and one write.
func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	j.shared.mu.Lock()
	defer j.shared.mu.Unlock()
	j.shared.line.Reset()
	j.shared.line.WriteString(priority(r.Level))
	if err := j.text.Handle(ctx, r); err != nil {
		return err
	}
	_, err := j.shared.to.Write(j.shared.line.Bytes())
	return err
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journal{shared: j.shared, text: j.text.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(name string) slog.Handler {
	return &journal{shared: j.shared, text: j.text.WithGroup(name)}
}
