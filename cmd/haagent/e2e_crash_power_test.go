//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/brokertest"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

// forgetfulFS is a file system that can be stopped dead: what was not synced by
// then is gone when it is mounted again, as after a power cut.
type forgetfulFS struct {
	t          *testing.T
	image, dir string
	mounted    bool
}

func newForgetfulFS(t *testing.T) *forgetfulFS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("run this test as root: what a power cut leaves is found out on a loop mount (all others need no root)")
	}
	f := &forgetfulFS{t: t, image: filepath.Join(t.TempDir(), "image"), dir: t.TempDir()}
	if err := os.WriteFile(f.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(f.image, int64(512*wire.MiB)); err != nil {
		t.Fatal(err)
	}
	mustSay(t, "mkfs.ext4", "-q", "-F", f.image)
	f.mount()
	t.Cleanup(f.unmount)
	return f
}

// mount mounts the file system, which never writes anything back in time by itself
// unless it is asked to.
func (f *forgetfulFS) mount() {
	f.t.Helper()
	mustSay(f.t, "mount", "-o", "loop,commit=600", f.image, f.dir)
	f.mounted = true
}

func (f *forgetfulFS) unmount() {
	f.t.Helper()
	if f.mounted {
		mustSay(f.t, "umount", f.dir)
		f.mounted = false
	}
}

// restart makes what the disk has kept the file system from now on. It is a copy of
// the disk: the kernel has the stopped file system for as long as anybody's mount
// namespace has, and would mount that again.
func (f *forgetfulFS) restart() {
	f.t.Helper()
	f.unmount()
	next := filepath.Join(f.t.TempDir(), "image")
	mustSay(f.t, "cp", "--sparse=always", f.image, next)
	if err := os.Remove(f.image); err != nil {
		f.t.Fatal(err)
	}
	f.image = next
	f.mount()
}

const (
	shutdownRequest = 0x8004587d // _IOR('X', 125, __u32) of ext4 and xfs
	shutdownNoFlush = 2          // neither log nor data are written any more
)

// control runs f with a descriptor of the file system.
func (f *forgetfulFS) control(call func(fd int) error) {
	f.t.Helper()
	d, err := os.Open(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	defer d.Close()
	if err := call(int(d.Fd())); err != nil {
		f.t.Fatal(err)
	}
}

// sync writes everything back, as a kernel does now and then.
func (f *forgetfulFS) sync() { f.control(unix.Syncfs) }

// cut stops the file system. From then on it takes nothing. A sync that is under
// way may still say that all is well, which no machine without power does, so nobody
// may be there any more who hears of acks.
func (f *forgetfulFS) cut() {
	f.control(func(fd int) error { return unix.IoctlSetPointerInt(fd, shutdownRequest, shutdownNoFlush) })
}

// TestSyncMaster_PowerCut cuts the power of a replica with --ack disk, whose file
// system forgets what was not synced, and ends master agent and broker in the same
// moment. The broker's store is taken to be gone with them. What producers were told
// SEND_OK for is on the replica, which is opened and goes on; now and then a broker
// boots on it.
func TestSyncMaster_PowerCut(t *testing.T) {
	t.Parallel() // most of the time is waiting
	versions := brokertest.Versions()
	v := versions[len(versions)-1]
	rounds, boots := 3, 3 // a boot in every so manyth round
	if long() {
		rounds, boots = 30, 5
	}
	fs := newForgetfulFS(t)
	c := newCrashes(t, v, 1)
	c.slaves = []*haagent{c.startSlave(filepath.Join(fs.dir, "replica"), "s1", c.gossip(c.host), "--ack", "disk")}
	c.healthy()
	for c.rounds = 1; c.rounds <= rounds; c.rounds++ {
		c.cutPower(fs, c.rounds%boots == 0)
		if t.Failed() {
			return
		}
	}
	c.t.Logf("%d rounds, %d sends: %v", rounds, len(c.sent), brokertest.Statuses(c.sent))
}

// cutPower is one round.
func (c *crashes) cutPower(fs *forgetfulFS, boot bool) {
	c.t.Helper()
	s := c.slaves[0]
	stop := c.load()
	hold(c.t, time.Duration(500+c.r.IntN(1500))*time.Millisecond)
	if c.r.IntN(2) == 0 { // leaves on disk what is then not the latest
		fs.sync()
		hold(c.t, time.Duration(c.r.IntN(800))*time.Millisecond)
	}
	forgotten := writeUnsynced(c.t, fs.dir)
	c.master.kill()
	fs.cut()
	if boot {
		c.broker.Kill()
	}
	s.kill()
	sent := stop()
	c.sent = append(c.sent, sent...)
	c.t.Logf("round %d: %v", c.rounds, brokertest.Statuses(sent))
	fs.restart()
	if b, err := os.ReadFile(forgotten); err == nil && bytes.Equal(b, unsynced) {
		c.t.Fatal("a file that was not synced is there: the power cut is none")
	}
	c.checkHeld("after the power cut", 1, sent, s.dir)
	if boot {
		c.checkBoots(copyStore(c.t, s.dir))
		c.checkHeld("all that there ever was", 1, c.sent, s.dir)
		c.broker.Restart(c.t)
	}
	c.master = c.again(c.master)
	c.slaves[0] = c.again(s)
	c.slaves[0].waitState(state.Streaming)
	c.healthy()
	c.followed()
	c.checkSamePrefix(c.broker.Dir(), s.dir)
	c.checkHeld("after going on", 1, sent, s.dir)
}

var unsynced = bytes.Repeat([]byte("not synced"), 10_000)

// writeUnsynced writes a file that a power cut makes vanish, or leaves empty.
func writeUnsynced(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.CreateTemp(dir, "unsynced")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(unsynced); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// TestSyncMaster_PowerCutOfMemory is the other half of the proof: a replica that
// acks what it has in memory only does lose messages that producers were told
// SEND_OK for, if the source goes with it. So the power cuts of these tests are some.
func TestSyncMaster_PowerCutOfMemory(t *testing.T) {
	t.Parallel() // most of the time is waiting
	fs := newForgetfulFS(t)
	c := newCrashes(t, brokertest.Versions()[0], 1)
	c.slaves = []*haagent{c.startSlave(filepath.Join(fs.dir, "replica"), "s1", c.gossip(c.host), "--ack", "memory")}
	c.healthy()
	for c.rounds = 1; c.rounds <= 5; c.rounds++ {
		stop := c.load()
		hold(t, time.Duration(1000+c.r.IntN(1000))*time.Millisecond)
		c.master.kill()
		fs.cut()
		c.slaves[0].kill()
		sent := acked(stop())
		fs.restart()
		lost := 0
		for _, s := range sent {
			if held(c.slaves[0].dir, s) != nil {
				lost++
			}
		}
		t.Logf("%d of %d messages with SEND_OK are lost", lost, len(sent))
		if r, err := verify.Store(t.Context(), c.slaves[0].dir, nil); err != nil || r.SegmentSize != crashSegment {
			t.Fatalf("%+v, %v", r, err)
		}
		c.master = c.again(c.master)
		c.slaves[0] = c.again(c.slaves[0])
		c.healthy()
		c.followed()
		c.checkSamePrefix(c.broker.Dir(), c.slaves[0].dir)
		if lost > 0 {
			return
		}
	}
	t.Error("no message was ever lost")
}
