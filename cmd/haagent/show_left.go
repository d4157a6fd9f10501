package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/haagent/haagent/agent"
)

// printLeft prints what is known from disk of a store that no agent works on.
func printLeft(w io.Writer, l agent.Left) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	switch st := l.Replica; {
	case st == nil:
		row("agent", "none; what follows is from disk")
	case st.Promoted:
		row("agent", "none: promoted %s ago, epoch %d; what follows is from disk", ago(l.Written), st.Epoch)
	default:
		row("agent", "none; what follows is from disk, as of %s ago", ago(l.Written))
	}
	if l.Replica != nil {
		showReplicaLeft(row, l)
	}
	if l.BrokerName != "" {
		row("served", "%s/%s, by a master's agent", cmp.Or(l.Cluster, "?"), l.BrokerName)
	}
	if l.Held != nil {
		row("lock", "%s", holder(l))
	} else {
		row("lock", "free: neither a broker nor a replica's agent has the store open")
	}
	return t.Flush()
}

// showReplicaLeft says what a replica's own state tells.
func showReplicaLeft(row func(name, format string, args ...any), l agent.Left) {
	st := l.Replica
	row("source", "%s/%s", cmp.Or(st.Cluster, "?"), cmp.Or(st.BrokerName, "?"))
	row("store", "%s (segments of %s)", l.Dir, st.SegmentSize)
	switch {
	case st.VerifiedEnd < 0:
		row("verified", "nothing yet")
	case st.Promoted:
		row("verified", "up to %d when it was promoted; haagent verify %s walks what is there now", st.VerifiedEnd, l.Dir)
	default:
		row("verified", "up to %d and synced, or further; haagent verify %s walks what is there", st.VerifiedEnd, l.Dir)
	}
	if st.HistoryFrom > 0 {
		row("history", "from %d on; what the source had before could not be asked for", st.HistoryFrom)
	}
}

// ago is how long ago t was, to the second.
func ago(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }
