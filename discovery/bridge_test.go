package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

func TestBridge_LineIsTakenApart(t *testing.T) {
	t.Parallel()
	table := map[string]struct {
		line, text string
		level      slog.Level
	}{
		"error":            {"2026/01/02 03:04:05 [ERR] memberlist: boom\n", "boom", slog.LevelWarn},
		"warning":          {"2026/01/02 03:04:05 [WARN] memberlist: odd", "odd", slog.LevelWarn},
		"info":             {"[INFO] memberlist: so it is", "so it is", slog.LevelInfo},
		"debug":            {"[DEBUG] memberlist: this and that", "this and that", slog.LevelDebug},
		"other level":      {"[FATAL] memberlist: x", "x", slog.LevelDebug},
		"no level":         {"plain", "plain", slog.LevelDebug},
		"no end of level":  {"[ERR", "[ERR", slog.LevelDebug},
		"noise":            {"[WARN] memberlist: Refuting a suspect message (from: b)", "Refuting a suspect message (from: b)", slog.LevelDebug},
		"empty":            {"", "", slog.LevelDebug},
		"stamp alone":      {"2026/01/02 03:04:05 ", "2026/01/02 03:04:05", slog.LevelDebug},
		"own reading":      {"[DEBUG] memberlist: Stream connection from=pipe", "", slog.LevelDebug},
		"own reader's end": {"[ERR] memberlist: x: " + errReader.Error(), "", slog.LevelWarn},
		"long":             {"[INFO] memberlist: " + strings.Repeat("x", 400), strings.Repeat("x", bridgeText) + "...", slog.LevelInfo},
	}
	for name, c := range table {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if level, text := parseLine([]byte(c.line)); level != c.level || text != c.text {
				t.Errorf("it is %v %q, not %v %q", level, text, c.level, c.text)
			}
		})
	}
}

func TestBridge_KindsAreLinesThatDifferInDetailsAlone(t *testing.T) {
	t.Parallel()
	same := [][2]string{
		{"Failed to send to 10.0.0.1:7946: timeout", "Failed to send to 127.12.3.4:1: timeout"},
		{"msg type (3) not supported from=10.0.0.1:1", "msg type (244) not supported from=10.9.9.9:2"},
		{`no label "abc" here`, `no label "x\"y" here`},
		{strings.Repeat("y", 90) + "1", strings.Repeat("y", 90) + "2"},
	}
	for _, c := range same {
		if a, b := kindOf(c[0]), kindOf(c[1]); a != b {
			t.Errorf("%q and %q are %q and %q", c[0], c[1], a, b)
		}
	}
	if kindOf("label missing") == kindOf("label unknown") {
		t.Error("different lines are one kind")
	}
}

// run logs what was written until its context ends, so a context that has ended
// logs what is there and returns.
func (b *bridge) flush() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.run(ctx)
}

// Of one kind the first line is logged, of many kinds the first ones, and the
// rest is counted.
func TestBridge_RepeatedLinesAreCounted(t *testing.T) {
	t.Parallel()
	book := &logBook{}
	b := newBridge(newTestLog(book))
	write := func(format string, args ...any) {
		t.Helper()
		line := fmt.Sprintf(format, args...)
		if n, err := b.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatalf("it took %d of %d bytes, %v", n, len(line), err)
		}
	}
	for i := range 20 {
		write("[WARN] memberlist: odd packet %d", i)
	}
	write("[DEBUG] memberlist: not wanted at this level")
	for i := range bridgeKinds {
		write("[INFO] memberlist: kind %s", strings.Repeat("k", i))
	}
	b.flush()
	if n := book.count("odd packet 0"); n != 1 {
		t.Errorf("the first line is there %d times", n)
	}
	if n := book.count("odd packet 19", "repeated=19"); n != 1 {
		t.Errorf("the others were summed up %d times:\n%s", n, book)
	}
	if n := book.count("kind"); n != bridgeKinds-1 {
		t.Errorf("%d other kinds were logged, %d are the limit", n, bridgeKinds-1)
	}
	if n := book.count("held back", "count=1"); n != 1 {
		t.Errorf("what is beyond the limit was told %d times:\n%s", n, book)
	}
	if n := book.count("not wanted"); n != 0 {
		t.Error("a line was logged below the level")
	}
}

// A log that takes nothing costs lines, never time: memberlist holds its lock.
func TestBridge_NeverWaitsForTheLog(t *testing.T) {
	t.Parallel()
	book := &logBook{}
	b := newBridge(newTestLog(book))
	book.mu.Lock() // the log takes no line
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.run(ctx) })
	for i := range 3 * bridgeQueue {
		if _, err := fmt.Fprintf(b, "[WARN] memberlist: line %d", i); err != nil {
			t.Error(err)
		}
	}
	if n := b.dropped.Load(); n < bridgeQueue {
		t.Errorf("%d lines were dropped", n)
	}
	book.mu.Unlock()
	cancel()
	wg.Wait()
	if book.count("held back") != 1 {
		t.Errorf("nobody is told of lines that were dropped:\n%s", book)
	}
}
