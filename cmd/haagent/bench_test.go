package main_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// BenchmarkCatchUp lets three peers copy the log of one real, stock master in
// the same run, taking turns: a stock slave broker, haagent, and a reader that
// throws the bytes away. It prints the medians of the rates and their ratios;
// timing is not a test. The log is one segment, because a stock slave never
// asks for more than the last one.
func BenchmarkCatchUp(b *testing.B) {
	const version, rounds = brokertest.Version("4.9.7"), 5
	ns := brokertest.StartNameServer(b, version)
	master := brokertest.StartBroker(b, brokertest.BrokerOptions{Version: version, NameServer: ns.Addr,
		SegmentSize: wire.GiB, HeapMiB: 512, JVMFlags: []string{"-XX:TieredStopAtLevel=4"}})
	brokertest.StartDriver(b, version, ns.Addr).Send(b, brokertest.SendSpec{Topic: "bench", Count: 14_000, BodySize: 64 << 10, Threads: 2})
	end := sourceEnd(b, master.Addr())
	binary := filepath.Join(b.TempDir(), "haagent")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	rates := map[string][]float64{}
	var anonymous, pairAnonymous wire.ByteSize
	for range b.N {
		for range rounds {
			rates["discard"] = append(rates["discard"], discardAll(b, master.HAAddr(), end))
			rate, anon := haagentCatchUp(b, binary, end, "--master", master.Addr())
			rates["haagent"] = append(rates["haagent"], rate)
			anonymous = max(anonymous, anon)
			rate, anon = pairCatchUp(b, binary, master, end)
			rates["pair"] = append(rates["pair"], rate)
			pairAnonymous = max(pairAnonymous, anon)
			rates["stock"] = append(rates["stock"], stockCatchUp(b, version, ns.Addr, master.HAAddr(), end))
		}
	}
	stockRate, own, discard, pair := median(rates["stock"]), median(rates["haagent"]), median(rates["discard"]), median(rates["pair"])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(own/1e6, "haagent-MB/s")
	b.ReportMetric(stockRate/1e6, "stock-slave-MB/s")
	b.ReportMetric(discard/1e6, "discard-MB/s")
	b.ReportMetric(own/stockRate, "x-stock-slave")
	b.ReportMetric(own/discard, "x-discard")
	b.ReportMetric(float64(anonymous)/float64(wire.MiB), "anon-MiB")
	b.ReportMetric(pair/1e6, "pair-MB/s")
	b.ReportMetric(pair/stockRate, "pair-x-stock-slave")
	b.ReportMetric(float64(pairAnonymous)/float64(wire.MiB), "pair-anon-MiB")
}

func median(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}

func sourceEnd(b *testing.B, addr string) wire.PhyOffset {
	b.Helper()
	broker := stock.NewBroker(addr, stock.BrokerOptions{})
	defer broker.Close()
	info, err := broker.RuntimeInfo(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return info.MaxOffset
}

// discardAll reads the log from the HA port and keeps nothing.
func discardAll(b *testing.B, addr string, end wire.PhyOffset) float64 {
	b.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	if _, err := conn.Write(ha.AppendReport(nil, 1)); err != nil {
		b.Fatal(err)
	}
	var d ha.Decoder
	buf := make([]byte, 512<<10)
	for at := wire.PhyOffset(1); at < end; {
		n, err := conn.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		for in := buf[:n]; len(in) > 0; {
			used, ev, err := d.Next(in)
			if err != nil {
				b.Fatal(err)
			}
			in = in[used:]
			if ev.Kind == ha.Body {
				at = ev.PhyOffset.Add(wire.ByteSize(len(ev.Data)))
			}
		}
	}
	return float64(end) / time.Since(start).Seconds()
}

// pairCatchUp times a slave process that finds a master process by gossip: from
// its start to the last byte verified. The memory is the larger of the two.
func pairCatchUp(b *testing.B, binary string, master *brokertest.Broker, end wire.PhyOffset) (rate float64, anonymous wire.ByteSize) {
	b.Helper()
	gossip, http := brokertest.FreeAddr(b), brokertest.FreeAddr(b)
	side := exec.Command(binary, "--role", "master", "--dir", master.Dir(), "--broker", master.Addr(), "--gossip-bind", gossip, "--link-bind", "127.0.0.1:0", "--http", http)
	if err := side.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := errors.Join(side.Process.Kill(), ignoreExit(side.Wait())); err != nil {
			b.Error(err)
		}
	}()
	waitFor(b, func() bool {
		s, err := control.Dial(http).Status(b.Context())
		return err == nil && s.State == state.Serving && s.Offsets.Verified >= end
	})
	rate, anonymous = haagentCatchUp(b, binary, end, "--join", gossip, "--gossip-bind", "127.0.0.1:0")
	return rate, max(anonymous, rssAnon(side.Process.Pid))
}

func ignoreExit(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return nil
	}
	return err
}

// haagentCatchUp times a whole haagent process on an empty directory, from its
// start to the last byte verified.
func haagentCatchUp(b *testing.B, binary string, end wire.PhyOffset, source ...string) (rate float64, anonymous wire.ByteSize) {
	b.Helper()
	dir := b.TempDir()
	cmd := exec.Command(binary, append([]string{"--role", "slave", "--dir", dir, "--http", "127.0.0.1:0"}, source...)...)
	cmd.Stderr = io.Discard
	start := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	client := control.DialSocket(replica.AgentDir(dir))
	waitFor(b, func() bool {
		s, err := client.Status(b.Context())
		anonymous = max(anonymous, rssAnon(cmd.Process.Pid))
		return err == nil && s.Offsets.Verified >= end
	})
	rate = float64(end) / time.Since(start).Seconds()
	if err := cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		b.Fatal("haagent ended before it was killed")
	}
	if err := os.RemoveAll(dir); err != nil {
		b.Fatal(err)
	}
	return rate, anonymous
}

// stockCatchUp times a stock slave from the first byte that it has to the last
// one, so that the start of its JVM does not count.
func stockCatchUp(b *testing.B, version brokertest.Version, ns, masterHA string, end wire.PhyOffset) float64 {
	b.Helper()
	dir := b.TempDir()
	slave := brokertest.StartBroker(b, brokertest.BrokerOptions{Version: version, NameServer: ns, Role: "SLAVE", Dir: dir, MasterHA: masterHA,
		SegmentSize: wire.GiB, HeapMiB: 512, JVMFlags: []string{"-XX:TieredStopAtLevel=4"}})
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	}()
	defer slave.Kill()
	broker := stock.NewBroker(slave.Addr(), stock.BrokerOptions{})
	defer broker.Close()
	var first wire.PhyOffset
	var since, done time.Time
	waitFor(b, func() bool {
		info, err := broker.RuntimeInfo(b.Context())
		if err != nil || info.MaxOffset <= 0 {
			return false
		}
		if since.IsZero() {
			first, since = info.MaxOffset, time.Now()
		}
		done = time.Now()
		return info.MaxOffset >= end
	})
	return float64(end.Sub(first)) / done.Sub(since).Seconds()
}

// waitFor looks every 5 ms until done.
func waitFor(b *testing.B, done func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			b.Fatal("not done within a minute")
		case <-tick.C:
		}
	}
}

// rssAnon is the anonymous memory of a process; 0 where it has gone.
func rssAnon(pid int) wire.ByteSize {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	var kib int64
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %d kB", &kib); err == nil {
			return wire.ByteSize(kib) * wire.KiB
		}
	}
	return 0
}
