package agent

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// Role is the side of an agent.
type Role string

// The roles.
const (
	RoleMaster   Role = "master"
	RoleSlave    Role = "slave"
	RoleObserver Role = "observer"
)

// Config is everything an agent is told. Empty texts and zeros mean "not given";
// WithDefaults fills in what has a default.
type Config struct {
	Role         Role
	Dir          string // store root
	CommitLogDir string // default: what the replica at Dir remembers, else Dir/commitlog

	Cluster, BrokerName string // not given: taken from the source
	BrokerID            int64
	Node                string // default host/brokerName/brokerId

	Master      string // remoting address of a broker without agent
	MasterHA    string // its HA address, where it cannot be asked
	Credentials remoting.Credentials
	BrokerTLS   *stock.BrokerTLS // of every connection to a broker's remoting port; nil: none

	// Master and slave of a pair.

	Finder        Finder          // finds other agents; nil: only Master and MasterHA are followed
	Security      *link.Security  // of the link; required with a Finder
	LinkBind      string          // where a master serves its replicas; default all addresses with a key, else loopback
	LinkAdvertise string          // where they reach it; default chosen
	Broker        string          // remoting address of a master's own broker; default 127.0.0.1:10911
	HABind        string          // where a master serves the stock HA stream; empty: nowhere
	RemotingBind  string          // where a master or observer answers stock slaves, also two ports below it; empty: nowhere
	HAAllow       stock.AllowList // who may talk to these two; empty: this host
	RelayAcks     int             // how many replicas a master's own broker waits for; 0 leaves that to the broker
	TailSettle    time.Duration   // how long a last record stands unchanged where no broker confirms it; default 1 s
	Compress      Compress        // of the log on the link; default off

	// Of the log's bytes a second that this agent sends or takes, all peers
	// together; 0: no limit. CatchupRate binds only while the replica is behind.
	// SetLimits changes both.
	LimitRate, CatchupRate wire.ByteSize

	OnDivergence OnDivergence // what a replica does that parted from its source; default halt

	SegmentSize      wire.ByteSize
	Ack              replica.Ack
	Retention        Retention
	MetadataInterval time.Duration

	HTTP string // status address; empty: none

	Timing     stock.Timing // for tests
	LinkTiming link.Timing  // for tests
	Version    string       // of the program
}

// DefaultBroker is where a master looks for its own broker.
const DefaultBroker = "127.0.0.1:10911"

// Retention says what a replica does with its oldest segments.
type Retention struct {
	Follow bool          // drop what the source dropped
	Age    time.Duration // > 0: drop what is older; 0 with Follow false keeps all
}

// ParseRetention reads "follow", "keep" or an age such as "72h".
func ParseRetention(s string) (Retention, error) {
	switch s {
	case "follow":
		return Retention{Follow: true}, nil
	case "keep":
		return Retention{}, nil
	}
	age, err := time.ParseDuration(s)
	if err != nil || age < time.Hour {
		return Retention{}, fmt.Errorf("%q is neither follow, nor keep, nor an age of at least 1h such as 72h", s)
	}
	return Retention{Age: age}, nil
}

// Compress says how the log travels on the link.
type Compress = link.Compress

// The ways to compress.
const (
	CompressOff  = link.CompressOff
	CompressAuto = link.CompressAuto
	CompressZstd = link.CompressZstd
)

// OnDivergence says what a replica does that holds other bytes than its source
// from some message on.
type OnDivergence string

// The ways out of a divergence.
const (
	DivergenceHalt   OnDivergence = "halt"   // stay, and wait for somebody to decide
	DivergenceRewind OnDivergence = "rewind" // cut back to the last common message; what is cut is kept
)

// brokerOptions say how brokers are asked; timeout 0 is the usual one.
func (c *Config) brokerOptions(timeout time.Duration) stock.BrokerOptions {
	return stock.BrokerOptions{Credentials: c.Credentials, TLS: c.BrokerTLS, Timeout: timeout}
}

// WithDefaults returns the config with defaults for what was not given.
func (c Config) WithDefaults() Config {
	if c.CommitLogDir == "" && c.Dir != "" {
		c.CommitLogDir = replica.RememberedLogDir(c.Dir)
	}
	if c.Ack == "" {
		c.Ack = replica.AckMemory
	}
	if c.Compress == "" {
		c.Compress = CompressOff
	}
	if c.OnDivergence == "" {
		c.OnDivergence = DivergenceHalt
	}
	if c.MetadataInterval == 0 {
		c.MetadataInterval = 10 * time.Second
	}
	if c.BrokerID == 0 && c.Role == RoleSlave {
		c.BrokerID = 1
	}
	if c.Broker == "" {
		c.Broker = DefaultBroker
	}
	if c.TailSettle == 0 {
		c.TailSettle = time.Second
	}
	if c.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		name := c.BrokerName
		if name == "" {
			name = "broker-a"
		}
		c.Node = host + "/" + name + "/" + strconv.FormatInt(c.BrokerID, 10)
		if c.Role == RoleObserver { // beside a master, whose name it must not take
			c.Node = host + "/observer"
		}
	}
	return c
}
