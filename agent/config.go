package agent

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

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
	CommitLogDir string // default Dir/commitlog

	Cluster, BrokerName string // not given: taken from the source
	BrokerID            int64
	Node                string // default host/brokerName/brokerId

	Master      string // remoting address of a broker without agent
	MasterHA    string // its HA address, where it cannot be asked
	Credentials remoting.Credentials

	SegmentSize      wire.ByteSize
	Ack              replica.Ack
	Retention        Retention
	MetadataInterval time.Duration

	HTTP string // status address; empty: none

	Timing  stock.Timing // for tests
	Version string       // of the program
}

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

// WithDefaults returns the config with defaults for what was not given.
func (c Config) WithDefaults() Config {
	if c.CommitLogDir == "" && c.Dir != "" {
		c.CommitLogDir = replica.CommitLogDir(c.Dir)
	}
	if c.Ack == "" {
		c.Ack = replica.AckMemory
	}
	if c.MetadataInterval == 0 {
		c.MetadataInterval = 10 * time.Second
	}
	if c.BrokerID == 0 && c.Role == RoleSlave {
		c.BrokerID = 1
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
	}
	return c
}

// Limits of a segment size: a broker maps one segment as one Java buffer, and
// below a page nothing fits.
const (
	minSegment = 4 * wire.KiB
	maxSegment = 2*wire.GiB - 1
)

// ConfigError says which value cannot be used, and what would.
type ConfigError struct {
	Key, Value, Why, Try string
}

// Error names key, value and reason.
func (e *ConfigError) Error() string { return fmt.Sprintf("--%s %q: %s", e.Key, e.Value, e.Why) }

// Validate returns a *ConfigError for the first value that cannot be used.
func (c Config) Validate() error {
	switch c.Role {
	case RoleSlave:
	case "":
		return &ConfigError{"role", "", "is missing", "give --role slave"}
	case RoleMaster, RoleObserver:
		return &ConfigError{"role", string(c.Role), "this version has the slave role only", "haagent --role slave --dir DIR --master HOST:10911"}
	default:
		return &ConfigError{"role", string(c.Role), "no such role", "give --role slave"}
	}
	if c.Dir == "" {
		return &ConfigError{"dir", "", "a slave needs a store root", "give --dir DIR; it may be empty or missing"}
	}
	for _, dir := range []struct{ key, value string }{{"dir", c.Dir}, {"commitlog-dir", c.CommitLogDir}} {
		if strings.Contains(dir.value, ",") {
			return &ConfigError{dir.key, dir.value, "several directories cannot be replicated into", "give one directory; a source may have several"}
		}
	}
	if info, err := os.Stat(c.Dir); err == nil && !info.IsDir() {
		return &ConfigError{"dir", c.Dir, "not a directory", "give a directory; it may be empty or missing"}
	}
	for _, addr := range []struct{ key, value string }{{"master", c.Master}, {"master-ha", c.MasterHA}, {"http", c.HTTP}} {
		if addr.value == "" {
			continue
		}
		if err := checkAddr(addr.value); err != nil {
			return &ConfigError{addr.key, addr.value, err.Error(), "give HOST:PORT, for example 10.0.0.5:10911"}
		}
	}
	if c.SegmentSize != 0 && (c.SegmentSize < minSegment || c.SegmentSize > maxSegment) {
		return &ConfigError{"segment-size", c.SegmentSize.String(), fmt.Sprintf("must be between %s and 2GiB-1", minSegment), "give the source's mappedFileSizeCommitLog, for example 1GiB"}
	}
	switch c.Ack {
	case replica.AckMemory, replica.AckDisk:
	default:
		return &ConfigError{"ack", string(c.Ack), "no such ack level", "give memory or disk"}
	}
	if c.MetadataInterval < time.Second {
		return &ConfigError{"metadata-interval", c.MetadataInterval.String(), "must be at least 1s", "leave it away for 10s"}
	}
	if (c.Credentials.AccessKey == "") != (c.Credentials.SecretKey == "") {
		return &ConfigError{"broker-acl-file", "", "accessKey and secretKey go together", "give both"}
	}
	return nil
}

func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("not HOST:PORT")
	}
	if host == "" {
		return fmt.Errorf("the host is missing")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port must be between 0 and 65535")
	}
	return nil
}
