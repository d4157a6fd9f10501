package metadata

import (
	"errors"
	"slices"

	"github.com/haagent/haagent/wire/remoting"
)

// Policy says what a replica does with a config file.
type Policy uint8

// The policies, from the most to the least welcome on a replica.
const (
	// AtOnce files are installed as soon as they arrive.
	AtOnce Policy = iota + 1
	// WhenCovered files hold positions in the log: they are installed once the
	// verified log covers the place where the source's log ended.
	WhenCovered
	// HistoryOnly files are kept in the generations, never in config/.
	HistoryOnly
	// Never files are neither read nor kept.
	Never
)

// String returns the policy as the documentation calls it.
func (p Policy) String() string {
	switch p {
	case AtOnce:
		return "at once"
	case WhenCovered:
		return "when covered"
	case HistoryOnly:
		return "history only"
	case Never:
		return "never"
	}
	return "unknown policy"
}

// Known is one file or directory of a broker's store that holds metadata.
type Known struct {
	// Name is the file's name below config/, for Never entries a path below the
	// store root.
	Name string
	// Holds says in a few words what is in it.
	Holds string
	// Policy says what a replica does with it.
	Policy Policy
	// Why gives the reason where Policy is HistoryOnly or Never.
	Why string
	// Since is the first generation of brokers that has it, "4.x" or "5.x".
	Since string
	// Request is the stock request that yields it, 0 where there is none.
	Request remoting.RequestCode
	// Without says what a broker booted on a replica does without the file. It is
	// set for what no stock request yields.
	Without string

	// binary marks contents that are not JSON.
	binary bool
}

// ErrName is matched by the error for a file name that is not a known config
// file. Paths of any kind are not.
var ErrName = errors.New("not a config file that is replicated")

// known is in the order of installation: what others refer to comes first.
var known = []Known{
	{Name: "topics.json", Holds: "topics, their queues and attributes", Policy: AtOnce, Since: "4.x", Request: remoting.GetAllTopicConfig},
	{Name: "topicQueueMapping.json", Holds: "queues of static topics", Policy: AtOnce, Since: "5.x", Request: remoting.GetAllTopicConfig},
	{Name: "subscriptionGroup.json", Holds: "consumer groups", Policy: AtOnce, Since: "4.x", Request: remoting.GetAllSubscriptionGroupConfig},
	{Name: "messageRequestMode.json", Holds: "pull or pop mode of groups", Policy: AtOnce, Since: "5.x", Request: remoting.GetAllMessageRequestMode},
	{Name: "consumerFilter.json", Holds: "SQL filters of groups", Policy: AtOnce, Since: "4.x",
		Without: "the broker compiles a filter again when its consumer connects"},
	{Name: "transactionMetrics", Holds: "counts of open transactions", Policy: AtOnce, Since: "5.x",
		Without: "the metric of open transactions starts at 0; the transactions themselves are in the log"},
	{Name: "consumerOffset.json", Holds: "positions of consumer groups", Policy: WhenCovered, Since: "4.x", Request: remoting.GetAllConsumerOffset},
	{Name: "delayOffset.json", Holds: "positions of delayed delivery by level", Policy: WhenCovered, Since: "4.x", Request: remoting.GetAllDelayOffset},
	{Name: "lmqConsumerOffset.json", Holds: "positions in light message queues", Policy: WhenCovered, Since: "4.x",
		Without: "consumers of light message queues start again from what their client asks for"},
	{Name: "consumerOrderInfo.json", Holds: "orderly pop deliveries under way", Policy: WhenCovered, Since: "5.x",
		Without: "orderly pop messages that were delivered and not yet acknowledged are delivered again at once"},
	{Name: "timercheck", Holds: "progress of the timer wheel", Policy: HistoryOnly, Since: "5.x", Request: remoting.GetTimerCheckPoint, binary: true,
		Why: "without the timer log beside it pending timed messages would be lost; the wheel is built anew from the commit log"},
	{Name: "timermetrics", Holds: "counts of pending timed messages", Policy: HistoryOnly, Since: "5.x", Request: remoting.GetTimerMetrics,
		Why: "the counts are made anew as the timer wheel is built from the commit log, and would be double"},
	{Name: "timerwheel", Holds: "slots of the timer wheel", Policy: Never, Since: "5.x", Why: "derived from the commit log"},
	{Name: "timerlog", Holds: "entries of the timer wheel", Policy: Never, Since: "5.x", Why: "derived from the commit log"},
	{Name: "consumequeue", Holds: "index by queue", Policy: Never, Since: "4.x", Why: "derived from the commit log"},
	{Name: "index", Holds: "index by key", Policy: Never, Since: "4.x", Why: "derived from the commit log"},
	{Name: "checkpoint", Holds: "flush times", Policy: Never, Since: "4.x", Why: "a replica is recovered in full, from its first segment"},
	{Name: "config/users", Holds: "users of the broker's own authentication", Policy: Never, Since: "5.x", Why: "an open database cannot be copied file by file; set the users up on both brokers"},
	{Name: "config/acls", Holds: "rules of the broker's own authorization", Policy: Never, Since: "5.x", Why: "an open database cannot be copied file by file; set the rules up on both brokers"},
}

// KnownFiles returns everything this package knows of, config files in the
// order in which they are installed, then what is never replicated.
func KnownFiles() []Known { return slices.Clone(known) }

// Lookup returns the config file of exactly that name. Never entries, other
// names and anything that is a path are not found.
func Lookup(name string) (Known, bool) {
	for _, k := range known {
		if k.Name == name && k.Policy != Never {
			return k, true
		}
	}
	return Known{}, false
}

// NotOverStock returns the config files that a replica would install but that
// no stock request yields: what a slave of a broker without agent goes without.
func NotOverStock() []Known {
	var list []Known
	for _, k := range known {
		if k.Request == 0 && (k.Policy == AtOnce || k.Policy == WhenCovered) {
			list = append(list, k)
		}
	}
	return list
}

// installable reports whether files of that policy ever stand in config/.
func (p Policy) installable() bool { return p == AtOnce || p == WhenCovered }
