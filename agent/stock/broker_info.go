package stock

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// BrokerConfig is what a broker tells of its configuration. Texts are as the
// broker gives them.
type BrokerConfig struct {
	ClusterName, BrokerName string
	BrokerID                int64  // 0 is the master
	Role                    string // ASYNC_MASTER, SYNC_MASTER or SLAVE
	BrokerIP2               string // the address it gives to its slaves
	ListenPort              int
	HAListenPort            int
	// SegmentSize is mappedFileSizeCommitLog.
	SegmentSize wire.ByteSize
	// InSyncReplicas counts the broker itself; 1 on 4.x, where it means nothing.
	InSyncReplicas int
	// CountsInSync tells that InSyncReplicas means something: from 5.0 on, which
	// brought request 907 as well. A broker of 4.x may have the property in its file.
	CountsInSync  bool
	FlushDiskType string // ASYNC_FLUSH or SYNC_FLUSH
	// StorePathCommitLog may be a list of directories.
	StorePathCommitLog string
	// Controller and DLedger tell that the HA stream or the log is of another
	// kind than the one of this package.
	Controller, DLedger bool
	// ConfigRocksDB tells that topics, groups and offsets are not in JSON files
	// but in RocksDB: configManagerVersion v2, or a storeType of defaultRocksDB.
	ConfigRocksDB bool
	// Raw holds every property. It may hold secrets (the credentials of inner
	// clients), so it must not be logged as a whole.
	Raw map[string]string
}

// Config asks for the broker's configuration (request 26). It returns an error
// that matches remoting.ErrBody where the answer is not that of a broker.
func (b *Broker) Config(ctx context.Context) (BrokerConfig, error) {
	answer, err := b.Raw(ctx, remoting.GetBrokerConfig, nil, nil)
	if err != nil {
		return BrokerConfig{}, err
	}
	c, err := ParseBrokerConfig(remoting.ParseProperties(answer.Body))
	if err != nil {
		return BrokerConfig{}, fmt.Errorf("configuration of broker %s: %w", b.addr, err)
	}
	if release := answer.Version; release >= release400 && release < release500 {
		c.InSyncReplicas, c.CountsInSync = 1, false
	}
	return c, nil
}

// ParseBrokerConfig reads a broker's properties, which must be complete as a
// broker answers them: a broker.conf lacks defaults. It returns an error that
// matches remoting.ErrBody and names the property. Which release it was is not
// known here: one that has inSyncReplicas is taken for 5.x.
func ParseBrokerConfig(raw map[string]string) (BrokerConfig, error) {
	p := properties{raw: raw}
	c := BrokerConfig{
		ClusterName:        raw["brokerClusterName"],
		BrokerName:         p.text("brokerName"),
		BrokerID:           p.number("brokerId", 0),
		Role:               p.text("brokerRole"),
		BrokerIP2:          raw["brokerIP2"],
		ListenPort:         p.port("listenPort", 0),
		SegmentSize:        p.segmentSize(),
		InSyncReplicas:     int(p.number("inSyncReplicas", 1)),
		FlushDiskType:      raw["flushDiskType"],
		StorePathCommitLog: raw["storePathCommitLog"],
		Controller:         raw["enableControllerMode"] == "true",
		DLedger:            raw["enableDLegerCommitLog"] == "true",
		ConfigRocksDB: raw["configManagerVersion"] == "v2" ||
			strings.EqualFold(raw["storeType"], "defaultRocksDB"),
		Raw: raw,
	}
	_, c.CountsInSync = raw["inSyncReplicas"]
	c.HAListenPort = p.port("haListenPort", c.ListenPort+1)
	return c, p.err
}

// properties takes values out of a table and keeps the first error.
type properties struct {
	raw map[string]string
	err error
}

func (p *properties) fail(name, why string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: property %s %s", remoting.ErrBody, name, why)
	}
}

func (p *properties) text(name string) string {
	v := p.raw[name]
	if v == "" {
		p.fail(name, "is missing")
	}
	return v
}

// number returns a property of at least 0, or absent where it is not there.
func (p *properties) number(name string, absent int64) int64 {
	v, ok := p.raw[name]
	if !ok {
		return absent
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 {
		p.fail(name, fmt.Sprintf("is %q", v))
		return absent
	}
	return n
}

// port returns a port number; 0 and a missing one stand for absent.
func (p *properties) port(name string, absent int) int {
	n := p.number(name, 0)
	if n > 1<<16-1 {
		p.fail(name, fmt.Sprintf("is %d", n))
	}
	if n == 0 {
		n = int64(absent)
	}
	if n == 0 {
		p.fail(name, "is missing")
	}
	return int(n)
}

// segmentSize reads mappedFileSizeCommitLog, which 4.x brokers before 4.4 spell
// with one p.
func (p *properties) segmentSize() wire.ByteSize {
	for _, name := range []string{"mappedFileSizeCommitLog", "mapedFileSizeCommitLog"} {
		if n := p.number(name, 0); n > 0 {
			return wire.ByteSize(n)
		}
	}
	p.fail("mappedFileSizeCommitLog", "is missing")
	return 0
}

// RuntimeInfo is what a broker tells of its present state.
type RuntimeInfo struct {
	// MinOffset is where the broker's log begins; wire.NoOffset while it has no
	// segment.
	MinOffset wire.PhyOffset
	// MaxOffset is where the broker's log ends; 0 on an empty store.
	MaxOffset wire.PhyOffset
	// Version is the broker's release in its own words, such as "V4_9_7"; empty
	// where it does not tell.
	Version string
	// Raw holds the whole table.
	Raw map[string]string
}

// Empty reports whether the broker has never stored a message.
func (i RuntimeInfo) Empty() bool { return i.MaxOffset == 0 }

// RuntimeInfo asks for the broker's present state (request 28). In its first
// second a broker answers with an error that matches ErrNotReady. A table
// without a valid commitLogMaxOffset is an error that matches remoting.ErrBody:
// an end that is not known must not be taken for 0.
func (b *Broker) RuntimeInfo(ctx context.Context) (RuntimeInfo, error) {
	answer, err := b.Raw(ctx, remoting.GetBrokerRuntimeInfo, nil, nil)
	if err != nil {
		return RuntimeInfo{}, err
	}
	info, err := parseRuntimeInfo(answer.Body)
	if err != nil {
		return RuntimeInfo{}, fmt.Errorf("runtime information of broker %s: %w", b.addr, err)
	}
	return info, nil
}

func parseRuntimeInfo(body []byte) (RuntimeInfo, error) {
	table, err := remoting.ParseKVTable(body)
	if err != nil {
		return RuntimeInfo{}, err
	}
	info := RuntimeInfo{MinOffset: wire.NoOffset, Version: table["brokerVersionDesc"], Raw: table}
	last, ok := table["commitLogMaxOffset"]
	if !ok {
		return RuntimeInfo{}, fmt.Errorf("%w: commitLogMaxOffset is missing", remoting.ErrBody)
	}
	if info.MaxOffset, err = parseOffset(last); err != nil || info.MaxOffset < 0 {
		return RuntimeInfo{}, fmt.Errorf("%w: commitLogMaxOffset is %q", remoting.ErrBody, last)
	}
	if first, ok := table["commitLogMinOffset"]; ok {
		if info.MinOffset, err = parseOffset(first); err != nil || info.MinOffset > info.MaxOffset {
			return RuntimeInfo{}, fmt.Errorf("%w: commitLogMinOffset is %q, commitLogMaxOffset %q", remoting.ErrBody, first, last)
		}
	}
	return info, nil
}

// parseOffset reads an offset; -1 stands for none.
func parseOffset(s string) (wire.PhyOffset, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < int64(wire.NoOffset) {
		return wire.NoOffset, fmt.Errorf("offset %q", s)
	}
	return wire.PhyOffset(n), nil
}

// Where a message keeps its length and its own offset, which ViewMessage checks.
const (
	messageSizeAt   = 0
	messageOffsetAt = 28
	messageHeadSize = 36
)

// ViewMessage asks for the message that begins at off in the broker's log
// (request 33) and returns its bytes as they lie there. It returns an error that
// matches ErrNoMessage where none begins there: off is outside of the log,
// inside a message, or what lies there is the end of a segment or a message with
// another offset in it.
func (b *Broker) ViewMessage(ctx context.Context, off wire.PhyOffset) ([]byte, error) {
	answer, err := b.Raw(ctx, remoting.ViewMessageByID, map[string]string{"offset": off.String()}, nil)
	if err != nil {
		return nil, fmt.Errorf("message at %d: %w", off, err)
	}
	// A broker takes any 4 bytes for a length, so that it answers for offsets
	// inside messages, too.
	m := answer.Body
	if len(m) < messageHeadSize ||
		int64(binary.BigEndian.Uint32(m[messageSizeAt:])) != int64(len(m)) ||
		binary.BigEndian.Uint64(m[messageOffsetAt:]) != uint64(off) {
		return nil, fmt.Errorf("message at %d: %w: broker %s answered %d bytes that are none", off, ErrNoMessage, b.addr, len(m))
	}
	return m, nil
}
