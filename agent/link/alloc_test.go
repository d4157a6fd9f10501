package link_test

import (
	"net"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// mallocs counts the allocations of the whole process while f runs.
func mallocs(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// allocSegment holds the whole log of these tests.
const allocSegment = 64 * wire.MiB

func allocMaster(t *testing.T, batch wire.ByteSize, security *link.Security) (*master, wire.PhyOffset) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	w, err := forge.Open(forge.Options{Dir: dir, SegmentSize: allocSegment})
	if err != nil {
		t.Fatal(err)
	}
	for w.End() < wire.PhyOffset(allocSegment/2) {
		if _, err := w.Append(forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: make([]byte, 4000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	src := source.New(source.Options{Dir: dir, SegmentSize: allocSegment, Authority: constant(w.End())})
	server := link.NewServer(link.ServerOptions{Listener: l, Security: security, Source: src, Acks: acks.NewTable(), Epoch: func() int64 { return 1 },
		Batch: batch, Self: link.Identity{Cluster: "c", BrokerName: "b", Node: "master"}})
	m := &master{t: t, addr: l.Addr().String(), opt: masterOptions{security: security}}
	m.background(src.Run, server.Run)
	t.Cleanup(func() { m.stop() })
	return m, w.End()
}

// TestAllocations_NonePerTransfer counts what a stream allocates on both sides:
// nothing that grows with the transfers.
func TestAllocations_NonePerTransfer(t *testing.T) {
	for name, batch := range map[string]wire.ByteSize{"copied": 4 * wire.KiB, "from the file": 20 * wire.KiB} {
		t.Run("sent "+name, func(t *testing.T) {
			m, end := allocMaster(t, batch, noSecurity(t))
			h := emptyHello("n")
			h.SegmentSize = allocSegment
			p := dialMaster(t, m, h)
			p.send(&wirelink.Start{From: 0})
			p.upTo(wire.PhyOffset(wire.MiB)) // warm
			transfers := 0
			n := mallocs(func() {
				for at := wire.PhyOffset(0); at < end; transfers++ {
					typ, payload, err := p.session.Reader().Next()
					if err != nil {
						t.Fatal(err)
					}
					if typ == wirelink.TypeTransfer {
						from, _, body, err := wirelink.ParseTransfer(payload)
						if err != nil {
							t.Fatal(err)
						}
						at = from.Add(wire.ByteSize(len(body)))
					}
				}
			})
			if per := float64(n) / float64(transfers); per > 0.2 {
				t.Errorf("%d allocations for %d transfers", n, transfers)
			}
		})
	}
	t.Run("received", func(t *testing.T) {
		const transfers = 4000
		var log []byte
		for len(log) < transfers*1000 {
			log = forge.AppendMessage(log, forge.Message{Topic: "t", Properties: "a\x01b\x02", Body: make([]byte, 400)}, wire.PhyOffset(len(log)))
		}
		end := wire.PhyOffset(len(log))
		warm, goOn := make(chan struct{}), make(chan struct{})
		addr, _ := fakeMasterOf(t, allocSegment, func(p *peer, _ wire.PhyOffset) {
			conn := p.session.Conn()
			for at := 0; at < len(log); at += 1000 {
				body := log[at:min(at+1000, len(log))]
				if _, err := conn.Write(append(wirelink.AppendTransfer(make([]byte, 0, 2000), wire.PhyOffset(at), 0, body), body...)); err != nil {
					return
				}
				if at == 100_000 {
					close(warm)
					<-goOn
				}
			}
			p.send(&wirelink.Heartbeat{Min: 0, Confirmed: end, Visible: end})
		})
		s := startSlave(t, addr, slaveOptions{segment: allocSegment, timing: link.Timing{Heartbeat: soon, Silence: 2 * soon}})
		<-warm
		n := mallocs(func() {
			close(goOn)
			s.verified(end)
		})
		// One a transfer is the fake master's own.
		if per := float64(n)/transfers - 1; per > 0.2 {
			t.Errorf("%d allocations for %d transfers", n, transfers)
		}
	})
}
