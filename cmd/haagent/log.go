package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/cmd/haagent/logs"
)

// newLogger writes to the screen: colours on a terminal, text for journald and
// files, JSON on request. What repeats is counted, and told by counting.
// The level may change while it writes.
func newLogger(w *screen, level slog.Leveler, format string) (*slog.Logger, error) {
	h, err := logs.NewHandler(w, logs.Options{Level: level, Format: format, Terminal: w.terminal,
		Journal: logs.JournalReads(w.out, os.Getenv("JOURNAL_STREAM")), NoColor: logs.NoColor(os.Getenv("NO_COLOR"))})
	if err != nil {
		return nil, &agent.ConfigError{Key: "log-format", Value: format, Why: "no such format", Try: "give auto, text or json"}
	}
	return slog.New(logs.NewRepeats(h)), nil
}

// parseLevel reads a --log-level.
func parseLevel(text string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(text)); err != nil {
		return l, &agent.ConfigError{Key: "log-level", Value: text, Why: "no such level", Try: "give debug, info, warn or error"}
	}
	return l, nil
}

// counting does f while what repeats in the log is counted and told.
func counting(log *slog.Logger, f func() error) (err error) {
	h, ok := log.Handler().(*logs.Repeats)
	if !ok {
		return f()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	defer func() {
		cancel() // also where f panics
		if told := <-ended; told != nil {
			err = errors.Join(err, told)
		}
	}()
	return f()
}
