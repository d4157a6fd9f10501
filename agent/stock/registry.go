package stock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// A GroupMaster is where the slaves of a broker group find their master.
type GroupMaster struct {
	Node     string // of its agent
	HA       string // HOST:PORT of the stock HA stream; empty: it serves none
	Remoting string // HOST:PORT that answers for its config files, also at the port - 2
}

// RegistryOptions say what a Registry knows besides what brokers tell it. Find is
// required.
type RegistryOptions struct {
	// Find returns the master of a group. The error says in words why there is none
	// now. It must not block.
	Find func(cluster, brokerName string) (GroupMaster, error)
	// Vet, where not nil, returns why the slave broker at an address must not follow
	// a master (VetSlave). It may take a few seconds, as long as ctx lasts.
	Vet func(ctx context.Context, slave string, master GroupMaster) error
	// Now is the clock; time.Now where nil.
	Now func() time.Time
	// Log is told who registers; nobody where nil.
	Log *slog.Logger
}

// The bounds of a Registry. A broker that goes beyond them is refused, and told
// so.
const (
	MaxRegistered     = 256     // brokers
	maxBrokerTopics   = 50_000  // of one broker
	maxAllTopics      = 200_000 // of all brokers
	maxRegisteredText = 255     // bytes of a name or an address

	// MaxRegistration is the largest registration that is read: one of 50,000
	// topics has about 8 MiB.
	MaxRegistration = 16 * wire.MiB
)

// A broker that is silent for so long is forgotten, as name servers do, unless it
// asks for another span.
const (
	registrationLife    = 2 * time.Minute
	minRegistrationLife = time.Second
	maxRegistrationLife = 10 * time.Minute
)

// Registry is to stock slaves what a name server is to them: it takes their
// registrations, tells them their master, and tells clients about them. Unlike
// a name server it knows the masters by itself, and lists only who registered.
//
//	slave ──103 register──► Registry ◄── gossip: who is the master
//	      ◄─ haServerAddr, masterAddr
//	client ──105 route, 106 cluster──► the slaves, for reading
//
// All that is in it has bounds, whoever registers what.
type Registry struct {
	opt      RegistryOptions
	decoding chan struct{} // one slot: one body is taken apart at a time

	mu      sync.Mutex // guards what follows
	brokers map[registryKey]*registered
	topics  int                  // of all brokers
	told    map[registryKey]told // what each was last told, for the log
}

// registryKey is what name servers know a broker by.
type registryKey struct{ cluster, addr string }

// registered is one broker.
type registered struct {
	registryKey
	name    string
	id      int64
	version remoting.DataVersion
	topics  map[string]registeredTopic
	seen    time.Time
	life    time.Duration
	remote  string // the connection that it registered on
}

// registeredTopic is what a route tells about a topic.
type registeredTopic struct {
	read, write, perm, sysFlag int
}

// told is the answer to a registration.
type told struct {
	master GroupMaster
	why    string // there is none
}

// NewRegistry returns an empty registry. It needs no Run.
func NewRegistry(opt RegistryOptions) *Registry {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Registry{opt: opt, decoding: make(chan struct{}, 1),
		brokers: make(map[registryKey]*registered), told: make(map[registryKey]told)}
}

// A RegisteredBroker is one that has told about itself and is not silent.
type RegisteredBroker struct {
	Cluster, BrokerName string
	BrokerID            int64
	Addr                string // of its listenPort
	Topics              int
	Seen                time.Time
}

// Brokers returns the registered brokers, in the order of cluster, name and id.
func (r *Registry) Brokers() []RegisteredBroker {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	out := make([]RegisteredBroker, 0, len(r.brokers))
	for _, b := range r.sorted() {
		out = append(out, RegisteredBroker{Cluster: b.cluster, BrokerName: b.name, BrokerID: b.id, Addr: b.addr, Topics: len(b.topics), Seen: b.seen})
	}
	return out
}

// Closed forgets the brokers that registered on a connection which has ended: it
// is for RemotingServerOptions.OnClose.
func (r *Registry) Closed(remote net.Addr, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, b := range r.brokers {
		if b.remote == remote.String() {
			r.forget(key, "its connection ended")
		}
	}
}

// expire forgets who is silent. mu is held.
func (r *Registry) expire() {
	now := r.opt.Now()
	for key, b := range r.brokers {
		if now.Sub(b.seen) > b.life {
			r.forget(key, "it is silent")
		}
	}
}

// forget takes out a broker. mu is held.
func (r *Registry) forget(key registryKey, why string) {
	b := r.brokers[key]
	if b == nil {
		return
	}
	r.topics -= len(b.topics)
	delete(r.brokers, key)
	delete(r.told, key)
	r.opt.Log.Info("a broker is registered no more", "broker", b.String(), "why", why)
}

// String names the broker as people do.
func (b *registered) String() string {
	return fmt.Sprintf("%s/%s/%d at %s", b.cluster, b.name, b.id, b.addr)
}

// sorted returns the brokers by cluster, name, id and address. mu is held.
func (r *Registry) sorted() []*registered {
	return slices.SortedFunc(maps.Values(r.brokers), func(a, b *registered) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id), cmp.Compare(a.addr, b.addr))
	})
}

// put takes a registration in and returns whether that can be: err is a text for
// the broker.
func (r *Registry) put(b registered, table map[string]registeredTopic) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	old := r.brokers[b.registryKey]
	if old != nil && (old.name != b.name || old.id != b.id) {
		r.forget(b.registryKey, "it has another name or brokerId now")
		old = nil
	}
	if old == nil {
		for key, other := range r.brokers {
			if key != b.registryKey && other.cluster == b.cluster && other.name == b.name && other.id == b.id {
				r.forget(key, "another broker of the same name and brokerId came")
			}
		}
		if len(r.brokers) >= MaxRegistered {
			return fmt.Errorf("%d brokers are registered, which is all that fit", len(r.brokers))
		}
		b.topics = make(map[string]registeredTopic, len(table))
	} else {
		b.topics = old.topics
	}
	added := 0
	for name := range table {
		if _, known := b.topics[name]; !known {
			added++
		}
	}
	if n := len(b.topics) + added; n > maxBrokerTopics || r.topics+added > maxAllTopics {
		return fmt.Errorf("%d topics of %s are more than fit", n, b.String())
	}
	maps.Copy(b.topics, table) // brokers of 5.x may tell the changed ones only
	r.topics += added
	r.brokers[b.registryKey] = &b
	if old == nil {
		r.opt.Log.Info("a broker has registered", "broker", b.String(), "topics", len(b.topics))
	}
	return nil
}

// touch notes a sign of life and returns the version of the topics as last told;
// false where the broker is not known.
func (r *Registry) touch(key registryKey) (remoting.DataVersion, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	b := r.brokers[key]
	if b == nil {
		return remoting.DataVersion{}, false
	}
	b.seen = r.opt.Now()
	return b.version, true
}

// say logs what a slave is told about its master where that is news.
func (r *Registry) say(b registered, now told) {
	r.mu.Lock()
	before, known := r.told[b.registryKey]
	if r.brokers[b.registryKey] != nil {
		r.told[b.registryKey] = now
	}
	r.mu.Unlock()
	switch {
	case known && before == now:
	case now.why != "":
		r.opt.Log.Warn("a slave was told of no master: "+now.why, "slave", b.String())
	case now.master.HA == "":
		r.opt.Log.Warn("the master agent of a slave serves no stock HA stream. Try: give it --ha-bind and --remoting-bind", "slave", b.String(), "master", now.master.Node)
	default:
		r.opt.Log.Info("a slave was told its master", "slave", b.String(), "master", now.master.Node, "ha", now.master.HA, "remoting", now.master.Remoting)
	}
}
