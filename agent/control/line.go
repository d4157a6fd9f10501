package control

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// maxLine bounds Line, in bytes: a service manager shows it in one line.
const maxLine = 200

// Line says in one line of at most 200 bytes how the agent is, such as
// "streaming, 0 B behind". It holds no control characters, whatever the names of
// peers are made of.
func (s Status) Line() string {
	line := string(s.State)
	switch s.State {
	case state.Streaming, state.CatchingUp:
		line += ", " + s.behind()
	case state.Serving:
		line += ", " + s.inSync()
	case state.Observing:
		line += ", " + english.Plural(len(s.Members), "member", "")
	}
	if s.State.Stuck() && s.Code != "" && s.Code != string(s.State) {
		line += " (" + s.Code + ")"
	}
	if s.Reason != "" {
		line += ": " + strings.TrimPrefix(s.Reason, s.Code+": ")
	}
	return clean(line, maxLine)
}

// behind says how far a replica is behind its source.
func (s Status) behind() string {
	if s.Offsets.Source == wire.NoOffset {
		return "the source's end is not known"
	}
	text := humanize.IBytes(uint64(max(s.LagBytes, 0))) + " behind"
	if s.LagSeconds >= 1 {
		text += fmt.Sprintf(" (%.0f s)", s.LagSeconds)
	}
	return text
}

// inSync says how many replicas of a master are in sync.
func (s Status) inSync() string {
	n := 0
	for _, r := range s.Replicas {
		if r.State == state.Streaming {
			n++
		}
	}
	return fmt.Sprintf("%d of %s in sync", n, english.Plural(len(s.Replicas), "replica", ""))
}

// clean takes out what is no printable character, and cuts what is longer than
// limit bytes, between characters.
func clean(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	const dots = "..."
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots
}
