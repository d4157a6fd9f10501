//go:build linux

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"math/rand/v2"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

// seedVariable repeats the rounds of a crash test that has failed.
const seedVariable = "HAAGENT_CRASH_SEED"

// crashSegment is small, so that rounds are full of segments' ends.
const crashSegment = wire.MiB

// crashes is a synchronous master whose SEND_OK means that so many replicas have
// the message, and the account of what producers were told.
type crashes struct {
	*pair
	r      *rand.Rand
	acks   int // --relay-acks
	sent   []brokertest.Sent
	rounds int

	heirs *brokertest.Driver // a client of heirNS
	// Heirs do not register where producers of the others look.
	heirNS *brokertest.NameServer
}

func newCrashes(t *testing.T, v brokertest.Version, acks int) *crashes {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	t.Logf("%s=%d", seedVariable, seed)
	p := &pair{ring: newRing(t), version: v, ns: brokertest.StartNameServer(t, v)}
	p.broker = brokertest.StartBroker(t, brokertest.BrokerOptions{
		Version: v, NameServer: p.ns.Addr, SegmentSize: crashSegment, Role: "SYNC_MASTER",
		Properties: map[string]string{"inSyncReplicas": "2"}, // counts the master; 4.x does not know it
	})
	p.driver = brokertest.StartDriver(t, v, p.ns.Addr)
	p.host = p.ring.host()
	p.makeKey()
	p.startOwnMaster("--relay-acks", strconv.Itoa(acks))
	return &crashes{pair: p, acks: acks, r: rand.New(rand.NewPCG(seed, 1))}
}

// healthy waits until producers are told SEND_OK again.
func (c *crashes) healthy() {
	c.t.Helper()
	c.sent = append(c.sent, waitAnswer(c.t, c.driver, brokertest.StatusOK)...)
}

// load begins to send small messages and large ones; stop ends that and returns
// what became of them.
func (c *crashes) load() (stop func() []brokertest.Sent) {
	c.t.Helper()
	small := c.driver.StartSending(c.t, brokertest.SendSpec{Topic: "sync", Rate: 400, BodySize: 500 + c.r.IntN(3000), Threads: 4})
	large := c.driver.StartSending(c.t, brokertest.SendSpec{Topic: "sync", Rate: 4, BodySize: 100_000 + c.r.IntN(600_000)})
	return func() []brokertest.Sent { return append(small(), large()...) }
}

// again starts an agent that was killed as it was started before.
func (c *crashes) again(a *haagent) *haagent {
	c.t.Helper()
	return startProcess(c.t, testBinary(c.t), a.dir, a.cmd.Args[1:]...)
}

// acked returns what was told SEND_OK.
func acked(sent []brokertest.Sent) (ok []brokertest.Sent) {
	for _, s := range sent {
		if s.Status == brokertest.StatusOK {
			ok = append(ok, s)
		}
	}
	return ok
}

// checkHeld fails the test unless each message that was told SEND_OK lies whole
// in as many of the stores as that, looking at their files alone.
func (c *crashes) checkHeld(what string, replicas int, sent []brokertest.Sent, dirs ...string) {
	c.t.Helper()
	var wrong []string
	for _, s := range acked(sent) {
		var errs []error
		for _, dir := range dirs {
			if err := held(dir, s); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", filepath.Base(dir), err))
			}
		}
		if len(dirs)-len(errs) < replicas {
			wrong = append(wrong, fmt.Sprintf("%s at %d was told SEND_OK: %v", s.Key, s.PhyOffset, errors.Join(errs...)))
		}
	}
	same(c.t, fmt.Sprintf("round %d, %s", c.rounds, what), wrong)
}

// held returns an error unless a store has the message where its sender was told.
func held(dir string, s brokertest.Sent) error {
	base := s.PhyOffset.SegmentBase(crashSegment)
	f, err := os.Open(filepath.Join(dir, "commitlog", commitlog.Name(base)))
	if err != nil {
		return err
	}
	defer f.Close()
	var size [4]byte
	at := int64(s.PhyOffset.Sub(base))
	if _, err := f.ReadAt(size[:], at); err != nil {
		return err
	}
	n := wire.ByteSize(binary.BigEndian.Uint32(size[:]))
	if n < commitlog.MinRecord || n > crashSegment {
		return fmt.Errorf("no message of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	var rec commitlog.Record
	if err := commitlog.Parse(b, s.PhyOffset, base.Add(crashSegment), &rec); err != nil {
		return err
	}
	sum := sha256.Sum256(rec.Body)
	if key, _ := rec.Property("KEYS"); string(key) != s.Key || hex.EncodeToString(sum[:]) != s.BodySHA256 {
		return fmt.Errorf("message %s of %d bytes instead", key, len(rec.Body))
	}
	return nil
}

// checkSamePrefix fails the test unless the replica's log is the beginning of the
// source's, or the other way round. A broker that was killed while it stored a
// message does not erase the part that it cuts off: behind what it has written
// since, the rest of that may still lie.
func (c *crashes) checkSamePrefix(source, dir string) {
	c.t.Helper()
	r, err := verify.Compare(c.t.Context(), source, dir, nil)
	if bad := r.A.Bad; bad != nil && bad.PhyOffset == r.A.End && r.A.End >= r.B.End {
		c.t.Logf("round %d: behind its log the source has %+v", c.rounds, *bad)
		r.A.Bad = nil
	}
	if err != nil || !r.Same() || r.IdenticalTo != min(r.A.End, r.B.End) {
		c.t.Errorf("round %d: %s and %s: %+v, damage %+v and %+v, %v", c.rounds, source, dir, r, r.A.Bad, r.B.Bad, err)
	}
}

// followed waits until all slaves have all that producers were told SEND_OK for.
func (c *crashes) followed() {
	c.t.Helper()
	last := wire.NoOffset
	for _, s := range acked(c.sent) {
		last = max(last, s.PhyOffset)
	}
	for _, s := range c.slaves {
		s.waitStatus("the message at "+last.String(), func(st control.Status) bool {
			return st.State == state.Streaming && st.Offsets.Verified > last
		})
	}
}

// copyStore copies a store that nobody writes to.
func copyStore(t *testing.T, from string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", "--sparse=always", "--reflink=auto", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", from, err, out)
	}
	return to
}

// checkBoots hands a replica over, which nobody uses, and boots an unmodified
// broker on it. Each message that was told SEND_OK is served once, as it was sent.
func (c *crashes) checkBoots(dir string) {
	c.t.Helper()
	stdout, stderr, code := haagentCommand(c.t, "promote", "--dir", dir, "--yes")
	if code != exitOK {
		c.t.Fatalf("promote ended with %d: %s%s", code, stdout, stderr)
	}
	checkBootContract(c.t, dir)
	if c.heirNS == nil {
		c.heirNS = brokertest.StartNameServer(c.t, c.version)
		c.heirs = brokertest.StartDriver(c.t, c.version, c.heirNS.Addr)
	}
	heir := brokertest.StartBroker(c.t, brokertest.BrokerOptions{Version: c.version, NameServer: c.heirNS.Addr, Dir: dir, SegmentSize: crashSegment})
	defer heir.Kill()
	want := acked(c.sent)
	got := make(map[string][]brokertest.Message)
	for _, m := range c.heirs.PullFrom(c.t, heir.Addr(), "sync", len(want)) {
		got[m.Keys] = append(got[m.Keys], m)
	}
	var wrong []string
	for _, s := range want {
		if m := got[s.Key]; len(m) != 1 || m[0].BodySHA256 != s.BodySHA256 || m[0].PhyOffset != s.PhyOffset {
			wrong = append(wrong, fmt.Sprintf("%s at %d was told SEND_OK; consumed: %+v", s.Key, s.PhyOffset, m))
		}
	}
	same(c.t, fmt.Sprintf("round %d, the heir %s", c.rounds, filepath.Base(dir)), wrong)
	c.t.Logf("round %d: a broker booted on a replica, %d messages with SEND_OK consumed", c.rounds, len(want))
}

// furthest returns the store whose log goes on the longest.
func furthest(t *testing.T, dirs ...string) (best string) {
	t.Helper()
	most := wire.NoOffset
	for _, dir := range dirs {
		r, err := verify.Store(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.End > most {
			most, best = r.End, dir
		}
	}
	return best
}

// mustSay runs a program of the system.
func mustSay(t *testing.T, name string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out.String())
	}
}
