package main

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

// askTimeout bounds each question to somebody else.
const askTimeout = 3 * time.Second

// broker asks the broker that the agent stands beside, or follows.
func (d *doctor) broker(ctx context.Context) {
	addr := d.cfg.Master
	if d.cfg.Role == agent.RoleMaster {
		addr = d.cfg.Broker
	}
	if addr == "" {
		return
	}
	b := stock.NewBroker(addr, stock.BrokerOptions{Credentials: d.cfg.Credentials, TLS: d.cfg.BrokerTLS, Timeout: askTimeout})
	defer b.Close()
	live, err := b.Config(ctx)
	if err != nil && state.AsProblem(err) == nil { // why a connection ends shows at the second one
		live, err = b.Config(ctx)
	}
	if err != nil {
		try := "start it, or give its listenPort as --broker (beside a master) or --master"
		if p := state.AsProblem(stock.BrokerProblem(addr, err)); p != nil {
			try, err = p.Try, p
		}
		d.found("broker", odd, try, "the broker at %s does not tell its configuration: %v", addr, err)
		return
	}
	d.live = &live
	version := ""
	if info, err := b.RuntimeInfo(ctx); err == nil {
		version = " " + info.Version
	}
	d.found("broker", fine, "", "%s%s: %s/%s/%d, %s, %s", addr, version, live.ClusterName, live.BrokerName, live.BrokerID, live.Role, live.FlushDiskType)
	d.guarantee(live)
	d.mode(live)
	if d.cfg.Role == agent.RoleMaster {
		d.file(live)
		d.reachable(ctx, live.HAListenPort)
	}
}

// guarantee says in words what SEND_OK means there.
func (d *doctor) guarantee(live stock.BrokerConfig) {
	f := stock.GuaranteeFacts{Broker: &live, RelayAcks: d.cfg.RelayAcks}
	if g := stock.GuaranteeOf(f); g.Waits {
		d.found("guarantee", fine, "", "%s", g.Text)
	} else if live.Role == "SYNC_MASTER" {
		d.found("guarantee", odd, "set inSyncReplicas=2 in broker.conf, and restart the broker", "%s", g.Text)
	} else {
		d.found("guarantee", fine, "", "%s", g.Text)
	}
}

// mode finds what haagent does not replicate.
func (d *doctor) mode(live stock.BrokerConfig) {
	unfit := func(text, try string) {
		d.findings = append(d.findings, finding{Check: "mode", Verdict: bad, Text: text, Try: try, exit: exitIncompatible})
	}
	switch {
	case live.Controller:
		unfit("the broker runs in controller mode, whose log stream is another protocol", "set enableControllerMode=false")
	case live.DLedger:
		unfit("the broker keeps a DLedger log, which is another format", "set enableDLegerCommitLog=false")
	}
	if live.ConfigRocksDB {
		d.found("config files", odd, "set configManagerVersion=v1 to have topics, groups and positions replicated", "the broker keeps topics and positions in RocksDB, and not in files that can be copied")
	}
	if want := d.cfg.SegmentSize; want != 0 && live.SegmentSize != 0 && want != live.SegmentSize {
		unfit("--segment-size is "+want.String()+", and the broker has segments of "+live.SegmentSize.String(), "leave --segment-size away")
	}
}

// file holds the broker's own file against what the broker says.
func (d *doctor) file(live stock.BrokerConfig) {
	if d.conf == nil {
		return
	}
	var differs []string
	for _, name := range []string{"brokerClusterName", "brokerName", "brokerRole", "inSyncReplicas", "mappedFileSizeCommitLog", "storePathRootDir", "storePathCommitLog", "listenPort", "haListenPort"} {
		if in := d.conf.Get(name); in != "" && live.Raw[name] != "" && in != live.Raw[name] {
			differs = append(differs, name)
		}
	}
	if len(differs) > 0 {
		d.found("broker.conf", odd, "restart the broker, or give the file that it was started with", "the broker runs with other values than %s has: %s", d.conf.Path, strings.Join(differs, ", "))
		return
	}
	d.found("broker.conf", fine, "", "the broker runs with what %s says", d.conf.Path)
}

// reachable tries the HA port at this host's other addresses: it asks nobody who
// he is.
func (d *doctor) reachable(ctx context.Context, port int) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	var open []string
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.IsLoopback() || ip.IP.IsLinkLocalUnicast() {
			continue
		}
		if at := net.JoinHostPort(ip.IP.String(), strconv.Itoa(port)); answersAt(ctx, at) {
			open = append(open, at)
		}
	}
	if len(open) > 0 {
		d.found("HA port", odd, "let a firewall pass only this host and its own slaves to that port", "the broker's HA port can be reached at %s: whoever gets there can read the whole log, and fake acks", strings.Join(open, ", "))
	}
}

func answersAt(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// store looks at the segments, and at what haagent remembers of them.
func (d *doctor) store() {
	dir := d.cfg.CommitLogDir
	if dir == "" {
		return
	}
	segments, err := commitlog.List(dir)
	switch {
	case err != nil:
		d.findings = append(d.findings, finding{Check: "store", Verdict: bad, Text: err.Error(), Try: "give the store root of a broker or replica as --dir", exit: exitIncompatible})
		return
	case len(segments) == 0:
		d.found("store", fine, "", "%s holds no segment yet, or is not there", dir)
		return
	}
	size, err := commitlog.GuessSegmentSize(segments)
	if err != nil {
		d.findings = append(d.findings, finding{Check: "store", Verdict: bad, Text: err.Error(), Try: "haagent verify " + d.cfg.Dir, exit: exitIncompatible})
		return
	}
	if d.live != nil && d.live.SegmentSize != 0 && d.live.SegmentSize != size {
		d.findings = append(d.findings, finding{Check: "store", Verdict: bad, exit: exitIncompatible,
			Text: dir + " holds segments of " + size.String() + ", and the broker writes such of " + d.live.SegmentSize.String(),
			Try:  "give another --dir, or set mappedFileSizeCommitLog as it was"})
		return
	}
	d.found("store", fine, "", "%s holds %d segments of %s", dir, len(segments), size)
	if st, err := replica.ReadState(d.cfg.Dir); err == nil && st.Promoted && d.cfg.Role == agent.RoleSlave {
		d.found("replica", odd, "haagent promote --dir "+d.cfg.Dir+" prints the broker's properties again", "the replica was promoted: it belongs to a broker")
	}
}

// Space below which a disk is about to be full.
const lowSpace = 10 // percent

func (d *doctor) disk() {
	dir := d.cfg.CommitLogDir
	if dir == "" || d.cfg.Role == agent.RoleObserver {
		return
	}
	var st syscall.Statfs_t
	for dir != filepath.Dir(dir) && errors.Is(syscall.Statfs(dir, &st), syscall.ENOENT) {
		dir = filepath.Dir(dir)
	}
	if st.Blocks == 0 {
		return
	}
	free := wire.ByteSize(st.Bavail * uint64(st.Bsize))
	percent := st.Bavail * 100 / st.Blocks
	text := humanize.IBytes(uint64(free)) + " (" + strconv.FormatUint(percent, 10) + "%) are free where " + dir + " is"
	if percent < lowSpace || free < 2*wire.GiB {
		d.found("disk", odd, "make room: at least two segments, and what the log grows by until old segments go", "only %s", text)
		return
	}
	d.found("disk", fine, "", "%s", text)
}

// home finds stores that a sandboxed unit cannot see.
func (d *doctor) home() {
	for _, top := range []string{"/home/", "/root/", "/run/user/"} {
		if strings.HasPrefix(d.cfg.Dir+"/", top) {
			d.found("sandbox", odd, "systemctl edit haagent, and write ProtectHome=no below [Service]", "%s is below %s, which the packaged unit hides from the agent (ProtectHome)", d.cfg.Dir, top)
		}
	}
}

// seeds tries the other agents.
func (d *doctor) seeds(ctx context.Context) {
	var silent []string
	seeds := d.set.List("join")
	for _, seed := range seeds {
		addr := seed
		if _, _, err := net.SplitHostPort(seed); err != nil {
			addr = net.JoinHostPort(strings.Trim(seed, "[]"), "7946")
		}
		if !answersAt(ctx, addr) {
			silent = append(silent, addr)
		}
	}
	slices.Sort(silent)
	switch {
	case len(seeds) == 0:
	case len(silent) == len(seeds):
		d.found("gossip", odd, "start the other agents, and let firewalls pass TCP and UDP of that port both ways", "nobody answers at %s", strings.Join(silent, ", "))
	case len(silent) > 0:
		d.found("gossip", odd, "start the agents that are missing", "%d of %d answer, and not %s", len(seeds)-len(silent), len(seeds), strings.Join(silent, ", "))
	default:
		d.found("gossip", fine, "", "%s", "all of "+strings.Join(seeds, ", ")+" answer")
	}
}
