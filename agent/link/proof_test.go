package link_test

import (
	"crypto/sha256"
	"testing"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// claim is the hello of who says that it holds the log up to verified.
func claim(node string, from, verified wire.PhyOffset, digests ...wirelink.Digest) *wirelink.Hello {
	h := emptyHello(node)
	h.Min, h.Verified, h.Flushed, h.Digests = from, verified, verified, digests
	return h
}

// honest is the digest of what the master really has.
func (m *master) honest(at, end wire.PhyOffset) wirelink.Digest {
	m.t.Helper()
	sum, err := m.src.Digest(at, end.Sub(at))
	if err != nil {
		m.t.Fatal(err)
	}
	return wirelink.Digest{At: at, Size: end.Sub(at), Sum: sum}
}

// TestServer_StartThatNothingProves: whoever says that it holds the log has to
// show it, before it is in reach (I3).
func TestServer_StartThatNothingProves_IsRefused_I3(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(200)
	junk := sha256.Sum256([]byte("junk"))
	for name, c := range map[string]struct {
		hello *wirelink.Hello
		want  wirelink.Code
	}{
		"no digests":                     {claim("liar", 0, end), wirelink.CodeProtocol},
		"a wrong digest of another end":  {claim("liar", 0, end, wirelink.Digest{At: 0, Size: 100, Sum: junk}), wirelink.CodeProtocol},
		"a right digest of another end":  {claim("liar", 0, end, m.honest(0, 100)), wirelink.CodeProtocol},
		"a wrong digest of the end":      {claim("liar", 0, end, wirelink.Digest{At: end - 1000, Size: 1000, Sum: junk}), wirelink.CodeSourceChanged},
		"a right one, and one that lies": {claim("liar", 0, end, m.honest(end-10, end), wirelink.Digest{At: end - 1000, Size: 1000, Sum: junk}), wirelink.CodeSourceChanged},
		"one that lies, and a right one": {claim("liar", 0, end, wirelink.Digest{At: end - 1000, Size: 1000, Sum: junk}, m.honest(end-10, end)), wirelink.CodeSourceChanged},
	} {
		t.Run(name, func(t *testing.T) {
			p := dialMaster(t, m, c.hello)
			p.send(&wirelink.Start{From: end}, &wirelink.Report{Received: end, Verified: end, Flushed: end})
			if code := p.goodbye(); code != c.want {
				t.Errorf("the connection ended with %v", code)
			}
			if m.table.Joins() != 0 {
				t.Error("it was in reach")
			}
		})
	}
	good := dialMaster(t, m, claim("good", 0, end, m.honest(0, 100), m.honest(end-1000, end)))
	good.send(&wirelink.Start{From: end}, &wirelink.Report{Received: end, Verified: end, Flushed: end})
	m.acked("good", end)
}

// TestServer_DigestOfADroppedSegment: a master that has dropped the segment before
// the newest one cannot compare over its end, and says so; the digest of the newest
// segment alone is enough.
func TestServer_DigestOfADroppedSegment_I3(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{start: wire.PhyOffset(segmentSize)})
	end := m.grow(5)
	older := wirelink.Digest{At: wire.PhyOffset(segmentSize - 1000), Size: wire.ByteSize(end) - segmentSize + 1000, Sum: sha256.Sum256([]byte("gone"))}
	p := dialMaster(t, m, claim("n", 0, end, older))
	p.send(&wirelink.Start{From: end})
	if code := p.goodbye(); code != wirelink.CodeSourceChanged {
		t.Errorf("the connection ended with %v", code)
	}
	p = dialMaster(t, m, claim("n", 0, end, m.honest(wire.PhyOffset(segmentSize), end), older))
	p.send(&wirelink.Start{From: end}, &wirelink.Report{Received: end, Verified: end, Flushed: end})
	m.acked("n", end)
}

// TestServer_NothingInCommon: what begins where nothing can be compared may start,
// and counts for nothing until it has some of what was sent (I3).
func TestServer_NothingInCommon_CountsForNothingBeforeBytes_I3(t *testing.T) {
	t.Parallel()
	const begin = wire.PhyOffset(4 * segmentSize)
	gone := wirelink.Digest{At: begin - 100, Size: 100, Sum: sha256.Sum256([]byte("gone"))}
	for name, hello := range map[string]*wirelink.Hello{
		"empty":                             emptyHello("n"),
		"verified is the master's min":      claim("n", 0, begin, gone),
		"the same without digests":          claim("n", 0, begin),
		"begun and nothing verified so far": claim("n", begin, begin),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMaster(t, masterOptions{start: begin})
			p := dialMaster(t, m, hello)
			p.send(&wirelink.Start{From: begin}, &wirelink.Report{Received: begin, Verified: begin, Flushed: begin})
			until(t, "the report", func() bool { return len(m.server.Replicas()) == 1 && m.server.Replicas()[0].State == state.Streaming })
			if got := m.ackOf("n"); got != wire.NoOffset {
				t.Errorf("I3: %d is acked, nothing was sent", got)
			}
			end := m.grow(5)
			p.upTo(end)
			p.send(&wirelink.Report{Received: end, Verified: end, Flushed: begin})
			m.acked("n", end)
			if n := m.table.Nodes()[0]; n.Marks.Disk != wire.NoOffset {
				t.Errorf("I3: %d is acked as flushed", n.Marks.Disk)
			}
		})
	}
}

// TestFollower_SourceHasDroppedAllButTheNewestSegment: the replica's end reaches
// into a segment that the source has no more, and it is acked at once all the same.
func TestFollower_SourceHasDroppedAllButTheNewestSegment(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(100)
	for end.Sub(end.SegmentBase(segmentSize)) < 8*wire.KiB || end.Sub(end.SegmentBase(segmentSize)) > 48*wire.KiB || end < wire.PhyOffset(segmentSize) {
		end = m.grow(1)
	}
	s := startSlave(t, m.addr, slaveOptions{retention: true})
	m.acked("slave", end)
	s.stop()
	for m.w.Min() < end.SegmentBase(segmentSize) {
		if _, err := m.w.DropOldest(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the new beginning", func() bool { return m.src.Ends().Min == m.w.Min() })
	s.run()
	m.acked("slave", end)
	s.never(state.Gap)
	s.never(state.Diverged)
	until(t, "its own new beginning", func() bool { return s.store.Ends().Min == m.w.Min() })
	s.stop()
	s.same(m.opt.dir, end)
}

// TestFollower_BegunWhereANewMasterHasMore: nothing was verified yet, so nothing
// has to be proven to a master whose log begins earlier.
func TestFollower_BegunAndNothingVerified_FollowsAMasterThatBeginsEarlier(t *testing.T) {
	t.Parallel()
	m := startMaster(t, masterOptions{})
	end := m.grow(300)
	base := wire.PhyOffset(segmentSize)
	addr, _ := fakeMaster(t, func(p *peer, _ wire.PhyOffset) {
		p.send(&wirelink.Transfer{At: base, Confirmed: 0, Body: make([]byte, 10)})
	})
	target := link.Target{Node: "fake", Addr: addr}
	s := startSlave(t, "", slaveOptions{target: func() (link.Target, error) { return target, nil }})
	until(t, "its beginning", func() bool { return !s.store.Empty() })
	s.stop()
	target = link.Target{Node: "master", Addr: m.addr}
	s.run()
	m.acked("slave", end)
	s.stop()
	s.same(m.opt.dir, end)
}
