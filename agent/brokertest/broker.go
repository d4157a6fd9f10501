package brokertest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/wire"
)

const (
	// stopPatience is how long a broker may take to shut down; 4 to 7 s are usual.
	stopPatience = 30 * time.Second
	// bigSegment is the segment size from which a broker accepts messages of 4 MiB.
	bigSegment = 16 * wire.MiB
)

// BrokerOptions says which broker to start. Only Version is required.
type BrokerOptions struct {
	Version Version
	// Dir is the store root; a new temporary directory where it is empty. The
	// broker boots on what the directory holds.
	Dir string
	// NameServer is the host:port that the broker registers with; none where empty.
	// It must list the broker's address in its answer to request 106 within 30 s,
	// unless nothing listens there at all.
	NameServer string
	// Role is ASYNC_MASTER (where empty), SYNC_MASTER or SLAVE.
	Role string
	// ID is the brokerId: 0 for a master, more for a slave. A slave's 0 becomes 1.
	ID int
	// Name and Cluster are the broker group; broker-a and DefaultCluster where empty.
	Name, Cluster string
	// MasterHA is the host:port of the master's HA port. It is for a slave of 4.x
	// and ignored on 5.x, where a slave that is given one never connects at all:
	// it learns its master from the name server instead.
	MasterHA string
	// SegmentSize is the commit log's segment size; 1 MiB where zero.
	SegmentSize wire.ByteSize
	// Properties are further broker properties; they win over all others.
	Properties map[string]string
	// TLS is what the probes of a broker speak that was told to demand it
	// (-Dtls.server.mode=enforcing in JVMFlags); nil: they speak plainly.
	TLS *tls.Config
	// HeapMiB is the size of the JVM's heap; 256 where zero.
	HeapMiB int
	// JVMFlags are added to the command line and win over the flags there, which
	// favour a quick start: "-XX:TieredStopAtLevel=4" gives the full compiler.
	JVMFlags []string
}

// A Broker is an unmodified broker that was started, and may have ended since.
type Broker struct {
	t       testing.TB
	options BrokerOptions
	ports   *portBlock
	home    string
	process *jvm
}

// StartBroker starts a broker and waits until it serves: it has said so and
// answers, also about itself, which brokers cannot in their first second. A
// broker that has a name server is registered by then.
// One that does not start fails the test with the tail of its log. It is killed
// when the test ends.
func StartBroker(t testing.TB, o BrokerOptions) *Broker {
	t.Helper()
	b, err := TryStartBroker(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TryStartBroker is StartBroker for a broker that may refuse to start. The
// error holds the tail of its log; the Broker is nil only where no process was
// started at all.
func TryStartBroker(t testing.TB, o BrokerOptions) (*Broker, error) {
	t.Helper()
	b := &Broker{t: t, options: o.withDefaults()}
	if b.options.Dir == "" {
		b.options.Dir = t.TempDir()
	}
	b.home = t.TempDir()
	var err error
	if b.ports, err = holdPorts(t); err != nil {
		return nil, fmt.Errorf("broker %s: %w", o.Version, err)
	}
	if err := b.start(); err != nil {
		if b.process == nil {
			return nil, err
		}
		return b, err
	}
	return b, nil
}

func (o BrokerOptions) withDefaults() BrokerOptions {
	if o.Role == "" {
		o.Role = "ASYNC_MASTER"
	}
	if o.Role == "SLAVE" && o.ID == 0 {
		o.ID = 1
	}
	if o.Name == "" {
		o.Name = "broker-a"
	}
	if o.Cluster == "" {
		o.Cluster = "DefaultCluster"
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = wire.MiB
	}
	if o.HeapMiB == 0 {
		o.HeapMiB = 256
	}
	o.Properties = maps.Clone(o.Properties)
	return o
}

// start runs one process with the broker's options, ports and directory.
func (b *Broker) start() error {
	c, err := openCache()
	if err != nil {
		return err
	}
	lib, err := c.classPath(b.options.Version)
	if err != nil {
		return err
	}
	conf := filepath.Join(b.home, "broker.properties")
	if err := os.WriteFile(conf, []byte(b.properties()), 0o644); err != nil {
		return fmt.Errorf("broker %s: configuration: %w", b.options.Version, err)
	}
	log := filepath.Join(b.home, "out.log")
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("broker %s: clear the log: %w", b.options.Version, err)
	}
	process, err := startJVM(jvmOptions{
		classPath: lib, home: b.home, heapMiB: b.options.HeapMiB, flags: b.options.JVMFlags, log: log,
		main: "org.apache.rocketmq.broker.BrokerStartup", args: []string{"-c", conf},
	})
	if err != nil {
		return fmt.Errorf("broker %s: %w", b.options.Version, err)
	}
	killAtEnd(b.t, process)
	b.process = process
	err = awaitServing(process, b.dial, runtimeInfo, "boot success")
	if err == nil && b.options.NameServer != "" {
		err = awaitRegistered(process, b.options.NameServer, b.registeredAddr(), b.dial)
	}
	if err != nil {
		return fmt.Errorf("broker %s in %s: %w\n%s", b.options.Version, b.options.Dir, err, lastWords(b.fileLogs()))
	}
	return nil
}

// dial opens a connection to the port for clients.
func (b *Broker) dial(ctx context.Context) (net.Conn, error) {
	if b.options.TLS == nil {
		return plainly(b.Addr())(ctx)
	}
	return (&tls.Dialer{Config: b.options.TLS}).DialContext(ctx, "tcp", b.Addr())
}

// registeredAddr is the address that the broker tells the name server.
func (b *Broker) registeredAddr() string {
	host := b.options.Properties["brokerIP1"]
	if host == "" {
		return b.Addr()
	}
	return host + ":" + strconv.Itoa(b.ports.listen())
}

// properties writes the broker's configuration file.
func (b *Broker) properties() string {
	o := b.options
	size := strconv.FormatInt(int64(o.SegmentSize), 10)
	p := map[string]string{
		"brokerClusterName":           o.Cluster,
		"brokerName":                  o.Name,
		"brokerId":                    strconv.Itoa(o.ID),
		"brokerRole":                  o.Role,
		"flushDiskType":               "ASYNC_FLUSH",
		"namesrvAddr":                 o.NameServer,
		"listenPort":                  strconv.Itoa(b.ports.listen()),
		"haListenPort":                strconv.Itoa(b.ports.ha()),
		"brokerIP1":                   "127.0.0.1",
		"brokerIP2":                   "127.0.0.1",
		"storePathRootDir":            o.Dir,
		"storePathCommitLog":          filepath.Join(o.Dir, "commitlog"),
		"mapedFileSizeCommitLog":      size, // how 4.x is said to spell it
		"mappedFileSizeCommitLog":     size,
		"autoCreateTopicEnable":       "true",
		"diskMaxUsedSpaceRatio":       "95",
		"waitTimeMillsInSendQueue":    "5000", // a busy test machine is no reason to refuse
		"osPageCacheBusyTimeOutMills": "5000",
	}
	if o.SegmentSize >= bigSegment {
		p["maxMessageSize"] = strconv.FormatInt(int64(8*wire.MiB), 10)
	}
	if o.Role == "SLAVE" {
		p["slaveReadEnable"] = "true" // 5.x slaves refuse all reads without it
	}
	if o.MasterHA != "" && o.Version.Major() == 4 {
		p["haMasterAddress"] = o.MasterHA
	}
	maps.Copy(p, o.Properties)
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(p)) {
		if p[key] != "" {
			fmt.Fprintf(&text, "%s=%s\n", key, p[key])
		}
	}
	return text.String()
}

// Addr returns the host:port on loopback that the broker serves clients on.
func (b *Broker) Addr() string { return loopback(b.ports.listen()) }

// HAAddr returns the host:port on loopback of the broker's HA port.
func (b *Broker) HAAddr() string { return loopback(b.ports.ha()) }

// Dir returns the store root.
func (b *Broker) Dir() string { return b.options.Dir }

// Pid returns the process id of the broker, or of the last one where it ended.
func (b *Broker) Pid() int { return b.process.cmd.Process.Pid }

// Running reports whether the process is there.
func (b *Broker) Running() bool { return !b.process.ended() }

// ConfFile returns the path of the broker's own properties file.
func (b *Broker) ConfFile() string { return filepath.Join(b.home, "broker.properties") }

// Log returns what the broker has printed since its last start, and the log
// files that it has written.
func (b *Broker) Log() string { return b.process.output() + b.fileLogs() }

// fileLogs returns the log files that a broker writes below its home, which is
// where those of 5.x are.
func (b *Broker) fileLogs() string {
	var text strings.Builder
	for _, name := range []string{"store.log", "broker.log"} {
		data, err := os.ReadFile(filepath.Join(b.home, "logs", "rocketmqlogs", name))
		if err == nil {
			fmt.Fprintf(&text, "--- %s\n%s", name, data)
		}
	}
	return text.String()
}

// Kill ends the broker with SIGKILL and waits for the process to end.
func (b *Broker) Kill() {
	b.t.Helper()
	if err := b.process.kill(); err != nil {
		b.t.Errorf("broker %s: %v", b.options.Version, err)
	}
}

// Stop ends the broker with SIGTERM and waits for the process to end. One that
// has not ended after 30 s is killed, and the test fails.
func (b *Broker) Stop() {
	b.t.Helper()
	if err := b.process.stop(stopPatience); err != nil {
		b.t.Errorf("broker %s: %v", b.options.Version, err)
	}
}

// Set changes a property from the next start on; an empty value takes it out.
func (b *Broker) Set(property, value string) {
	if b.options.Properties == nil {
		b.options.Properties = make(map[string]string)
	}
	b.options.Properties[property] = value
}

// Restart starts the broker again on the same ports and directory, after
// stopping it where it still runs.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	b.Stop()
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
}
