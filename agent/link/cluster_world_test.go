package link_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// world is a cluster and what must be true of it.
type world struct {
	t      *testing.T
	r      *rand.Rand
	m      *master
	nodes  []*node
	recent []string

	log      []byte         // every byte of the source's log, from offset 0
	boundary map[int64]bool // the ends of records and segments
	half     *half          // a message that is being stored
	begins   wire.PhyOffset // where the last record begins
	said     wire.PhyOffset // the broker's word, ever

	versions map[string]map[string]int // of config files: content to version, by name
	version  int

	waits    []*waiting
	messages int
	rolls    int
	restarts int
	answered int
}

// node is a slave behind its relay.
type node struct {
	*slave
	relay    *relay
	in       *metadata.Installer
	checked  wire.PhyOffset // how far its bytes were compared
	highest  wire.PhyOffset // verified ever
	acked    wire.PhyOffset // ever seen in the ack table
	versions map[string]int // of its config files
}

// half is a message of which only some parts are stored.
type half struct {
	part, next chan struct{}
	done       chan error
}

// waiting is a producer's wait for acks.
type waiting struct {
	offset wire.PhyOffset
	n      int
	result chan acks.Result
}

func (w *world) startMaster() {
	dir := filepath.Join(w.t.TempDir(), "source")
	end := func(context.Context) wire.PhyOffset { return w.m.w.End() }
	files := metadata.NewSnapshotter(metadata.SnapshotterOptions{Dir: dir, Interval: 100 * time.Millisecond, End: end})
	w.m = newMaster(w.t, masterOptions{dir: dir, settle: 5 * time.Millisecond, word: true, config: files, timing: clusterTiming})
	w.m.run()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- files.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) startNode(name string, ack replica.Ack) *node {
	n := &node{checked: wire.NoOffset, highest: wire.NoOffset, acked: wire.NoOffset, versions: map[string]int{}}
	n.relay = startRelay(w.t, func() string { return w.m.addr })
	dir := filepath.Join(w.t.TempDir(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	var err error
	if n.in, err = metadata.NewInstaller(dir, metadata.Options{}); err != nil {
		w.t.Fatal(err)
	}
	n.slave = newSlave(w.t, n.relay.addr, slaveOptions{dir: dir, node: name, ack: ack, timing: clusterTiming, offer: n.in.Offer, retention: true})
	n.run()
	return n
}

func (w *world) anyNode() *node { return w.nodes[w.r.IntN(len(w.nodes))] }

func (w *world) message() forge.Message {
	size := 2 * wire.KiB
	if w.r.IntN(50) == 0 {
		size = 40 * wire.KiB // more than is copied into one write
	}
	return forge.RandomMessage(w.r, forge.Variety{MaxSize: size, V2: true, IPv6: true, PropertyCRC: true, Transactions: true})
}

// sync takes what the broker has stored into the model.
func (w *world) sync() {
	end := w.m.w.End()
	for have := wire.PhyOffset(len(w.log)); have < end; have = wire.PhyOffset(len(w.log)) {
		base := have.SegmentBase(segmentSize)
		to := min(end, base.Add(segmentSize))
		b := make([]byte, to.Sub(have))
		f, err := os.Open(filepath.Join(w.m.opt.dir, "commitlog", commitlog.Name(base)))
		if err != nil {
			w.t.Fatal(err)
		}
		_, err = f.ReadAt(b, int64(have.Sub(base)))
		if err = errors.Join(err, f.Close()); err != nil {
			w.t.Fatal(err)
		}
		w.begins = have // unless it is a BLANK: then the log ends where a segment does
		w.log = append(w.log, b...)
		w.boundary[int64(to)] = true
		if to == base.Add(segmentSize) {
			w.rolls++
		}
	}
}

func (w *world) appendOne() {
	if w.half != nil {
		w.appendPart()
		return
	}
	if _, err := w.m.w.Append(w.message()); err != nil {
		w.t.Fatal(err)
	}
	w.messages++
	w.sync()
}

func (w *world) appendBurst() {
	w.endHalf()
	for range 5 + w.r.IntN(30) {
		w.appendOne()
	}
}

// appendPart stores the first part of a message, or the next one of the message
// that is begun, in any order.
func (w *world) appendPart() {
	h := w.half
	if h == nil {
		h = &half{part: make(chan struct{}), next: make(chan struct{}), done: make(chan error, 1)}
		order := forge.Parts()
		if w.r.IntN(2) == 0 {
			w.r.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
		}
		msg := w.message()
		w.half = h
		go func() {
			_, err := w.m.w.AppendSlowly(msg, func(string) { h.part <- struct{}{}; <-h.next }, order...)
			h.done <- err
		}()
	} else {
		h.next <- struct{}{}
	}
	select {
	case <-h.part:
	case err := <-h.done:
		w.half = nil
		w.messages++
		if err != nil {
			w.t.Error(err)
		}
	}
	w.sync()
}

func (w *world) endHalf() {
	for w.half != nil {
		w.appendPart()
	}
}

func (w *world) roll() {
	w.endHalf()
	if end := w.m.w.End(); end == end.SegmentBase(segmentSize) {
		return
	}
	if err := w.m.w.Roll(); err != nil {
		w.t.Fatal(err)
	}
	w.sync()
}

// drop expires the oldest segment, if nobody needs it any more: a replica that
// does would have to be set up anew.
func (w *world) drop() {
	next := w.m.w.Min().Add(segmentSize)
	for _, n := range w.nodes {
		if n.highest < next {
			return
		}
	}
	if w.half != nil {
		return
	}
	if _, err := w.m.w.DropOldest(); err != nil && !errors.Is(err, forge.ErrLastSegment) {
		w.t.Fatal(err)
	}
}

func (w *world) say() {
	if w.half == nil {
		w.said = w.m.w.End()
		w.m.word.say(w.said)
	}
}

// change stores other bytes in the place of a last record that nothing has
// confirmed: only time says that it is complete.
func (w *world) change() {
	end := w.m.w.End()
	empty := forge.Message{Topic: "changed", Properties: "a\x01b\x02"}
	n := end.Sub(w.begins) - empty.Size()
	if w.half != nil || w.said >= end || end == end.SegmentBase(segmentSize) || n < 0 {
		return
	}
	if w.r.IntN(2) == 0 { // give it the time to be shipped
		until(w.t, "a settled record", func() bool { return w.m.src.Ends().Settled >= end })
	}
	empty.Body = make([]byte, n)
	for i := range empty.Body {
		empty.Body[i] = byte(w.r.Uint32())
	}
	record := forge.AppendMessage(nil, empty, w.begins)
	copy(w.log[w.begins:], record)
	w.m.overwrite(w.begins, record)
}

var errDied = errors.New("the broker dies")

// writeConfig writes a config file in the way of one generation of brokers, and
// sometimes not to the end.
func (w *world) writeConfig() {
	w.version++
	name := []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json"}[w.r.IntN(3)]
	content := fmt.Sprintf(`{"dataVersion":{"counter":%d,"timestamp":%d},"table":{"a":{"version":%d}},"pad":%q}`, w.version, 1_700_000_000_000+w.version, w.version, make([]byte, w.r.IntN(3000)))
	if name == "consumerOffset.json" {
		content = fmt.Sprintf(`{"offsetTable":{"t@g":{0:%d}},"version":%d}`, w.m.w.End(), w.version)
	}
	w.putConfig(name, content, forge.Style(w.r.IntN(3)), w.r.IntN(4) == 0)
}

func (w *world) putConfig(name, content string, style forge.Style, dies bool) {
	if w.versions[name] == nil {
		w.versions[name] = map[string]int{}
	}
	w.versions[name][content] = w.version
	left := 1 + w.r.IntN(6)
	err := forge.WriteConfig(w.m.opt.dir, name, []byte(content), style, func(string) error {
		if left--; dies && left == 0 {
			return errDied
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDied) {
		w.t.Fatal(err)
	}
}

func (w *world) channel() wirelink.Channel {
	if w.r.IntN(4) == 0 {
		return wirelink.ChannelMetadata
	}
	return wirelink.ChannelLog
}

// spoil makes a link bad in one direction.
func (w *world) spoil() {
	var to rule
	switch w.r.IntN(7) {
	case 0:
		to.hold = true
	case 1:
		to.piece = 1 + w.r.IntN(100)
	case 2:
		to.piece, to.delay = 5000, time.Duration(w.r.IntN(5))*time.Millisecond
	case 3, 4:
		to.cut = 1 + w.r.IntN(20_000)
	case 5:
		to.flip = 1 + w.r.IntN(20_000)
	case 6:
		to.swap = true
	}
	w.anyNode().relay.set(w.channel(), w.r.IntN(2), to)
}

func (w *world) heal() { w.anyNode().relay.heal() }

func (w *world) cut() {
	n := w.anyNode()
	n.relay.setRefuse(w.r.IntN(4) == 0)
	n.relay.cut()
}

// wait asks for acks as a producer does, and does not wait for the answer.
func (w *world) wait() {
	at := wire.PhyOffset(len(w.log))
	if w.r.IntN(2) == 0 {
		at = max(0, at-wire.PhyOffset(w.r.IntN(5000)))
	}
	q := &waiting{offset: at, n: 1 + w.r.IntN(2), result: make(chan acks.Result, 1)}
	table, within := w.m.table, time.Duration(1+w.r.IntN(200))*time.Millisecond
	w.waits = append(w.waits, q)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		q.result <- table.Wait(ctx, q.offset, q.n)
	}()
}

// breathe waits until somebody gets on.
func (w *world) breathe() {
	moved, stop := w.anyNode().store.Listen()
	defer stop()
	limit := time.NewTimer(2 * time.Millisecond)
	defer limit.Stop()
	select {
	case <-moved:
	case <-limit.C:
	}
}

func (w *world) kill() {
	n := w.anyNode()
	n.kill()
	w.comeBack(n)
}

func (w *world) restart() {
	n := w.anyNode()
	n.stop()
	w.comeBack(n)
}

// comeBack starts a slave again: it has all that it has ever acked, and one that
// acks from memory all that it had verified.
func (w *world) comeBack(n *node) {
	w.restarts++
	n.opt.beside = w.r.IntN(2) == 0
	n.run()
	e := n.store.Ends()
	if e.Acked < n.acked || e.Verified < n.highest && n.opt.ack != replica.AckDisk {
		w.t.Errorf("I3: %s came back with %+v, it had verified %d and acked %d", n.opt.node, e, n.highest, n.acked)
	}
	n.highest, n.checked = min(n.highest, e.Verified), min(n.checked, e.Verified)
}

func (w *world) restartMaster() {
	w.restarts++
	w.m.stop()
	w.m.table.Close()
	w.m.run()
}

// catchUp heals everything and waits until all have everything.
func (w *world) catchUp() {
	w.endHalf()
	for _, n := range w.nodes {
		n.relay.heal()
	}
	w.say()
	end := w.m.w.End()
	for _, n := range w.nodes {
		until(w.t, n.opt.node+" acks "+end.String()+", it is "+string(n.last().state)+" "+n.problemText(), func() bool {
			n.poke()
			return w.m.ackOf(n.opt.node) == end
		})
	}
}
