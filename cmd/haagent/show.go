package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// printStatus prints a status for people, or as JSON.
func printStatus(w io.Writer, s control.Status, asJSON bool) error {
	if asJSON {
		return printJSON(w, s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("state", "%s for %s", s.State, time.Since(s.Since).Round(time.Second))
	if s.Reason != "" {
		row("reason", "%s", s.Reason)
	}
	if s.Try != "" {
		row("Try:", "%s", s.Try)
	}
	row("node", "%s (%s)", s.Node, s.Role)
	switch agent.Role(s.Role) {
	case agent.RoleMaster:
		showMaster(row, s)
	case agent.RoleObserver:
		row("members", "%d", len(s.Members))
	default:
		showSlave(row, s)
	}
	return t.Flush()
}

// showSlave says how far a replica is.
func showSlave(row func(name, format string, args ...any), s control.Status) {
	showGroup(row, s)
	if s.Source.Addr != "" {
		row("source", "%s %s", s.Source.Kind, s.Source.Addr)
	}
	showStore(row, s)
	o := s.Offsets
	if o.Verified == wire.NoOffset {
		row("offsets", "none yet")
	} else {
		row("offsets", "min %d  received %d  written %d  verified %d  flushed %d", o.Min, o.Received, o.Written, o.Verified, o.Flushed)
	}
	row("acked", "%s", ackText(o.Acked, s.Ack))
	if s.State == state.CatchingUp || s.State == state.Streaming {
		row("behind", "%s, %.1f s (source %d)", humanize.IBytes(uint64(s.LagBytes)), s.LagSeconds, o.Source)
	} else {
		row("behind", "not known: no source is followed now")
	}
	row("rate", "%s/s", humanize.IBytes(uint64(s.BytesPerSecond)))
	if s.HistoryFrom > 0 {
		row("history", "from %d on; what the source had before could not be asked for", s.HistoryFrom)
	}
	if r := s.Rewound; r != nil {
		row("cut back", "to %d at %s; the %s behind it %s kept in %s", r.At, r.Time.Format(time.RFC3339), english.Plural(int(r.Bytes), "byte", ""),
			english.PluralWord(int(r.Bytes), "is", "are"), r.Salvage)
	}
	showConfig(row, s, "asked")
}

// showGroup says whose log it is, which may not be known yet.
func showGroup(row func(name, format string, args ...any), s control.Status) {
	if s.Cluster == "" && s.BrokerName == "" {
		row("group", "not known yet")
		return
	}
	row("group", "%s/%s/%d", s.Cluster, s.BrokerName, s.BrokerID)
}

// showStore says where it lies, in how long segments if that is known.
func showStore(row func(name, format string, args ...any), s control.Status) {
	if s.SegmentSize == 0 {
		row("store", "%s", s.Dir)
		return
	}
	row("store", "%s (segments of %s)", s.Dir, s.SegmentSize)
}

// showMaster says how far the broker's log is, and each of its replicas.
func showMaster(row func(name, format string, args ...any), s control.Status) {
	showGroup(row, s)
	row("broker", "%s", s.Source.Addr)
	showStore(row, s)
	if o := s.Offsets; o.Min == wire.NoOffset {
		row("offsets", "none yet")
	} else {
		row("offsets", "min %d  confirmed %d  end %d", o.Min, o.Verified, o.Source)
	}
	row("rate", "%s/s", humanize.IBytes(uint64(s.BytesPerSecond)))
	showConfig(row, s, "read")
	showGuarantee(row, s.Guarantee)
	if len(s.Replicas) == 0 {
		row("replicas", "none in reach")
	}
	for i, r := range s.Replicas {
		name := ""
		if i == 0 {
			name = "replicas"
		}
		row(name, "%s  %s  acked %s  behind %s, %.1f s", r.Node, r.State, ackText(r.Acked, r.Ack), humanize.IBytes(uint64(r.LagBytes)), r.LagSeconds)
	}
}

// ackText says up to where a replica has acked, and what its ack means.
func ackText(to wire.PhyOffset, ack string) string {
	if to == wire.NoOffset {
		return "nothing yet (" + ack + ")"
	}
	return fmt.Sprintf("%d (%s)", to, ack)
}

// showGuarantee says what producers of the broker can rely on.
func showGuarantee(row func(name, format string, args ...any), g *control.Guarantee) {
	if g == nil {
		return
	}
	row("guarantee", "%s", g.Text)
	switch {
	case g.RelayAcks == 0:
	case g.RelayConnected:
		row("relay", "acks of %d, reported %d", g.RelayAcks, g.Relayed)
	default:
		row("relay", "acks of %d, not connected to the broker", g.RelayAcks)
	}
}

func showConfig(row func(name, format string, args ...any), s control.Status, how string) {
	age := "never"
	if s.Metadata.AgeSeconds >= 0 {
		age = fmt.Sprintf("%.0f s ago", s.Metadata.AgeSeconds)
	}
	row("config", "%s, generation %d, %s %s", english.Plural(len(s.Metadata.Files), "file", ""), s.Metadata.Generation, how, age)
}
