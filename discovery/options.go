package discovery

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// DefaultPort is where gossip listens, and where seeds without a port are
// sought, for TCP and UDP.
const DefaultPort = 7946

// Options say who this agent is and how it finds the others. Self.Node is
// required.
type Options struct {
	// Self is what the others are told of this agent. Addr, Status and Since are
	// set by Gossip.
	Self Member
	// Bind is HOST:PORT, HOST or :PORT to listen on. Where it is empty: all
	// addresses where there is a key or Insecure, else 127.0.0.1. Without a port,
	// DefaultPort or, where that is in use, a free one.
	Bind string
	// Advertise is HOST:PORT or HOST where others reach this agent; without a port,
	// the bound one. A name is resolved again as long as Run runs. Where it is
	// empty, the bound address or, with all of them bound, a chosen one.
	Advertise string
	// Join are the seeds, HOST or HOST:PORT; names are resolved for every try. Where
	// it is empty, the default port of loopback is tried, where the first agent of a
	// host listens.
	Join []string
	// Keys are of 32 bytes each. The first encrypts, all are accepted, so that keys
	// can be changed one agent at a time. Without keys, gossip stays on loopback.
	Keys [][]byte
	// Insecure allows gossip in clear text with anybody who gets through.
	Insecure bool
	// Log gets what an operator should know; nil: nothing is logged.
	Log *slog.Logger
	// Timing is for rings that are not small and near; 0 in any field: the default.
	Timing Timing
}

// Timing says how often things are done. The defaults suit small rings in one
// network: a dead member is known after about 3 s, one that comes back after
// a second.
type Timing struct {
	ProbeInterval    time.Duration // 500 ms: one member is probed in each; at least 10 ms
	ProbeTimeout     time.Duration // 300 ms: for the answer, before TCP and others are tried
	SuspicionMult    int           // 3: a member of a small ring is suspect for so many probe intervals
	GossipInterval   time.Duration // 100 ms: news goes to three members in each
	PushPullInterval time.Duration // 10 s: whole tables are exchanged; longer in large rings
	TCPTimeout       time.Duration // 3 s: for one exchange of tables
	Reclaim          time.Duration // 500 ms: from then on a dead member's name may come back at another address
	RetryMin         time.Duration // 500 ms: first pause between joins while alone, doubled up to
	RetryMax         time.Duration // 10 s
	SeedInterval     time.Duration // 30 s: missing seeds are tried while not alone
	Refresh          time.Duration // 2 s: memberlist's table is read at least so often, four times as often in doubt; 10 ms more for each member
	Leave            time.Duration // 1 s: bounds the good-bye at the end of Run
}

// OptionError is what New says of an option that cannot be used.
type OptionError struct {
	Option string // as on the command line, without dashes
	Value  string // as given; empty for keys
	Why    string
	Try    string // what to do about it
	Err    error  // the cause, if there is one
}

// Error returns option, value and reason in one line.
func (e *OptionError) Error() string {
	what := e.Option
	if e.Value != "" {
		what += " " + strconv.Quote(e.Value)
	}
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", what, e.Why, e.Err)
	}
	return what + ": " + e.Why
}

// Unwrap returns the cause.
func (e *OptionError) Unwrap() error { return e.Err }

// withDefaults fills what is 0 and refuses what makes no sense.
func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkNode(o.Self.Node); err != nil {
		return o, &OptionError{Option: "node", Value: o.Self.Node, Why: err.Error(), Try: "give a short printable name that no other agent has"}
	}
	for i, k := range o.Keys {
		if len(k) != 32 {
			return o, &OptionError{
				Option: "key-file", Why: fmt.Sprintf("key %d has %d bytes, not 32", i+1, len(k)),
				Try: "make one with: haagent keygen",
			}
		}
	}
	if err := o.checkSeeds(); err != nil {
		return o, err
	}
	var err error
	o.Timing, err = o.Timing.withDefaults()
	return o, err
}

// checkSeeds refuses what cannot be joined.
func (o Options) checkSeeds() error {
	for _, seed := range o.Join {
		host, _, err := splitHostPort(seed)
		if err == nil && host == "" {
			err = errors.New("it names no host")
		}
		if err != nil {
			return &OptionError{Option: "join", Value: seed, Why: "it is not HOST or HOST:PORT", Try: "give HOST:PORT", Err: err}
		}
		if ip, err := netip.ParseAddr(host); err == nil && o.confined() && !ip.Unmap().IsLoopback() {
			return &OptionError{
				Option: "join", Value: seed, Why: "there is no key, and gossip without one stays on loopback",
				Try: "give all agents the same --key-file, or --insecure where nobody else gets through",
			}
		}
	}
	return nil
}

// confined reports whether gossip must not leave loopback.
func (o Options) confined() bool { return len(o.Keys) == 0 && !o.Insecure }

func (t Timing) withDefaults() (Timing, error) {
	for _, f := range []struct {
		at  *time.Duration
		def time.Duration
	}{
		{&t.ProbeInterval, 500 * time.Millisecond},
		{&t.ProbeTimeout, 300 * time.Millisecond},
		{&t.GossipInterval, 100 * time.Millisecond},
		{&t.PushPullInterval, 10 * time.Second},
		{&t.TCPTimeout, 3 * time.Second},
		{&t.Reclaim, 500 * time.Millisecond},
		{&t.RetryMin, 500 * time.Millisecond},
		{&t.RetryMax, 10 * time.Second},
		{&t.SeedInterval, 30 * time.Second},
		{&t.Refresh, 2 * time.Second},
		{&t.Leave, time.Second},
	} {
		if *f.at == 0 {
			*f.at = f.def
		}
		if *f.at < time.Millisecond {
			return t, fmt.Errorf("gossip: an interval of %v is below 1ms", *f.at)
		}
	}
	if t.SuspicionMult == 0 {
		t.SuspicionMult = 3
	}
	switch {
	case t.SuspicionMult < 0:
		return t, fmt.Errorf("gossip: suspicion multiplier %d is negative", t.SuspicionMult)
	case t.ProbeInterval < 10*time.Millisecond:
		return t, fmt.Errorf("gossip: a probe interval of %v is below 10ms", t.ProbeInterval)
	case t.ProbeTimeout > t.ProbeInterval:
		return t, fmt.Errorf("gossip: the probe timeout %v is above the probe interval %v", t.ProbeTimeout, t.ProbeInterval)
	case t.RetryMin > t.RetryMax:
		return t, fmt.Errorf("gossip: the first pause %v is above the longest one %v", t.RetryMin, t.RetryMax)
	case t.Leave > 2*time.Second:
		return t, fmt.Errorf("gossip: a good-bye of %v is above 2s", t.Leave)
	}
	return t, nil
}

// splitHostPort takes HOST:PORT, HOST, :PORT and [IPv6]; port is -1 where
// there is none.
func splitHostPort(s string) (host string, port int, err error) {
	bare := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		bare = s[1 : len(s)-1]
	}
	if _, err := netip.ParseAddr(bare); err == nil {
		return bare, -1, nil
	}
	if !strings.Contains(s, ":") {
		return s, -1, checkHost(s)
	}
	host, text, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", text)
	}
	return host, int(n), checkHost(host)
}

// checkHost refuses what no name or address can hold; an empty host passes.
func checkHost(host string) error {
	if strings.ContainsAny(host, " \t\r\n/@,\"") || checkText(host) != nil || len(host) > 253 {
		return fmt.Errorf("%q is not a host", host)
	}
	return nil
}
