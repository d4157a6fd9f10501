package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
)

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
	if err := c.checkRole(); err != nil {
		return err
	}
	for _, dir := range []struct{ key, value string }{{"dir", c.Dir}, {"commitlog-dir", c.CommitLogDir}} {
		if strings.Contains(dir.value, ",") {
			return &ConfigError{dir.key, dir.value, "several directories cannot be replicated into", "give one directory; a source may have several"}
		}
	}
	if err := c.checkDirs(); err != nil {
		return err
	}
	for _, addr := range []struct{ key, value string }{{"master", c.Master}, {"master-ha", c.MasterHA}, {"http", c.HTTP},
		{"broker", c.Broker}, {"link-bind", c.LinkBind}, {"link-advertise", c.LinkAdvertise}, {"ha-bind", c.HABind}, {"remoting-bind", c.RemotingBind}} {
		if addr.value == "" {
			continue
		}
		if err := checkAddr(addr.value); err != nil {
			return &ConfigError{addr.key, addr.value, err.Error(), "give HOST:PORT, for example 10.0.0.5:10911"}
		}
	}
	if err := c.checkStockPorts(); err != nil {
		return err
	}
	if err := c.checkRelay(); err != nil {
		return err
	}
	if c.SegmentSize != 0 && (c.SegmentSize < minSegment || c.SegmentSize > maxSegment) {
		return &ConfigError{"segment-size", c.SegmentSize.String(), fmt.Sprintf("must be between %s and 2GiB-1", minSegment), "give the source's mappedFileSizeCommitLog, for example 1GiB"}
	}
	switch c.Ack {
	case replica.AckMemory, replica.AckDisk:
	default:
		return &ConfigError{"ack", string(c.Ack), "no such ack level", "give memory or disk"}
	}
	if err := c.checkPath(); err != nil {
		return err
	}
	if c.MetadataInterval < time.Second {
		return &ConfigError{"metadata-interval", c.MetadataInterval.String(), "must be at least 1s", "leave it away for 10s"}
	}
	if (c.Credentials.AccessKey == "") != (c.Credentials.SecretKey == "") {
		return &ConfigError{"broker-acl-file", "", "accessKey and secretKey go together", "give both"}
	}
	return nil
}

// checkDirs refuses paths at which there can be no directory.
func (c Config) checkDirs() error {
	for _, dir := range []struct{ key, value string }{{"dir", c.Dir}, {"commitlog-dir", c.CommitLogDir}} {
		if why := noDirectory(dir.value); why != "" {
			return &ConfigError{dir.key, dir.value, why, "give a directory; it may be empty or missing"}
		}
	}
	root, logDir := fullPath(c.Dir), fullPath(c.CommitLogDir)
	if c.Dir != "" && (logDir == root || strings.HasPrefix(logDir+"/", replica.AgentDir(root)+"/")) {
		return &ConfigError{"commitlog-dir", c.CommitLogDir, "the segments need a directory of their own", "leave it away for " + replica.RememberedLogDir(c.Dir)}
	}
	return nil
}

// noDirectory says why there can be no directory at a path; "" where there can.
func noDirectory(path string) string {
	if path == "" {
		return ""
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return "not a directory"
	case errors.Is(err, syscall.ENOTDIR):
		return "leads through something that is no directory"
	case errors.Is(err, syscall.ELOOP):
		return "its links lead in a circle"
	case errors.Is(err, syscall.ENAMETOOLONG):
		return "is longer than a path may be"
	}
	return ""
}

// fullPath returns a path as one from the root, where that can be known.
func fullPath(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// checkRole checks what each role needs, and what it has no use for.
func (c Config) checkRole() error {
	switch c.Role {
	case "":
		return &ConfigError{"role", "", "is missing", "give --role master beside a broker, --role slave for a replica, or --role observer"}
	case RoleMaster, RoleSlave, RoleObserver:
	default:
		return &ConfigError{"role", string(c.Role), "no such role", "give master, slave or observer"}
	}
	switch {
	case c.Role == RoleObserver && c.Dir != "":
		return &ConfigError{"dir", c.Dir, "an observer writes nothing", "leave --dir away"}
	case c.Role == RoleMaster && c.Dir == "":
		return &ConfigError{"dir", "", "a master needs the broker's store root", "give --dir DIR, the broker's storePathRootDir"}
	case c.Role == RoleSlave && c.Dir == "":
		return &ConfigError{"dir", "", "a slave needs a store root", "give --dir DIR; it may be empty or missing"}
	case c.Role != RoleSlave && c.Master != "":
		return &ConfigError{"master", c.Master, "only a slave follows a broker", "give --broker HOST:PORT for the broker beside a master"}
	case c.Role != RoleSlave && c.MasterHA != "":
		return &ConfigError{"master-ha", c.MasterHA, "only a slave follows a broker", "leave it away"}
	case c.Role != RoleSlave && c.Finder == nil:
		return &ConfigError{"role", string(c.Role), "is of no use without gossip", "give --join or --gossip-bind"}
	}
	return nil
}

// minRate is less than any log that is worth a replica grows by.
// Below it one frame could take longer than a peer waits for it.
const minRate = 256 * wire.KiB

// checkPath checks what is said of the path of the data.
func (c Config) checkPath() error {
	if err := CheckLimits(c.LimitRate, c.CatchupRate); err != nil {
		return err
	}
	switch c.Compress {
	case CompressOff, CompressAuto, CompressZstd:
	default:
		return &ConfigError{"compress", string(c.Compress), "no such way to compress", "give off, auto or zstd"}
	}
	switch {
	case c.OnDivergence == DivergenceRewind && (c.Master != "" || c.MasterHA != ""):
		return &ConfigError{"on-divergence", string(c.OnDivergence), "a broker without agent does not tell from where on it differs", "leave it away, or follow an agent beside the broker"}
	case c.OnDivergence == DivergenceHalt, c.OnDivergence == DivergenceRewind:
	default:
		return &ConfigError{"on-divergence", string(c.OnDivergence), "no such way out of a divergence", "give halt or rewind"}
	}
	return nil
}

// CheckLimits returns a *ConfigError for rates that SetLimits cannot take.
func CheckLimits(limit, catchup wire.ByteSize) error {
	for _, rate := range []struct {
		key   string
		value wire.ByteSize
	}{{"limit-rate", limit}, {"catchup-rate", catchup}} {
		if rate.value < 0 || rate.value > 0 && rate.value < minRate {
			return &ConfigError{rate.key, rate.value.String(), fmt.Sprintf("must be 0, for no limit, or at least %s a second", minRate), "give a size for one second, for example 64MiB"}
		}
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
