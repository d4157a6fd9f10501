package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
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

// How often the writer writes, how long it may do so at a time, and how often
// the broker persists a config file.
const (
	demoStep       = 10 * time.Millisecond
	demoBatch      = 5 * demoStep
	demoConfigStep = 500 * time.Millisecond
)

// demoBroker is a broker without Java: a writer that grows a store as brokers do,
// and the two stock protocols, by which the agent beside a broker asks it where
// its log ends.
type demoBroker struct {
	dir          string
	rate         wire.ByteSize // to write in a second
	writer       *forge.Writer
	ha, remoting net.Listener

	random *rand.ChaCha8
	draw   *rand.Rand
	body   [1536]byte

	writing, persisting sync.Mutex                 // held while messages, or config files, are written
	paused              bool                       // guarded by both
	wrote               func(end wire.PhyOffset)   // guarded by writing
	ears                map[chan struct{}]struct{} // of who wants to know that it was written; guarded by writing
}

// newDemoBroker writes a history of so many segments and the config files, and
// opens the ports.
func newDemoBroker(ctx context.Context, dir string, rate wire.ByteSize, history int) (*demoBroker, error) {
	b := &demoBroker{dir: dir, rate: rate, random: rand.NewChaCha8([32]byte{1}), ears: make(map[chan struct{}]struct{})}
	b.draw = rand.New(b.random)
	var err error
	if b.writer, err = forge.Open(forge.Options{Dir: dir, SegmentSize: demoSegment, Running: true}); err != nil {
		return nil, fmt.Errorf("demo broker: %w", err)
	}
	if err := b.prepare(ctx, history); err != nil {
		return nil, fmt.Errorf("demo broker: %w", errors.Join(err, b.writer.Close()))
	}
	return b, nil
}

func (b *demoBroker) prepare(ctx context.Context, history int) error {
	for b.writer.End() < wire.PhyOffset(0).Add(wire.ByteSize(history)*demoSegment) {
		if err := b.append(); err != nil {
			return err
		}
	}
	for name := range demoConfig(0) {
		if err := b.persist(name, 0); err != nil {
			return err
		}
	}
	var lc net.ListenConfig
	var err error
	if b.ha, err = lc.Listen(ctx, "tcp", loopback0); err != nil {
		return err
	}
	if b.remoting, err = lc.Listen(ctx, "tcp", loopback0); err != nil {
		return errors.Join(err, b.ha.Close())
	}
	return nil
}

// loopback0 is a free port that no other host reaches.
const loopback0 = "127.0.0.1:0"

// append writes one message of about 1 KiB with the present time.
func (b *demoBroker) append() error {
	body := b.body[:len(b.body)/3+b.draw.IntN(len(b.body)*2/3)]
	_, _ = b.random.Read(body) // never fails
	now := commitlog.Millis(time.Now().UnixMilli())
	_, err := b.writer.Append(forge.Message{
		Topic: "demo", QueueID: b.draw.Int32N(4), QueueOffset: forge.NextQueueOffset, Body: body,
		BornTimestamp: now, StoreTimestamp: now, Properties: forge.AppendProperty("", "KEYS", strconv.Itoa(b.draw.Int())),
	})
	return err
}

// demoConfig returns the config files of a broker that has persisted them so many
// times.
func demoConfig(times int) map[string]string {
	return map[string]string{
		"topics.json":            `{"dataVersion":{"counter":1,"timestamp":1700000000000},"topicConfigTable":{"demo":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"demo","topicSysFlag":0,"writeQueueNums":4}}}`,
		"subscriptionGroup.json": `{"dataVersion":{"counter":1,"timestamp":1700000000000},"subscriptionGroupTable":{}}`,
		"consumerOffset.json":    fmt.Sprintf(`{"offsetTable":{"demo@group":{0:%d,1:%d}}}`, 12+times, 9+times),
		"delayOffset.json":       `{"offsetTable":{}}`,
	}
}

// persist writes a config file as brokers do: it is missing or half written for a
// moment.
func (b *demoBroker) persist(name string, times int) error {
	return forge.WriteConfig(b.dir, name, []byte(demoConfig(times)[name]), forge.Style4x, nil)
}

// readDemoConfig returns the config files of the store at dir.
func readDemoConfig(dir string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for name := range demoConfig(0) {
		content, err := os.ReadFile(filepath.Join(dir, "config", name))
		if err != nil {
			return nil, err
		}
		files[name] = content
	}
	return files, nil
}

// Run writes and serves until ctx ends.
func (b *demoBroker) Run(ctx context.Context) error {
	logDir := b.writer.CommitLogDir()
	_, haPort, _ := net.SplitHostPort(b.ha.Addr().String())
	_, port, _ := net.SplitHostPort(b.remoting.Addr().String())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.write(ctx) })
	group.Go(func() error { return b.configure(ctx) })
	group.Go(func() error {
		return stock.NewHAServer(stock.HAServerOptions{Listener: b.ha, CommitLogDir: logDir, SegmentSize: demoSegment, End: b.writer.End, Listen: b.listen}).Run(ctx)
	})
	group.Go(func() error {
		return stock.NewRemotingServer(stock.RemotingServerOptions{Listener: b.remoting, Dir: b.dir, CommitLogDir: logDir,
			SegmentSize: demoSegment, End: b.writer.End, Min: b.writer.Min, Config: map[string]string{
				"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0", "brokerRole": "ASYNC_MASTER",
				"listenPort": port, "haListenPort": haPort, "mappedFileSizeCommitLog": strconv.FormatInt(int64(demoSegment), 10),
				"storePathRootDir": b.dir, "storePathCommitLog": logDir, "flushDiskType": "ASYNC_FLUSH",
			}}).Run(ctx)
	})
	return errors.Join(group.Wait(), b.writer.Close())
}

// write appends at the given rate until ctx ends. What a busy machine has no time
// for is not made up for later.
func (b *demoBroker) write(ctx context.Context) error {
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
		span := min(now.Sub(last), demoBatch)
		last = now
		debt += wire.ByteSize(float64(b.rate) * span.Seconds())
		if err := b.batch(&debt); err != nil {
			return fmt.Errorf("demo broker: %w", err)
		}
	}
}

// batch writes what is due, unless paused, and tells of its end.
func (b *demoBroker) batch(debt *wire.ByteSize) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	begin, before := time.Now(), b.writer.End()
	for !b.paused && *debt > 0 {
		if time.Since(begin) > demoBatch {
			*debt = 0
			break
		}
		at := b.writer.End()
		if err := b.append(); err != nil {
			return err
		}
		*debt -= b.writer.End().Sub(at)
	}
	end := b.writer.End()
	if end == before {
		return nil
	}
	for ear := range b.ears {
		select {
		case ear <- struct{}{}:
		default:
		}
	}
	if b.wrote != nil {
		b.wrote(end)
	}
	return nil
}

// listen returns a channel that gets a value after each batch, and a function
// that ends it.
func (b *demoBroker) listen() (moved <-chan struct{}, stop func()) {
	ear := make(chan struct{}, 1)
	b.writing.Lock()
	defer b.writing.Unlock()
	b.ears[ear] = struct{}{}
	return ear, func() {
		b.writing.Lock()
		defer b.writing.Unlock()
		delete(b.ears, ear)
	}
}

// configure persists consumer positions now and then until ctx ends.
func (b *demoBroker) configure(ctx context.Context) error {
	tick := time.NewTicker(demoConfigStep)
	defer tick.Stop()
	for times := 1; ; times++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := b.move(times); err != nil {
			return fmt.Errorf("demo broker: %w", err)
		}
	}
}

// move persists moved consumer positions, unless paused.
func (b *demoBroker) move(times int) error {
	b.persisting.Lock()
	defer b.persisting.Unlock()
	if b.paused {
		return nil
	}
	return b.persist("consumerOffset.json", times)
}

// tell names who is told the end after each batch.
func (b *demoBroker) tell(wrote func(end wire.PhyOffset)) {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.wrote = wrote
}

// pause ends writing; when it returns nothing changes any more.
func (b *demoBroker) pause() {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.persisting.Lock()
	defer b.persisting.Unlock()
	b.paused = true
}
