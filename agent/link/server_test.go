package link_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// TestServer_ReportAboveWhatWasProven ends that connection and moves nothing
// (fault 29).
func TestServer_ReportAboveWhatWasProven_I3_Fault29(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	m.fill(20)
	last, end := m.fill(1) // the last is not confirmed
	until(t, "the confirmed end", func() bool { return m.src.Ends().Confirmed == last })
	for name, r := range map[string]wirelink.Report{
		"above what is confirmed":    {Received: end, Verified: end, Flushed: 0},
		"absurd":                     {Received: 1 << 61, Verified: 1 << 61, Flushed: 1 << 61},
		"flushed more than verified": {Received: last, Verified: 0, Flushed: last},
	} {
		p := dialMaster(t, m, emptyHello("n"))
		p.send(&wirelink.Start{From: 0})
		p.upTo(last)
		p.send(&r)
		if code := p.goodbye(); code != wirelink.CodeProtocol {
			t.Errorf("%s: the connection ended with %v", name, code)
		}
		m.inReach(0)
		if got := m.table.Rank(1); got != wire.NoOffset {
			t.Errorf("%s: acked is %d", name, got)
		}
	}
	p := dialMaster(t, m, emptyHello("n"))
	p.send(&wirelink.Start{From: 0}, &wirelink.Report{Received: 0, Verified: last, Flushed: last})
	if code := p.goodbye(); code != wirelink.CodeProtocol && m.ackOf("n") > 0 {
		t.Errorf("before anything was sent: %v", code)
	}
}

// TestServer_OneNodeTwice: two connections of a node count once, and the older
// one is ended before the newer reports (fault 37).
func TestServer_OneNodeTwice_I4_Fault37(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(20)
	old := dialMaster(t, m, emptyHello("n"))
	old.send(&wirelink.Start{From: 0})
	old.upTo(end)
	old.send(&wirelink.Report{Received: end, Verified: end, Flushed: end})
	m.acked("n", end)
	young := dialMaster(t, m, emptyHello("n"))
	young.send(&wirelink.Start{From: 0})
	if code := old.goodbye(); code != wirelink.CodeSuperseded {
		t.Errorf("the older connection ended with %v", code)
	}
	if n, got := m.table.InReach(), m.ackOf("n"); n != 1 || got != wire.NoOffset {
		t.Errorf("%d nodes in reach, acked %d: the newer one has reported nothing", n, got)
	}
	if m.table.Rank(2) != wire.NoOffset {
		t.Error("one node counts twice")
	}
	young.upTo(end)
	young.send(&wirelink.Report{Received: end, Verified: end, Flushed: end})
	m.acked("n", end)
	if r := m.server.Replicas(); len(r) != 1 || r[0].Node != "n" || r[0].Verified != end || r[0].Lag != 0 || r[0].State != state.Streaming {
		t.Errorf("replicas are %+v", r)
	}
}

// TestServer_OneNodeManyTimesAtOnce connects over and over from several sides.
func TestServer_OneNodeManyTimesAtOnce_I4(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(5)
	done := make(chan struct{}, 4)
	for range cap(done) {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 25 {
				p := dialMaster(t, m, emptyHello("n"))
				p.send(&wirelink.Start{From: 0})
			}
		}()
	}
	for range cap(done) {
		<-done
	}
	p := dialMaster(t, m, emptyHello("n"))
	p.send(&wirelink.Start{From: 0})
	p.upTo(end)
	p.send(&wirelink.Report{Received: end, Verified: end, Flushed: end})
	m.acked("n", end)
	m.inReach(1)
	until(t, "one replica", func() bool { return len(m.server.Replicas()) == 1 })
}

// frame makes a frame with any header.
func frame(size uint32, typ byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, size)
	b = append(b, typ, 0, 0, 0, 0, 0, 0, 0)
	return append(b, payload...)
}

// TestServer_FramesOutOfTurn: each ends the connection by name, and none of them
// harms the next one (fault 24).
func TestServer_FramesOutOfTurn_Fault24(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(20)
	good := startSlave(t, m.addr, slaveOptions{})
	m.acked("slave", end)
	transfer := (&wirelink.Transfer{At: 0, Confirmed: 0, Body: []byte("x")}).Append(nil)
	for name, c := range map[string]struct {
		started bool
		bytes   []byte
	}{
		"transfer before the start":    {false, transfer},
		"report before the start":      {false, (&wirelink.Report{}).Append(nil)},
		"hello before the start":       {false, emptyHello("n").Append(nil)},
		"start of a stranger's offset": {false, (&wirelink.Start{From: end + 1}).Append(nil)},
		"hello in mid-transfer":        {true, emptyHello("n").Append(nil)},
		"transfer from a replica":      {true, transfer},
		"start again":                  {true, (&wirelink.Start{From: 0}).Append(nil)},
		"unknown type":                 {true, frame(0, 31, nil)},
		"type of no bit":               {true, frame(0, 200, nil)},
		"too long":                     {true, frame(0xffffffff, byte(wirelink.TypeReport), nil)},
		"wrong checksum":               {true, frame(24, byte(wirelink.TypeReport), make([]byte, 24))},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialMaster(t, m, emptyHello("n"))
			if c.started {
				p.send(&wirelink.Start{From: 0})
				p.upTo(end)
			}
			p.sendBytes(c.bytes)
			if code := p.goodbye(); code != wirelink.CodeProtocol {
				t.Errorf("the connection ended with %v", code)
			}
			m.inReach(1)
		})
	}
	end = m.grow(1)
	m.acked("slave", end)
	good.never(state.Connecting)
}

// TestServer_Rubbish connects 100 times with bytes that are no link: a good peer
// notices nothing, and nothing is kept (fault 4).
func TestServer_Rubbish_Fault4(t *testing.T) {
	m := startMaster(t, masterOptions{})
	end := m.grow(20)
	good := startSlave(t, m.addr, slaveOptions{})
	m.acked("slave", end)
	r := rand.New(rand.NewPCG(5, 6))
	greeting := wirelink.Greeting{Min: 1, Max: 1, Mode: wirelink.ModeNone}.Append(nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 100 {
		conn, err := net.Dial("tcp", m.addr)
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		switch i % 5 {
		case 0:
			for range r.IntN(300) {
				b = append(b, byte(r.Uint32()))
			}
		case 1:
			b = greeting[:r.IntN(len(greeting))]
		case 2:
			b = append(greeting, frame([]uint32{0xffffffff, 0x7fffffff, 1 << 20}[i%3], byte(1+i%16), nil)...)
		case 3:
			b = append(greeting, emptyHello("n").Append(nil)...)
			b = append(b, frame([]uint32{0xffffffff, 0x7fffffff, 1 << 20}[i%3], byte(1+i%16), nil)...)
		case 4:
			h := emptyHello("n").Append(nil)
			b = append(greeting, h[:r.IntN(len(h))]...)
		}
		if _, err := conn.Write(b); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Log(err) // it was closed before all was said
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	end = m.grow(5)
	m.acked("slave", end)
	m.inReach(1)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > int64(4*wire.MiB) {
		t.Errorf("%d bytes are held on to", grown)
	}
	good.never(state.Connecting)
}

// TestServer_SilentAndSlowPeers: who does not report, or does not read, is out of
// reach after Silence; others notice nothing.
func TestServer_SilentAndSlowPeersAreDropped(t *testing.T) {
	t.Parallel()
	timing := quick
	timing.Silence = 2 * time.Second
	m := startMaster(t, masterOptions{timing: timing})
	startSlave(t, m.addr, slaveOptions{})
	end := m.grow(2000)
	dialMaster(t, m, emptyHello("mute")) // never starts
	silent := dialMaster(t, m, emptyHello("silent"))
	silent.send(&wirelink.Start{From: 0})
	silent.upTo(end)
	slow := dialMaster(t, m, emptyHello("slow")) // never reads
	slow.send(&wirelink.Start{From: 0})
	slow.send(&wirelink.Report{Received: wire.NoOffset, Verified: wire.NoOffset, Flushed: wire.NoOffset})
	m.acked("slave", end)
	silent.goodbye()
	until(t, "the good one alone", func() bool {
		r := m.server.Replicas()
		return len(r) == 1 && r[0].Node == "slave" && m.table.InReach() == 1
	})
	m.acked("slave", m.grow(1))
}

// TestServer_AdmitRefusesInMidStream: a master that is none any more says so on
// every connection, under load too, and nobody waits for its replicas.
func TestServer_AdmitRefusesInMidStream(t *testing.T) {
	t.Parallel()
	var split atomic.Bool
	m := startMaster(t, masterOptions{admit: func() *state.Problem {
		if split.Load() {
			return state.Problemf(state.SplitBrain, "two_masters", "stop one of them", nil, "there is another master")
		}
		return nil
	}})
	s := startSlave(t, m.addr, slaveOptions{})
	end := m.grow(10)
	m.acked("slave", end)
	waited := make(chan acks.Result)
	go func() { waited <- m.table.Wait(t.Context(), end+1, 1) }()
	split.Store(true)
	if got := <-waited; got != acks.SlaveNotAvailable {
		t.Errorf("a wait ended with %s", got)
	}
	m.fill(10)
	s.untilState(state.Connecting)
	if got := s.store.Ends().Verified; got != end {
		t.Errorf("verified is %d, was %d", got, end)
	}
	split.Store(false)
	end = m.grow(10)
	m.acked("slave", end)
}

// TestServer_ReplicaThatLies says that it holds what it does not.
func TestServer_ReplicaThatLies_I3(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(50)
	h := emptyHello("liar")
	h.Min, h.Verified, h.Flushed = 0, end, end
	h.Digests = []wirelink.Digest{{At: end - 10, Size: 10}} // of what it has not
	p := dialMaster(t, m, h)
	if v := p.welcome.Verdicts; len(v) != 1 || v[0] != wirelink.Differs {
		t.Fatalf("verdicts are %v", v)
	}
	p.send(&wirelink.Start{From: end})
	if code := p.goodbye(); code != wirelink.CodeSourceChanged {
		t.Errorf("the connection ended with %v", code)
	}
	if got := m.table.Rank(1); got != wire.NoOffset {
		t.Errorf("acked is %d", got)
	}
}
