package stock

import (
	"context"
	"time"

	"github.com/haagent/haagent/wire/remoting"
)

// VetPatiently is VetSlave on a machine that is slow.
func VetPatiently(ctx context.Context, addr string, master GroupMaster) error {
	return vetSlave(ctx, addr, master, time.Minute)
}

// ReadRegistration takes a registration apart and returns the number of queues
// for reading, by topic.
func ReadRegistration(body []byte, compressed bool, sum uint32) (remoting.DataVersion, map[string]int, error) {
	t, err := readRegistration(body, compressed, sum)
	queues := make(map[string]int)
	for name, c := range t.topics {
		queues[name] = c.read
	}
	return t.version, queues, err
}

// StrictJSON quotes bare keys.
var StrictJSON = strictJSON

// ErrRegistration is matched by the errors of ReadRegistration.
var ErrRegistration = errRegistration

// MaxBrokerTopics is how many topics of one broker fit.
const MaxBrokerTopics = maxBrokerTopics
