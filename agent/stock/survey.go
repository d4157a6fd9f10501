package stock

import (
	"context"
	"net"
	"strconv"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// Expectation is what a replica demands of its source; zero values accept
// whatever the source says.
type Expectation struct {
	Cluster, BrokerName string
	SegmentSize         wire.ByteSize
	HAAddr              string // instead of the source's own
}

// Survey is what a source says about itself, before a byte of log is taken.
type Survey struct {
	Config   BrokerConfig
	Version  string         // "V5_3_3"; empty where it does not tell
	HAAddr   string         // host:port of the HA stream
	Min, Max wire.PhyOffset // both 0 on an empty store
}

// maxOffset is further than any log will ever get: offsets above it come from a
// confused peer, and must not get into sums.
const maxOffset wire.PhyOffset = 1 << 62

// SurveyBroker asks a source who it is and what it holds. It returns a Problem
// where the source cannot be followed, and other errors where it cannot be
// asked.
func SurveyBroker(ctx context.Context, b *Broker, want Expectation) (Survey, error) {
	s, err := identify(ctx, b, want)
	if err != nil {
		return Survey{}, err
	}
	info, err := b.RuntimeInfo(ctx)
	if err != nil {
		return Survey{}, BrokerProblem(b.Addr(), err)
	}
	if info.MaxOffset > maxOffset {
		return Survey{}, state.Problemf(state.ProtocolError, "absurd_offset", "restart the source's broker if this lasts", nil,
			"%s says that its log ends at %d", b.Addr(), info.MaxOffset)
	}
	// A broker without a segment yet answers -1.
	s.Version, s.Min, s.Max = info.Version, max(info.MinOffset, 0), max(info.MaxOffset, 0)
	return s, nil
}

// identify asks a source who it is, and nothing about its log.
func identify(ctx context.Context, b *Broker, want Expectation) (Survey, error) {
	cfg, err := b.Config(ctx)
	if err != nil {
		return Survey{}, BrokerProblem(b.Addr(), err)
	}
	s := Survey{Config: cfg, HAAddr: want.HAAddr}
	if s.HAAddr == "" {
		host, _, err := net.SplitHostPort(b.Addr())
		if err != nil {
			return Survey{}, err
		}
		s.HAAddr = net.JoinHostPort(host, strconv.Itoa(cfg.HAListenPort))
	}
	return s, want.check(b.Addr(), cfg)
}

// check compares what the source says with what is demanded.
func (want Expectation) check(addr string, cfg BrokerConfig) error {
	switch {
	case cfg.Controller:
		return state.Problemf(state.Incompatible, "controller_mode", "follow a broker with enableControllerMode=false", nil,
			"%s runs in controller mode (AutoSwitch HA), whose stream has another handshake", addr)
	case cfg.DLedger:
		return state.Problemf(state.Incompatible, "dledger", "follow a broker with enableDLegerCommitLog=false", nil,
			"%s keeps a DLedger log, which is another format", addr)
	case want.Cluster != "" && want.Cluster != cfg.ClusterName:
		return state.Problemf(state.Incompatible, "wrong_cluster", "give --cluster "+cfg.ClusterName+" if this is the right source", nil,
			"%s belongs to cluster %q, not %q", addr, cfg.ClusterName, want.Cluster)
	case want.BrokerName != "" && want.BrokerName != cfg.BrokerName:
		return state.Problemf(state.Incompatible, "wrong_broker", "give --broker-name "+cfg.BrokerName+" if this is the right source", nil,
			"%s is broker %q, not %q", addr, cfg.BrokerName, want.BrokerName)
	case want.SegmentSize != 0 && cfg.SegmentSize != 0 && want.SegmentSize != cfg.SegmentSize:
		return state.Problemf(state.Incompatible, "segment_size", "leave --segment-size away, or give another --dir if this one holds other segments", nil,
			"%s has segments of %s (mappedFileSizeCommitLog), not %s", addr, cfg.SegmentSize, want.SegmentSize)
	}
	return nil
}
