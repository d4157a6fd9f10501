package link_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/wire"
)

// check holds the cluster against the invariants.
func (w *world) check() {
	w.t.Helper()
	w.checkAcks()
	for _, n := range w.nodes {
		w.checkLog(n)
		w.checkConfig(n)
	}
	w.checkWaits()
}

// checkAcks: what the table says was held before it said so (I3, I4).
func (w *world) checkAcks() {
	rows := w.m.table.Nodes()
	rank2, inReach := w.m.table.Rank(2), w.m.table.InReach()
	if inReach > len(w.nodes) || len(rows) > len(w.nodes) || w.m.table.Rank(3) != wire.NoOffset {
		w.t.Errorf("I4: %d in reach and %d rows of %d nodes", inReach, len(rows), len(w.nodes))
	}
	holds := 0
	for _, n := range w.nodes {
		e := n.store.Ends()
		for _, row := range rows {
			if row.Name != n.opt.node {
				continue
			}
			n.acked = max(n.acked, row.Acked)
			if row.Marks.Memory > e.Verified || row.Marks.Disk > e.Flushed || row.Acked > e.Acked {
				w.t.Errorf("I3: the table says %+v, %s has %+v", row, row.Name, e)
			}
		}
		if e.Verified >= rank2 {
			holds++
		}
	}
	if rank2 != wire.NoOffset && holds < 2 {
		w.t.Errorf("I4: %d is acked by two, %d of them have it", rank2, holds)
	}
}

// checkLog: the replica is a prefix of whole records (I1, I2) in segments that a
// broker boots on (I6).
func (w *world) checkLog(n *node) {
	w.t.Helper()
	e := n.store.Ends()
	verified := e.Verified
	if e.Verified < n.highest {
		w.t.Errorf("I2: %s went back from %d to %d", n.opt.node, n.highest, e.Verified)
	}
	n.highest = max(n.highest, e.Verified)
	if verified == wire.NoOffset || verified == n.checked {
		return
	}
	if !w.boundary[int64(verified)] {
		w.t.Errorf("I1: %s verified up to %d, where no record ends; the log ends at %d", n.opt.node, verified, len(w.log))
		return
	}
	from := max(n.checked, e.Min, 0)
	b := make([]byte, verified.Sub(from))
	if err := n.store.ReadAt(b, from); err != nil {
		if n.store.Ends().Min > from {
			return // dropped meanwhile: the next look begins there
		}
		w.t.Errorf("I2: %v", err)
		return
	}
	if want := w.log[from:verified]; !bytes.Equal(b, want) {
		w.t.Errorf("I2: %s has other bytes than the source between %d and %d", n.opt.node, from, verified)
	}
	n.checked = verified
	segments, err := commitlog.List(filepath.Join(n.opt.dir, "commitlog"))
	if err == nil {
		err = commitlog.CheckSegments(segments, segmentSize)
	}
	var hole *commitlog.HoleError
	if errors.As(err, &hole) { // the listing met a segment that was being dropped
		if segments, err = commitlog.List(filepath.Join(n.opt.dir, "commitlog")); err == nil {
			err = commitlog.CheckSegments(segments, segmentSize)
		}
	}
	if err != nil {
		w.t.Errorf("I6: %v", err)
	}
}

var (
	position = regexp.MustCompile(`\{0:(\d+)\}`)
	names    = []string{"topics.json", "subscriptionGroup.json", "consumerOffset.json"}
)

// checkConfig: config files are whole, never older, and never ahead of the log
// (I5).
func (w *world) checkConfig(n *node) {
	w.t.Helper()
	verified := n.store.Ends().Verified
	if _, err := n.in.Install(verified); err != nil {
		w.t.Errorf("I5: %v", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(n.opt.dir, "config", name))
		if errors.Is(err, fs.ErrNotExist) {
			if n.versions[name] > 0 {
				w.t.Errorf("I5: %s lost its %s", n.opt.node, name)
			}
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		version, ok := w.versions[name][string(b)]
		if !ok || version < n.versions[name] {
			w.t.Errorf("I5: %s has version %d of %s after %d, whole: %t", n.opt.node, version, name, n.versions[name], ok)
		}
		n.versions[name] = version
		if m := position.FindSubmatch(b); m != nil {
			if at, err := strconv.ParseInt(string(m[1]), 10, 64); err != nil || wire.PhyOffset(at) > max(verified, 0) {
				w.t.Errorf("I5: %s has positions of a log up to %d, and %d of it", n.opt.node, at, verified)
			}
		}
	}
}

// checkWaits: whoever was told PUT_OK really is held by so many.
func (w *world) checkWaits() {
	w.t.Helper()
	left := w.waits[:0]
	for _, q := range w.waits {
		select {
		case got := <-q.result:
			w.answered++
			if got == acks.PutOK {
				w.checkHeld(q)
			}
		default:
			left = append(left, q)
		}
	}
	w.waits = left
}

func (w *world) checkHeld(q *waiting) {
	holds := 0
	for _, n := range w.nodes {
		if e := n.store.Ends(); e.Acked >= q.offset {
			holds++
		}
	}
	if holds < q.n {
		w.t.Errorf("I4: PUT_OK for %d on %d nodes, %d have it", q.offset, q.n, holds)
	}
}

// finish heals everything: all are equal in the end, config files too.
func (w *world) finish() {
	w.t.Helper()
	w.endHalf()
	for _, name := range names {
		w.version++
		content := fmt.Sprintf(`{"dataVersion":{"counter":%d,"timestamp":%d},"last":{"a":1}}`, w.version, 1_700_000_000_000+w.version)
		if name == "consumerOffset.json" {
			content = fmt.Sprintf(`{"offsetTable":{"t@g":{0:%d}},"version":%d}`, w.m.w.End(), w.version)
		}
		w.putConfig(name, content, forge.Style4x, false)
	}
	w.appendOne()
	w.catchUp()
	for _, n := range w.nodes {
		until(w.t, "the config files", func() bool {
			w.checkConfig(n)
			for i, name := range names {
				if n.versions[name] != w.version-len(names)+1+i {
					return false
				}
			}
			return true
		})
	}
	w.check()
	for _, q := range w.waits {
		if <-q.result == acks.PutOK {
			w.checkHeld(q)
		}
	}
	end := w.m.w.End()
	for _, n := range w.nodes {
		n.stop()
		n.same(w.m.opt.dir, end)
	}
}

func (w *world) traffic() string {
	links, spoilt := 0, 0
	for _, n := range w.nodes {
		l, f := n.relay.counts()
		links, spoilt = links+l, spoilt+f
	}
	return fmt.Sprintf("%d connections, %d times bytes were spoilt", links, spoilt)
}
