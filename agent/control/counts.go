package control

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/state"
)

// Counts is what the rooms of an agent count while they work. Everything else
// that the metrics tell is read from the status. It is made by NewCounts and may
// be used by many goroutines at once.
type Counts struct {
	Received, Sent meter.Traffic    // of the log, over the network
	Fsync          *meter.Histogram // syncs of segments
	Divergences    meter.Counter    // how often the source turned out to be another log

	loaded atomic.Int64 // when the configuration was last read with success, Unix milliseconds
	stale  atomic.Bool  // a later reading failed

	reconnects map[string]*meter.Counter // by reason; the keys never change
	waits      map[string]*meter.Counter // by answer; the keys never change
}

// lost is the reason of a connection that ended, or could not be had, without a
// problem that has a name.
const lost = "connection"

// failedWait is the answer to a wait that was refused as a whole.
const failedWait = "refused"

// spans are the bounds of all histograms: from what a page cache takes to what a
// broken disk does.
var spans = []time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// NewCounts returns counts that stand at 0, for each reason and answer that there
// can be.
func NewCounts() *Counts {
	c := &Counts{Fsync: meter.NewHistogram(spans...), reconnects: map[string]*meter.Counter{lost: {}}, waits: map[string]*meter.Counter{failedWait: {}}}
	c.Reloaded(nil) // it was read, or there would be no agent
	latency := meter.NewHistogram(spans...)
	c.Received.Latency, c.Sent.Latency = latency, latency // an agent does one of both
	for _, s := range state.All() {
		if s.Stuck() {
			c.reconnects[string(s)] = &meter.Counter{}
		}
	}
	for _, r := range []acks.Result{acks.PutOK, acks.FlushSlaveTimeout, acks.SlaveNotAvailable} {
		c.waits[string(r)] = &meter.Counter{}
	}
	return c
}

// Reconnect counts an attempt to follow that ended with err.
func (c *Counts) Reconnect(err error) {
	if p := state.AsProblem(err); p != nil && c.reconnects[string(p.State)] != nil {
		c.reconnects[string(p.State)].Add(1)
		return
	}
	c.reconnects[lost].Add(1)
}

// Reloaded notes that the configuration was read again, and how that went.
func (c *Counts) Reloaded(err error) {
	if err == nil {
		c.loaded.Store(time.Now().UnixMilli())
	}
	c.stale.Store(err != nil)
}

// waited counts how a wait was answered.
func (c *Counts) waited(answer string) {
	if c == nil {
		return
	}
	if c.waits[answer] == nil {
		answer = failedWait
	}
	c.waits[answer].Add(1)
}

// sorted returns the keys of counters in order.
func sorted(m map[string]*meter.Counter) []string { return slices.Sorted(maps.Keys(m)) }
