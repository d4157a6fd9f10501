package metadata

import (
	"slices"
	"strconv"
	"time"

	"github.com/haagent/haagent/wire"
)

// offer is one content that a source had, on its way to config/.
type offer struct {
	file  File
	entry Entry
	// stepBack says why the source went back with this content; empty where it
	// did not.
	stepBack string
}

// candidate is what is waiting for one file: the latest content and, where that
// is not the same, the one that has waited longest.
type candidate struct {
	waiting []offer // one or two, in the order of the snapshots
	// backSince is when the source began to step back, zero while it does not.
	backSince time.Time
	// told is set once the step back has been logged.
	told bool
}

// latest is what the source said last.
func (c *candidate) latest() *offer { return &c.waiting[len(c.waiting)-1] }

// add takes in the latest content, which is another one than the latest so far.
func (c *candidate) add(o offer, installed *Entry, now time.Time) {
	// The source steps back from the last thing it said before it began to.
	last := installed
	for k := range c.waiting {
		if c.waiting[k].stepBack == "" {
			last = &c.waiting[k].entry
		}
	}
	if o.stepBack = stepsBack(last, &o.entry); o.stepBack == "" {
		c.backSince, c.told = time.Time{}, false
		c.waiting = slices.DeleteFunc(c.waiting, func(w offer) bool { return w.stepBack != "" })
	} else if c.backSince.IsZero() {
		c.backSince = now
	}
	c.waiting = append(c.waiting[:min(len(c.waiting), 1)], o)
}

// stepsBack says in which way content e is behind what the source said before. A
// lower counter alone is none: brokers up to 5.1 count the versions of their
// groups from 0 again at every start, with the time of the start.
func stepsBack(last, e *Entry) string {
	if last == nil {
		return ""
	}
	if e.Entries == 0 && last.Entries > 0 {
		return "all tables are empty"
	}
	if last.DataVersion == nil || e.DataVersion == nil || e.DataVersion.Compare(*last.DataVersion) >= 0 {
		return ""
	}
	versions := "data version " + e.DataVersion.String() + " after " + last.DataVersion.String()
	if e.DataVersion.Timestamp <= last.DataVersion.Timestamp {
		return versions
	}
	if e.Entries < last.Entries {
		return strconv.Itoa(last.Entries-e.Entries) + " entries are gone, " + versions
	}
	return ""
}

// ready returns the place in waiting of the newest content that may be installed
// now, -1 where all have to wait, and why the newest of all has to.
func (c *candidate) ready(p Policy, verified wire.PhyOffset, now time.Time, grace time.Duration) (int, string) {
	why := ""
	for k := len(c.waiting) - 1; k >= 0; k-- {
		o := &c.waiting[k]
		var reason string
		switch {
		case o.stepBack != "" && now.Sub(c.backSince) < grace:
			reason = "held back: " + o.stepBack
		case p == WhenCovered && o.entry.SourceEnd > verified:
			reason = "waits for the log up to " + o.entry.SourceEnd.String()
		default:
			return k, why
		}
		if why == "" {
			why = reason
		}
	}
	return -1, why
}
