package agent_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/ha"
)

// beside is a master agent beside a log that a test writes, with no broker: what
// is confirmed is all but the last record.
type beside struct {
	*served
	dir    string
	writer *forge.Writer
	random *rand.Rand
}

func newBeside(t *testing.T, w *town, edit func(*agent.Config)) *beside {
	t.Helper()
	b := &beside{dir: t.TempDir(), random: rand.New(rand.NewPCG(3, 4))}
	var err error
	if b.writer, err = forge.Open(forge.Options{Dir: b.dir, SegmentSize: 256 * wire.KiB, Garbage: b.random}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.writer.Close(); err != nil {
			t.Error(err)
		}
	})
	b.grow(t, 100)
	cfg := agent.Config{Role: agent.RoleMaster, Node: "m", Cluster: "c", BrokerName: "b", Dir: b.dir, Broker: "127.0.0.1:1",
		HABind: "127.0.0.1:0", RemotingBind: "127.0.0.1:0", TailSettle: -1}
	if edit != nil {
		edit(&cfg)
	}
	b.served = runAgent(t, w, cfg)
	return b
}

// grow stores some messages.
func (b *beside) grow(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := b.writer.Append(forge.RandomMessage(b.random, forge.Variety{})); err != nil {
			t.Fatal(err)
		}
	}
}

// cut erases the log from the record behind an offset on, as a broker does that
// lost its tail.
func (b *beside) cut(t *testing.T, behind wire.PhyOffset) {
	t.Helper()
	base := behind.SegmentBase(256 * wire.KiB)
	path := filepath.Join(b.writer.CommitLogDir(), commitlog.Name(base))
	view, err := commitlog.OpenView(path)
	if err != nil {
		t.Fatal(err)
	}
	at := base
	for at < behind {
		at = at.Add(wire.ByteSize(commitlog.LoadSize(view.Bytes()[at.Sub(base):])))
	}
	if err := view.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, base.Add(256*wire.KiB).Sub(at)), int64(at.Sub(base))); err != nil {
		t.Fatal(err)
	}
}

func (b *beside) confirmed() wire.PhyOffset { return b.Status().Offsets.Verified }

// awaitServed waits until the log is known and served, and returns its end.
func (b *beside) awaitServed(t *testing.T) wire.PhyOffset {
	t.Helper()
	eventually(t, "the log is known", func() bool { return b.Status().State == state.Serving && b.confirmed() > 0 })
	addr, _ := b.ports()
	// Before that, who connects is turned away, and comes again.
	eventually(t, "the log is served", func() bool { return answers(addr) })
	b.awaitAcked(t, "")
	return b.confirmed()
}

// answers reports whether a slave that asks for the log gets something.
func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(time.Second)) != nil {
		return false
	}
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, 1)); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, make([]byte, ha.HeaderSize))
	return err == nil
}

// fakeSlave is a stock slave as seen from the HA port.
type fakeSlave struct {
	t    testing.TB
	conn *net.TCPConn
	next wire.PhyOffset // of what comes
}

// follow connects from an address and asks for an offset.
func follow(t testing.TB, addr, from string, request wire.PhyOffset) *fakeSlave {
	t.Helper()
	s := &fakeSlave{t: t, conn: dial(t, addr, from), next: request}
	s.report(request)
	return s
}

func (s *fakeSlave) report(off wire.PhyOffset) {
	s.t.Helper()
	extend(s.t, s.conn)
	if _, err := s.conn.Write(binary.BigEndian.AppendUint64(nil, uint64(off))); err != nil {
		s.t.Fatal(err)
	}
}

// take reads frames until it has everything below an offset.
func (s *fakeSlave) take(end wire.PhyOffset) {
	s.t.Helper()
	extend(s.t, s.conn)
	for s.next < end {
		if err := s.frame(); err != nil {
			s.t.Fatalf("after %d of %d: %v", s.next, end, err)
		}
	}
}

func (s *fakeSlave) frame() error {
	var head [ha.HeaderSize]byte
	if _, err := io.ReadFull(s.conn, head[:]); err != nil {
		return err
	}
	at := wire.PhyOffset(binary.BigEndian.Uint64(head[:]))
	size := binary.BigEndian.Uint32(head[8:])
	if at != s.next || size > 32<<10 {
		return fmt.Errorf("a frame of %d bytes at %d, want one at %d", size, at, s.next)
	}
	if _, err := io.CopyN(io.Discard, s.conn, int64(size)); err != nil {
		return err
	}
	s.next = s.next.Add(wire.ByteSize(size))
	return nil
}

// ended waits for the end of the connection.
func (s *fakeSlave) ended() {
	s.t.Helper()
	for {
		err := s.frame()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
			return
		}
		if err != nil {
			s.t.Fatalf("the connection did not end: %v", err)
		}
	}
}

// acked is what the status says of stock slaves, by node.
func (b *beside) acked() string {
	var out []string
	for _, r := range b.stockReplicas() {
		out = append(out, fmt.Sprintf("%s %d", r.Node, r.Acked))
	}
	return strings.Join(out, ", ")
}

func (b *beside) awaitAcked(t *testing.T, want string) {
	t.Helper()
	eventually(t, "acks are "+want, func() bool { return b.acked() == want })
}

// The first report is a request and no ack; later ones count by host, however
// many connections it has, and never for more than was sent (I3, I4).
func TestStockHA_AcksCountByHost_I3_I4(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), func(c *agent.Config) { c.HAAllow = allow(t, "127.0.0.0/8") })
	addr, _ := b.ports()
	end := b.awaitServed(t)
	first := follow(t, addr, "127.0.0.2", 1)
	first.take(end)
	b.awaitAcked(t, "127.0.0.2 -1")
	if got := b.Status().Offsets.Acked; got != wire.NoOffset {
		t.Errorf("a request counts as an ack of %d", got)
	}
	first.report(end - 100)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.2 %d", end-100))
	second := follow(t, addr, "127.0.0.2", end-50)
	second.take(end)
	second.report(end)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.2 %d", end))
	first.report(end - 10) // is the older one
	third := follow(t, addr, "127.0.0.3", 1)
	third.take(end)
	third.report(end - 7)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.2 %d, 127.0.0.3 %d", end, end-7))
	if got := b.Status().Offsets.Acked; got != end {
		t.Errorf("%d is acked by one node, want %d", got, end)
	}
	second.conn.Close()
	eventually(t, "the older connection counts no more by itself", func() bool {
		return b.acked() == fmt.Sprintf("127.0.0.3 %d", end-7)
	})
	first.report(end - 5)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.2 %d, 127.0.0.3 %d", end-5, end-7))
	first.conn.Close()
	third.conn.Close()
	b.awaitAcked(t, "")
}

// A report above the confirmed end closes its connection and moves nothing, and
// neither does a request above it, even where the log grows beyond it later.
func TestStockHA_MoreThanThereIs_I3(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), nil)
	addr, _ := b.ports()
	end := b.awaitServed(t)
	liar := follow(t, addr, "", 1)
	liar.take(end)
	liar.report(end - 1)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.1 %d", end-1))
	liar.report(end + 1<<20)
	liar.ended()
	b.awaitAcked(t, "")
	ahead := follow(t, addr, "", end+1<<30)
	ahead.ended()
	if got := b.acked(); got != "" {
		t.Errorf("acks are %s", got)
	}
	if log := b.log.String(); !strings.Contains(log, "asks for more than there is") || !strings.Contains(log, "reports more than there is") {
		t.Errorf("the log says nothing of it: %s", log)
	}
}

// A slave that has nothing asks for 0 and gets everything, and not the last
// segment alone, as a broker would give it.
func TestStockHA_NewSlaveGetsAll(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), nil)
	for b.writer.End() < wire.PhyOffset(600*wire.KiB) {
		b.grow(t, 10)
	}
	ha, _ := b.ports()
	end := b.awaitServed(t)
	s := follow(t, ha, "", 0)
	s.take(end)
	s.report(end)
	b.awaitAcked(t, "127.0.0.1 "+end.String())
}

// A slave that is a little ahead just after the start of the agent is let in once
// its bytes are confirmed.
func TestStockHA_WaitsForConfirmation(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), nil)
	addr, _ := b.ports()
	end := b.awaitServed(t)
	visible := b.Status().Offsets.Received
	if visible <= end {
		t.Fatalf("the last record is confirmed: %d of %d", end, visible)
	}
	s := follow(t, addr, "", visible)
	b.grow(t, 2)
	eventually(t, "more is confirmed", func() bool { return b.confirmed() > visible })
	now := b.confirmed()
	s.take(now)
	s.report(now)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.1 %d", now))
}

// Nothing above the confirmed end is sent (I1): the last record waits for the
// next one.
func TestStockHA_LastRecordWaits_I1(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), nil)
	addr, _ := b.ports()
	end := b.awaitServed(t)
	s := follow(t, addr, "", 1)
	s.take(end)
	if err := s.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := s.frame(); err == nil {
		t.Errorf("%d bytes above the confirmed end were sent", s.next.Sub(end))
	}
	if s.next != end {
		t.Errorf("%d is sent of %d", s.next, end)
	}
}

// When the log loses what was served, all streams end, and what was acked of it
// counts no more.
func TestStockHA_StreamsEndWithTheLog(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), nil)
	addr, _ := b.ports()
	end := b.awaitServed(t)
	s := follow(t, addr, "", 1)
	s.take(end)
	s.report(end)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.1 %d", end))
	b.cut(t, end-wire.PhyOffset(2*wire.KiB))
	s.ended()
	b.awaitAcked(t, "")
	eventually(t, "the shorter log is served", func() bool {
		shorter := b.confirmed()
		if shorter <= 0 || shorter >= end {
			return false
		}
		again := follow(t, addr, "", 1)
		defer again.conn.Close()
		for again.next < shorter {
			if again.frame() != nil { // the log was looked at once more: slaves come back
				return false
			}
		}
		return true
	})
}

// A master that is none any more serves no stock slave, and acks nothing.
func TestStockHA_RivalEndsIt(t *testing.T) {
	t.Parallel()
	w := newTown()
	b := newBeside(t, w, nil)
	addr, _ := b.ports()
	end := b.awaitServed(t)
	s := follow(t, addr, "", 1)
	s.take(end)
	s.report(end)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.1 %d", end))
	w.change("n", func(m *agent.Member) {
		m.Role, m.Cluster, m.BrokerName, m.Status, m.Link = "master", "c", "b", "alive", "10.0.0.1:10915"
	})
	s.ended()
	b.awaitAcked(t, "")
	dialled, err := net.DialTimeout("tcp", addr, patience)
	if err == nil {
		late := &fakeSlave{t: t, conn: dialled.(*net.TCPConn)}
		if err := late.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		late.ended()
		dialled.Close()
	}
	w.change("n", func(m *agent.Member) { m.Status = "left" })
	eventually(t, "slaves are served again", func() bool { return answers(addr) })
}

// The status shows a stock slave as it shows agents, and haagent wait counts it.
func TestStockHA_IsInTheStatus(t *testing.T) {
	t.Parallel()
	b := newBeside(t, newTown(), nil)
	addr, _ := b.ports()
	end := b.awaitServed(t)
	s := follow(t, addr, "", 1)
	s.take(end)
	s.report(end)
	b.awaitAcked(t, fmt.Sprintf("127.0.0.1 %d", end))
	row := b.stockReplicas()[0]
	if row.State != state.Streaming || row.LagBytes != 0 || row.Ack != "memory" || row.Flushed != wire.NoOffset {
		t.Errorf("the status says %+v", row)
	}
}
