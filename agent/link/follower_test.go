package link_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// messages returns the bytes of n messages from offset 0 on.
func messages(n int) []byte {
	r := rand.New(rand.NewPCG(7, 8))
	var b []byte
	for range n {
		b = forge.AppendMessage(b, forge.RandomMessage(r, forge.Variety{}), wire.PhyOffset(len(b)))
	}
	return b
}

// TestFollower_MasterThatBreaksTheRules: nothing of what it sends is acked, it is
// named, and the replica stays as it was (fault 22, 24).
func TestFollower_MasterThatBreaksTheRules_I3_Fault24(t *testing.T) {
	t.Parallel()
	log := messages(8)
	end := wire.PhyOffset(len(log))
	flipped := (&wirelink.Transfer{At: 0, Confirmed: end, Body: log}).Append(nil)
	flipped[len(flipped)-5] ^= 1
	bad := append([]byte(nil), log...)
	bad[35]++ // of the first message: another offset
	for name, c := range map[string]struct {
		code     string
		verified wire.PhyOffset // at most
		bytes    []byte
	}{
		"hello in mid-transfer":  {"bad_frame", end, append((&wirelink.Transfer{At: 0, Confirmed: end, Body: log}).Append(nil), emptyHello("m").Append(nil)...)},
		"unknown type":           {"bad_frame", 0, frame(0, 31, nil)},
		"too long":               {"bad_frame", 0, frame(0xffffffff, byte(wirelink.TypeTransfer), nil)},
		"changed on the way":     {"bad_frame", 0, flipped},
		"not where it was due":   {"offset_mismatch", 0, append((&wirelink.Transfer{At: 0, Confirmed: 0, Body: log[:100]}).Append(nil), (&wirelink.Transfer{At: 101, Confirmed: 0, Body: log[101:200]}).Append(nil)...)},
		"no start of a segment":  {"offset_mismatch", 0, (&wirelink.Transfer{At: 100, Confirmed: 0, Body: log[100:200]}).Append(nil)},
		"no message":             {"corrupt_message", 0, (&wirelink.Transfer{At: 0, Confirmed: end, Body: bad}).Append(nil)},
		"confirmed in a message": {"corrupt_message", end, (&wirelink.Transfer{At: 0, Confirmed: end - 1, Body: log}).Append(nil)},
		"confirmed end that fell": {"confirmed_fell", end, append((&wirelink.Transfer{At: 0, Confirmed: end, Body: log}).Append(nil),
			(&wirelink.Heartbeat{Min: 0, Confirmed: end - 1, Visible: end}).Append(nil)...)},
	} {
		for _, beside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, beside %t", name, beside), func(t *testing.T) {
				t.Parallel()
				addr, links := fakeMaster(t, func(p *peer, _ wire.PhyOffset) { p.sendBytes(c.bytes) })
				s := startSlave(t, addr, slaveOptions{beside: beside})
				s.untilTold(state.ProtocolError, c.code)
				if got := s.store.Ends().Verified; got > c.verified {
					t.Errorf("I3: verified up to %d", got)
				}
				if n := links(); n > 20 {
					t.Errorf("%d connections already", n)
				}
			})
		}
	}
}

// TestFollower_ProvisionalBytesAreNeverReported plays a master whose last record
// changes (I3).
func TestFollower_ProvisionalBytesAreNeverReported_I3(t *testing.T) {
	t.Parallel()
	log := messages(8)
	end := wire.PhyOffset(len(log))
	first := wire.PhyOffset(int(log[2])<<8 | int(log[3])) // the end of the first message
	reported := make(chan wirelink.Report, 1000)
	addr, _ := fakeMaster(t, func(p *peer, from wire.PhyOffset) {
		if from != 0 {
			t.Errorf("the second connection starts at %d", from)
		}
		p.send(&wirelink.Transfer{At: 0, Confirmed: first, Body: log[:first]})
		spoilt := append([]byte(nil), log[first:]...)
		spoilt[60]++
		p.send(&wirelink.Transfer{At: first, Confirmed: first, Body: spoilt})
		p.send(&wirelink.Transfer{At: first, Confirmed: end, Body: log[first:]})
		for {
			m, err := p.next()
			if err != nil {
				return
			}
			if r, ok := m.(*wirelink.Report); ok {
				reported <- *r
				if r.Verified == end {
					close(reported)
					return
				}
			}
		}
	})
	s := startSlave(t, addr, slaveOptions{})
	for r := range reported {
		if r.Verified != wire.NoOffset && r.Verified != 0 && r.Verified != first && r.Verified != end {
			t.Errorf("I3: reported %d", r.Verified)
		}
	}
	s.verified(end)
	s.never(state.ProtocolError)
}

// TestFollower_SilenceIsNoticed holds all bytes up in one direction or both
// without closing anything: both sides know within Silence, and go on later.
func TestFollower_SilenceIsNoticedByBothSides(t *testing.T) {
	t.Parallel()
	for name, held := range map[string][]int{"to the slave": {toSlave}, "to the master": {toMaster}, "both ways": {toSlave, toMaster}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timing := quick
			timing.Silence = 600 * time.Millisecond
			m := startMaster(t, masterOptions{timing: timing})
			r := startRelay(t, func() string { return m.addr })
			s := startSlave(t, r.addr, slaveOptions{timing: timing})
			end := m.grow(10)
			m.acked("slave", end)
			s.untilState(state.Streaming)
			for _, d := range held {
				r.set(wirelink.ChannelLog, d, rule{hold: true})
			}
			m.inReach(0)
			s.untilState(state.Connecting)
			end = m.grow(10)
			r.heal()
			m.acked("slave", end)
		})
	}
}

// TestFollower_QuietLinkLives has nothing but heartbeats for more than twice Silence,
// which is longer than a busy machine stands still (fault 39).
func TestFollower_QuietLinkLives_Fault39(t *testing.T) {
	t.Parallel()
	timing := link.Timing{Heartbeat: 5 * time.Millisecond, Silence: 4 * time.Second}
	m := startMaster(t, masterOptions{timing: timing})
	r := startRelay(t, func() string { return m.addr })
	s := startSlave(t, r.addr, slaveOptions{timing: timing})
	end := m.grow(3)
	m.acked("slave", end)
	before := r.bytes(toMaster)
	began := time.Now()
	until(t, "many reports", func() bool {
		return r.bytes(toMaster)-before > 100*36 && time.Since(began) > 2*timing.Silence+timing.Silence/4
	})
	if links, _ := r.counts(); links != 1 {
		t.Errorf("%d connections were made", links)
	}
	s.never(state.Connecting)
}

// TestFollower_TargetMoves follows another master when it is told to, and stays
// with the one it has while nobody knows.
func TestFollower_TargetMoves(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	a, b := startRelay(t, func() string { return m.addr }), startRelay(t, func() string { return m.addr })
	targets := make(chan link.Target, 1)
	unknown := errors.New("nobody is seen")
	targets <- link.Target{Node: "master", Addr: a.addr}
	s := startSlave(t, "", slaveOptions{target: func() (link.Target, error) {
		now := <-targets
		targets <- now
		if now.Addr == "" {
			return now, unknown
		}
		return now, nil
	}})
	end := m.grow(10)
	m.acked("slave", end)
	<-targets
	targets <- link.Target{}
	s.poke()
	end = m.grow(10)
	m.acked("slave", end)
	s.never(state.Connecting)
	<-targets
	targets <- link.Target{Node: "master", Addr: b.addr}
	s.poke()
	until(t, "the other way", func() bool { links, _ := b.counts(); return links > 0 })
	end = m.grow(10)
	m.acked("slave", end)
	if got := s.follower.Target(); got == nil || got.Addr != b.addr {
		t.Errorf("the target is %+v", got)
	}
}

// TestFollower_DiskThatFails takes the replica's directory away: the link closes,
// so that nobody waits for it, and the owner of the store is told (fault 36).
func TestFollower_DiskThatFails_Fault36(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("beside %t", beside), func(t *testing.T) {
			t.Parallel()
			diskFails(t, slaveOptions{beside: beside})
		})
	}
}

func diskFails(t *testing.T, o slaveOptions) {
	m := startMaster(t, masterOptions{})
	s := startSlave(t, m.addr, o)
	end := m.grow(5)
	m.acked("slave", end)
	logDir := filepath.Join(s.opt.dir, "commitlog")
	if err := os.Rename(logDir, logDir+"-away"); err != nil {
		t.Fatal(err)
	}
	m.fill(200)
	m.inReach(0)
	err := s.wait()
	if p := state.AsProblem(err); p == nil || p.State != state.IOError || !replica.MustReopen(err) {
		t.Errorf("the follower ended with %v", err)
	}
	if err := os.Rename(logDir+"-away", logDir); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.store.Abandon(), s.lock.Release()); err != nil {
		t.Fatal(err)
	}
	s.lock = nil
	s.run()
	end = m.grow(1)
	m.acked("slave", end)
	s.stop()
	s.same(m.opt.dir, end)
}

// TestFollower_RetentionFollows drops what the source dropped, under load too.
func TestFollower_RetentionFollows_Fault59(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	s := startSlave(t, m.addr, slaveOptions{ack: replica.AckDisk, retention: true})
	for range 3 {
		end := m.grow(200)
		m.acked("slave", end)
		for m.w.Min() < end.SegmentBase(segmentSize) {
			if _, err := m.w.DropOldest(); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "the same beginning", func() bool { return s.store.Ends().Min == m.w.Min() })
	}
	end := m.grow(1)
	m.acked("slave", end)
	s.stop()
	s.same(m.opt.dir, end)
}

// TestFollower_NodeNameTaken: the cure is named.
func TestFollower_NodeNameTaken_NamesTheCure_Fault37(t *testing.T) {
	t.Parallel()
	addr, _ := fakeMaster(t, func(p *peer, _ wire.PhyOffset) {
		p.send(&wirelink.Goodbye{Code: wirelink.CodeSuperseded})
	})
	s := startSlave(t, addr, slaveOptions{})
	s.untilProblem(state.Incompatible, "node_name_taken")
	until(t, "the cure", func() bool {
		p := state.AsProblem(s.last().err)
		return p != nil && strings.Contains(p.Try, "--node") && strings.Contains(p.Try, "--broker-id")
	})
}
