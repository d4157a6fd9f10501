package replica

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// TestI2_I3_PowerCut writes a replica in any rhythm and cuts the power: of all
// that was not synced, any pages and any directory entries may have reached the
// disk, in any of the versions that they have had. What was synced is there when
// the replica is opened again, nothing that is there differs from the source, and
// the replica becomes whole. The next process may be one of the same run of the
// kernel: a disk that drops out and comes back forgets as much.
func TestI2_I3_PowerCut(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		c := newPowerCut(t, parent)
		t.Repeat(map[string]func(*rapid.T){
			"append":      c.append,
			"append2":     c.append,
			"provisional": c.provisional,
			"verify":      c.verify,
			"verify2":     c.verify,
			"sync":        c.sync,
			"sync2":       c.sync,
			"save":        c.save,
			"discard":     c.discard,
			"drop":        c.dropBefore,
			"kill":        c.kill,
			"cut":         c.cut,
			"":            c.check,
		})
		c.cut(t)
		c.finish(t)
	})
}

// powerCut is a replica on a disk that forgets, and what it has promised.
type powerCut struct {
	parent string
	log    *sourceLog
	opt    Options
	disk   *forgetfulDisk
	s      *Store

	start    wire.PhyOffset // NoOffset until something was appended
	verified wire.PhyOffset // what a kill must leave
	synced   wire.PhyOffset // what a power cut must leave
	fake     bool           // a provisional message lies at the end that the source has changed since
}

func newPowerCut(t *rapid.T, parent string) *powerCut {
	size := wire.ByteSize(rapid.SampledFrom([]int{16384, 20480, 65536}).Draw(t, "segment"))
	start := wire.PhyOffset(size) * wire.PhyOffset(rapid.SampledFrom([]int64{0, 0, 3}).Draw(t, "start"))
	v := anyMessage
	v.MaxSize = wire.ByteSize(rapid.IntRange(1024, 7000).Draw(t, "largest"))
	c := &powerCut{parent: parent, start: wire.NoOffset, verified: wire.NoOffset, synced: wire.NoOffset}
	c.log = makeLogOf(rapid.Uint64().Draw(t, "seed"), size, start, rapid.IntRange(1, 60).Draw(t, "messages"), func(r *rand.Rand) forge.Message {
		return oddMessage(r, v)
	})
	c.opt = Options{SegmentSize: size, Ack: rapid.SampledFrom([]Ack{AckDisk, AckMemory}).Draw(t, "ack")}
	c.open(t, mustMkdir(t, parent))
	return c
}

// oddMessage makes up a message of which some properties, complete as they are,
// look like pages that never came.
func oddMessage(r *rand.Rand, v forge.Variety) forge.Message {
	m := forge.RandomMessage(r, v)
	if m.PropertyCRC {
		return m
	}
	switch r.IntN(8) {
	case 0:
		m.Properties = forge.AppendProperty(m.Properties, "blank", "\x00\x00\x00")
	case 1:
		m.Properties += "a\x01b\x00\x00"
	case 2: // long enough for a page of its own
		m.Properties = forge.AppendProperty(m.Properties, "long", string(bytes.Repeat([]byte("x"), 5000)))
	}
	return m
}

func (c *powerCut) open(t *rapid.T, dir string) {
	t.Helper()
	c.opt.Dir = dir
	if c.disk == nil || c.disk.dir != CommitLogDir(dir) {
		c.disk = newForgetfulDisk(t, dir)
	}
	c.opt.disk = c.disk
	c.s = openStore(t, c.opt)
	c.fake = false
}

func (c *powerCut) append(t *rapid.T) {
	if c.fake {
		c.discard(t)
	}
	if c.start == wire.NoOffset {
		if err := c.s.Begin(c.log.start); err != nil {
			t.Fatalf("begin: %v", err)
		}
		c.start = c.log.start
	}
	at := c.s.Ends().Written
	n := rapid.OneOf(rapid.IntRange(0, 3000), rapid.IntRange(0, int(2*c.log.size))).Draw(t, "bytes")
	next := min(at.Add(wire.ByteSize(n)), c.log.end())
	if err := c.s.Append(at, [][]byte{c.log.at(at, next)}); err != nil {
		t.Fatalf("append: %v", err)
	}
}

// provisional appends the next message, or another one that the source has in its
// place for a while, without the source's word for it.
func (c *powerCut) provisional(t *rapid.T) {
	e := c.s.Ends()
	if c.start == wire.NoOffset || e.Written != e.Verified || e.Written == c.log.end() {
		return
	}
	at := e.Written
	next := at + 1
	for c.log.boundary(next) != next {
		next++
	}
	b := c.log.at(at, next)
	if rapid.Bool().Draw(t, "fake") {
		m := oddMessage(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "message"), 5)), forge.Variety{MaxSize: 1024})
		if room := at.SegmentBase(c.log.size).Add(c.log.size).Sub(at); m.Size() > room {
			return
		}
		b, c.fake = forge.AppendMessage(nil, m, at), true
	}
	if err := c.s.ExpectProvisional(); err != nil {
		t.Fatalf("expect: %v", err)
	}
	if err := c.s.Append(at, [][]byte{b}); err != nil {
		t.Fatalf("append: %v", err)
	}
}

func (c *powerCut) verify(t *rapid.T) {
	if c.start == wire.NoOffset || c.fake {
		return
	}
	e := c.s.Ends()
	limit := e.Written
	if rapid.Bool().Draw(t, "part") {
		limit = wire.PhyOffset(rapid.Int64Range(int64(e.Verified), int64(e.Written)).Draw(t, "limit"))
	}
	if err := c.s.Verify(limit); err != nil {
		t.Fatalf("verify: %v", err)
	}
}

// sync is what Run does all the time, save what it does now and then.
func (c *powerCut) sync(t *rapid.T) {
	if err := c.s.sync(); err != nil {
		t.Fatalf("sync: %v", err)
	}
}

func (c *powerCut) save(t *rapid.T) {
	if err := c.s.saveState(); err != nil {
		t.Fatalf("save the state: %v", err)
	}
}

func (c *powerCut) discard(t *rapid.T) {
	if err := c.s.DropUnverified(); err != nil {
		t.Fatalf("drop unverified: %v", err)
	}
	c.fake = false
}

func (c *powerCut) dropBefore(t *rapid.T) {
	if c.s.Empty() {
		return
	}
	offset := wire.PhyOffset(rapid.Int64Range(int64(c.s.Ends().Min), int64(c.log.end())).Draw(t, "offset"))
	if _, err := c.s.DropBefore(offset); err != nil {
		t.Fatalf("drop: %v", err)
	}
}

// kill ends the process and starts the next one on the same page cache.
func (c *powerCut) kill(t *rapid.T) {
	kill(t, c.s)
	c.open(t, c.opt.Dir)
	must := c.verified
	if c.opt.Ack == AckDisk {
		must = c.synced
	}
	c.checkOpened(t, "a kill", must)
}

// cut cuts the power and starts a process on what the disk has kept.
func (c *powerCut) cut(t *rapid.T) {
	kill(t, c.s)
	dir := c.disk.survivor(t, c.parent, c.opt.Dir)
	if rapid.Bool().Draw(t, "new kernel") {
		changeState(t, dir, func(st *State) { st.Boot = "another" })
	}
	if err := os.RemoveAll(c.opt.Dir); err != nil {
		t.Fatalf("%v", err)
	}
	c.open(t, dir)
	c.checkOpened(t, "a power cut", c.synced)
}

func (c *powerCut) checkOpened(t *rapid.T, after string, must wire.PhyOffset) {
	t.Helper()
	e := checkEnds(t, c.s, c.log)
	if e.Verified < must && must > c.log.start { // nothing at all is as good as an empty segment
		t.Fatalf("%d after %s, but %d was promised", e.Verified, after, must)
	}
	if e.Verified > wire.NoOffset {
		checkPrefix(t, c.opt.Dir, c.log, e.Verified)
	}
	if e.Verified == wire.NoOffset {
		c.start = wire.NoOffset
	}
	c.verified, c.synced = e.Verified, e.Flushed
}

func (c *powerCut) check(t *rapid.T) {
	e := checkEnds(t, c.s, c.log)
	c.verified, c.synced = e.Verified, e.Flushed
	segmentsOf(t, c.opt.Dir, c.log.size)
	c.disk.remember(t, c.opt.Dir)
}

// finish feeds the rest: whatever was lost, a replica becomes whole.
func (c *powerCut) finish(t *rapid.T) {
	if c.start == wire.NoOffset {
		if err := c.s.Begin(c.log.start); err != nil {
			t.Fatalf("begin: %v", err)
		}
	}
	feed(t, c.s, c.log, c.s.Ends().Written, c.log.end())
	closeStore(t, c.s)
	checkPrefix(t, c.opt.Dir, c.log, c.log.end())
	if err := os.RemoveAll(c.opt.Dir); err != nil {
		t.Fatalf("%v", err)
	}
}

// changeState edits what a replica remembers.
func changeState(t tb, dir string, edit func(*State)) {
	t.Helper()
	st, err := ReadState(dir)
	if err != nil {
		t.Fatalf("state: %v", err)
	}
	edit(&st)
	if err := writeState(dir, st); err != nil {
		t.Fatalf("state: %v", err)
	}
}

func mustMkdir(t tb, parent string) string {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "store")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return dir
}
