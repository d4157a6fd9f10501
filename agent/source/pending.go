package source

import (
	"hash/maphash"
	"time"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// How often the last bytes of the log are looked at while nothing follows them.
const (
	minRecheck = 2 * time.Millisecond
	maxRecheck = time.Second
	maxRetry   = 200 * time.Millisecond // of bytes that are no record
)

// pending is the one record behind Confirmed, since it could be parsed.
type pending struct {
	size    wire.ByteSize // 0: there is none
	sum     uint64        // of its bytes
	since   time.Time     // when they were first seen so
	checked time.Time     // when they were last seen so
	formed  bool          // whether topic and properties look written
	settled bool
}

// recheck returns how long the bytes may be taken for unchanged without a look.
// Before it settles a record is looked at often, so that the last change is known
// to be no later than the look before.
func (p *pending) recheck(settle time.Duration) time.Duration {
	if settle < 0 {
		return maxRecheck
	}
	if p.settled {
		return min(max(settle/2, minRecheck), maxRecheck)
	}
	return min(max(settle/8, minRecheck), maxRecheck)
}

// saw notes what rec looks like now, and reports whether its bytes changed since
// they were settled, and whether anything that Ends tell changed.
func (p *pending) saw(rec *commitlog.Record, seed maphash.Seed, settle time.Duration, now time.Time) (unsettled, moved bool) {
	sum := maphash.Bytes(seed, rec.Bytes())
	if p.size == rec.Size && p.sum == sum {
		p.checked = now
		if !p.settled && p.formed && settle >= 0 && now.Sub(p.since) >= settle {
			p.settled = true
			return false, true
		}
		return false, false
	}
	unsettled = p.settled
	*p = pending{size: rec.Size, sum: sum, since: now, checked: now, formed: rec.WellFormed()}
	return unsettled, true
}
