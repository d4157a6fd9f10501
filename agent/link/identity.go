package link

import (
	"time"

	"github.com/haagent/haagent/wire"
)

// Identity is what an agent says of itself to another one.
type Identity struct {
	Cluster, BrokerName string // empty on a replica that takes its source's
	Node                string // counts in the ack table; never empty
	Version             string // of the program
}

// Timing is the clockwork of both sides. The zero value of each field means its
// default; tests shorten it.
type Timing struct {
	Heartbeat  time.Duration // a frame at least this often, in both directions; 2 s
	Silence    time.Duration // a peer without a frame for this long is dropped; 10 s
	Dial       time.Duration // a TCP connection comes within this; 2 s
	FirstRetry time.Duration // 50 ms
	MaxRetry   time.Duration // 1 s
	Config     time.Duration // config files are confirmed at least this often; 10 s
}

func (t Timing) withDefaults() Timing {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&t.Heartbeat, 2*time.Second)
	def(&t.Silence, 10*time.Second)
	def(&t.Dial, 2*time.Second)
	def(&t.FirstRetry, 50*time.Millisecond)
	def(&t.MaxRetry, time.Second)
	def(&t.Config, 10*time.Second)
	return t
}

// inSync is how far a stream may fall behind before it counts as catching up.
const inSync = 64 * wire.MiB
