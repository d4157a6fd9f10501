package watch

import "time"

// debounce makes one edge of many events: when it has been quiet for a while, and
// at the latest when the first of them is so long ago.
type debounce struct {
	quiet, longest time.Duration

	waiting     bool
	first, last time.Time // events since the last edge
}

// mark notes an event.
func (d *debounce) mark(now time.Time) {
	if !d.waiting {
		d.waiting, d.first = true, now
	}
	d.last = now
}

// pause returns how long it is until the edge is due, 0 when it is, -1 where there
// is nothing to tell.
func (d *debounce) pause(now time.Time) time.Duration {
	if !d.waiting {
		return -1
	}
	return max(min(d.last.Add(d.quiet).Sub(now), d.first.Add(d.longest).Sub(now)), 0)
}

// clear notes that the edge was sent.
func (d *debounce) clear() { d.waiting = false }
