package discovery

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// bridgeQueue is how many lines wait for the log; more are dropped, counted.
	bridgeQueue = 256
	// bridgeKinds is how many kinds of lines are told apart in one bridgeWindow.
	bridgeKinds  = 32
	bridgeWindow = time.Minute
	bridgeText   = 300 // bytes of a line that are kept
)

// bridge takes what memberlist writes for people into a *slog.Logger.
//
// memberlist writes while it holds its lock, so a log that does not take lines
// must not hold it up: lines are queued. It writes one for every packet that is
// not to its taste, so a stranger must not fill the disk: of one kind, whatever
// the numbers and names in it, the first line is logged and the others of the
// same minute are counted.
type bridge struct {
	log     *slog.Logger
	lines   chan bridgeLine
	dropped atomic.Int64
	suspect chan struct{} // one slot: memberlist is about to suspect somebody
}

type bridgeLine struct {
	level slog.Level
	text  string
}

func newBridge(log *slog.Logger) *bridge {
	return &bridge{log: log, lines: make(chan bridgeLine, bridgeQueue), suspect: make(chan struct{}, 1)}
}

// Write takes one line. It never waits.
func (b *bridge) Write(p []byte) (int, error) {
	level, text := parseLine(p)
	if strings.HasPrefix(text, suspicion) {
		trySend(b.suspect)
	}
	if text == "" || !b.log.Enabled(context.Background(), level) {
		return len(p), nil
	}
	select {
	case b.lines <- bridgeLine{level, text}:
	default:
		b.dropped.Add(1)
	}
	return len(p), nil
}

// run logs what was written until ctx ends.
func (b *bridge) run(ctx context.Context) {
	ticker := time.NewTicker(bridgeWindow)
	defer ticker.Stop()
	var w window
	for {
		select {
		case <-ctx.Done():
			for {
				select {
				case l := <-b.lines:
					w.add(b.log, l)
				default:
					w.turn(b.log, b.dropped.Swap(0))
					return
				}
			}
		case l := <-b.lines:
			w.add(b.log, l)
		case <-ticker.C:
			w.turn(b.log, b.dropped.Swap(0))
		}
	}
}

// window is what one minute's lines amount to.
type window struct {
	kinds map[string]*kind
	other int64 // lines of kinds beyond bridgeKinds
}

type kind struct {
	level slog.Level
	text  string // the last one
	more  int64  // since one was logged
}

func (w *window) add(log *slog.Logger, l bridgeLine) {
	key := kindOf(l.text)
	k := w.kinds[key]
	switch {
	case k != nil:
		k.text = l.text
		k.more++
		return
	case len(w.kinds) >= bridgeKinds:
		w.other++
		return
	case w.kinds == nil:
		w.kinds = make(map[string]*kind)
	}
	w.kinds[key] = &kind{level: l.level, text: l.text}
	log.Log(context.Background(), l.level, "gossip: "+l.text)
}

// turn ends the minute. What was repeated is summed up, and stays known, so that
// it is not logged in full again.
func (w *window) turn(log *slog.Logger, dropped int64) {
	for key, k := range w.kinds {
		if k.more == 0 {
			delete(w.kinds, key)
			continue
		}
		log.Log(context.Background(), k.level, "gossip: "+k.text, "repeated", k.more)
		k.more = 0
	}
	if w.other+dropped > 0 {
		log.Warn("gossip: many other lines were held back", "count", w.other+dropped)
		w.other = 0
	}
}

// stamp is how long the date and time are that a standard logger writes first.
const stamp = len("2006/01/02 15:04:05 ")

// parseLine takes a line of memberlist apart. Text is empty for lines about this
// process's own reading of the table.
func parseLine(p []byte) (slog.Level, string) {
	p = bytes.TrimSpace(p)
	if len(p) > stamp && p[4] == '/' && p[7] == '/' {
		p = p[stamp:]
	}
	level := slog.LevelDebug
	if bytes.HasPrefix(p, []byte("[")) {
		if name, rest, ok := bytes.Cut(p[1:], []byte("] ")); ok {
			p = rest
			switch string(name) {
			case "ERR", "WARN":
				level = slog.LevelWarn // what is an error to gossip is rarely one to an agent
			case "INFO":
				level = slog.LevelInfo
			}
		}
	}
	text := string(bytes.TrimPrefix(p, []byte("memberlist: ")))
	if strings.Contains(text, "from=pipe") || strings.Contains(text, errReader.Error()) {
		return level, ""
	}
	if len(text) > bridgeText {
		text = text[:bridgeText] + "..."
	}
	for _, n := range noise {
		if strings.HasPrefix(text, n) {
			return slog.LevelDebug, text
		}
	}
	return level, text
}

// suspicion begins the line that is written right before a member that did not
// answer becomes suspect. There is no other word of that; where this one is
// missed, it is seen Refresh later.
const suspicion = "Suspect "

// noise begins lines that say what Gossip says itself, in its own words, or that
// are in the nature of members that come and go.
var noise = []string{
	"Stream connection", "Initiating push/pull", suspicion, "Marking ", "Refuting ", "Updating address",
	"Conflicting address", "Failed UDP ping", "Failed fallback TCP ping", "Push/Pull with", "failed to join",
	"Got ping for unexpected node", "failed to receive: EOF", "failed to receive: read tcp",
}

// kindOf returns a line without what differs from one line of its kind to the
// next: numbers, addresses, quoted text, and what stands behind " from=".
func kindOf(text string) string {
	text, _, _ = strings.Cut(text, " from=")
	var out strings.Builder
	quoted, digits := false, false
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '"' && (i == 0 || text[i-1] != '\\'):
			quoted = !quoted
			out.WriteByte('"')
			digits = false
		case quoted:
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f' && digits:
			if !digits {
				out.WriteByte('0')
			}
			digits = true
		default:
			out.WriteByte(c)
			digits = false
		}
		if out.Len() > 80 {
			break
		}
	}
	return out.String()
}
