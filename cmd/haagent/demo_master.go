package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/agent/forge"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire"
)

const (
	demoSegment wire.ByteSize = 8 * wire.MiB
	demoHistory               = 4 // segments written before anybody follows
)

// demoMaster is a stock master without Java: a writer that grows a store, and
// the two stock protocols in front of it.
type demoMaster struct {
	writer       *forge.Writer
	rate         wire.ByteSize
	ha, remoting net.Listener
	dir          string

	writing sync.Mutex // held while a batch is written
	paused  bool       // guarded by writing

	mu        sync.Mutex
	following bool                         // a slave has been in sync; from then on its acks are waited for
	waiting   map[wire.PhyOffset]time.Time // sync waits by the end of their message
	took      []time.Duration
	late      int
}

func newDemoMaster(ctx context.Context, dir string, rate wire.ByteSize) (*demoMaster, error) {
	m := &demoMaster{dir: dir, rate: rate, waiting: make(map[wire.PhyOffset]time.Time)}
	var err error
	if m.writer, err = forge.Open(forge.Options{Dir: dir, SegmentSize: demoSegment, Running: true}); err != nil {
		return nil, err
	}
	if err := m.prepare(ctx); err != nil {
		return nil, errors.Join(err, m.writer.Close())
	}
	return m, nil
}

// prepare writes the history and the config files, and opens the ports.
func (m *demoMaster) prepare(ctx context.Context) error {
	r := rand.New(rand.NewPCG(1, 0))
	for m.writer.End() < wire.PhyOffset(demoHistory*demoSegment) {
		if err := m.append(r); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"topics.json":            `{"dataVersion":{"counter":1,"timestamp":1700000000000},"topicConfigTable":{"demo":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"demo","topicSysFlag":0,"writeQueueNums":4}}}`,
		"subscriptionGroup.json": `{"dataVersion":{"counter":1,"timestamp":1700000000000},"subscriptionGroupTable":{}}`,
		"consumerOffset.json":    `{"offsetTable":{"demo@group":{0:12,1:9}}}`,
		"delayOffset.json":       `{"offsetTable":{}}`,
	} {
		if err := forge.WriteConfig(m.dir, name, []byte(content), forge.Style4x, nil); err != nil {
			return err
		}
	}
	var lc net.ListenConfig
	var err error
	if m.ha, err = lc.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("demo master: %w", err)
	}
	if m.remoting, err = lc.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return errors.Join(fmt.Errorf("demo master: %w", err), m.ha.Close())
	}
	return nil
}

// append writes one message of about 1 KiB with the present time.
func (m *demoMaster) append(r *rand.Rand) error {
	body := make([]byte, 512+r.IntN(1024))
	for i := range body {
		body[i] = byte(r.Uint32())
	}
	now := commitlog.Millis(time.Now().UnixMilli())
	_, err := m.writer.Append(forge.Message{
		Topic: "demo", QueueID: r.Int32N(4), QueueOffset: forge.NextQueueOffset, Body: body,
		BornTimestamp: now, StoreTimestamp: now, Properties: forge.AppendProperty("", "KEYS", strconv.Itoa(r.Int())),
	})
	return err
}

// Run writes and serves until ctx ends.
func (m *demoMaster) Run(ctx context.Context) error {
	logDir := m.dir + "/commitlog"
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.write(ctx) })
	group.Go(func() error {
		return stock.NewHAServer(stock.HAServerOptions{Listener: m.ha, CommitLogDir: logDir, SegmentSize: demoSegment,
			End: m.writer.End, OnReport: m.reported, OnClose: m.gone}).Run(ctx)
	})
	_, haPort, err := net.SplitHostPort(m.ha.Addr().String())
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(m.remoting.Addr().String())
	if err != nil {
		return err
	}
	group.Go(func() error {
		return stock.NewRemotingServer(stock.RemotingServerOptions{Listener: m.remoting, Dir: m.dir, CommitLogDir: logDir,
			SegmentSize: demoSegment, End: m.writer.End, Min: m.writer.Min, Config: map[string]string{
				"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "brokerRole": "SYNC_MASTER",
				"listenPort": port, "haListenPort": haPort, "mappedFileSizeCommitLog": strconv.FormatInt(int64(demoSegment), 10),
				"storePathCommitLog": logDir, "flushDiskType": "ASYNC_FLUSH",
			}}).Run(ctx)
	})
	return errors.Join(group.Wait(), m.writer.Close())
}

// demoStep is how often the writer writes, and lets one of its producers wait.
const demoStep = 10 * time.Millisecond

// write appends at the given rate until paused. Once a slave is in sync, one
// message of each step has a producer that waits for its ack.
func (m *demoMaster) write(ctx context.Context) error {
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	tick := time.NewTicker(demoStep)
	defer tick.Stop()
	last, debt := time.Now(), wire.ByteSize(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		debt += wire.ByteSize(float64(m.rate) * now.Sub(last).Seconds())
		last = now
		wrote, err := m.batch(r, &debt)
		if err != nil {
			return err
		}
		if wrote {
			m.wait(m.writer.End())
		}
	}
}

// batch writes what is due, unless paused.
func (m *demoMaster) batch(r *rand.Rand, debt *wire.ByteSize) (wrote bool, err error) {
	m.writing.Lock()
	defer m.writing.Unlock()
	for !m.paused && *debt > 0 {
		before := m.writer.End()
		if err := m.append(r); err != nil {
			return wrote, err
		}
		*debt -= m.writer.End().Sub(before)
		wrote = true
	}
	return wrote, nil
}

// pause ends writing; when it returns the log does not grow any more.
func (m *demoMaster) pause() {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.paused = true
}

// syncTimeout is how long a stock broker lets a producer wait.
const syncTimeout = 5 * time.Second

// wait notes a producer that waits for end to be acked.
func (m *demoMaster) wait(end wire.PhyOffset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, since := range m.waiting {
		if time.Since(since) > syncTimeout {
			m.late++
			delete(m.waiting, o)
		}
	}
	if m.following {
		m.waiting[end] = time.Now()
	}
}

// reported is called for each ack of the slave.
func (m *demoMaster) reported(_ net.Addr, off wire.PhyOffset, request bool) {
	if request {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for end, since := range m.waiting {
		if end <= off {
			m.took = append(m.took, time.Since(since))
			delete(m.waiting, end)
		}
	}
	if m.writer.End().Sub(off) < wire.MiB {
		m.following = true
	}
}

// gone answers those who wait as a broker does that has no slave any more.
func (m *demoMaster) gone(net.Addr, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.following = false
	clear(m.waiting)
}

func (m *demoMaster) waits() (answered, timedOut int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.took), m.late
}

// latency is how long the last sync wait took.
func (m *demoMaster) latency() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.took) == 0 {
		return 0
	}
	return m.took[len(m.took)-1]
}

func (m *demoMaster) percentile(p int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	sorted := slices.Sorted(slices.Values(m.took))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*p/100]
}
