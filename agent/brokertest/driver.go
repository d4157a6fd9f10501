package brokertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	// answerTimeout bounds one command, a long send included.
	answerTimeout = 5 * time.Minute
	// patience is how long a command waits for the broker to come to a state.
	patience = 60 * time.Second
)

// A Driver is a stock client in a JVM of its own that does what a test tells it.
// Its methods may be called from several goroutines, within the rules of
// testing.T; each waits for its own answer. What cannot be done fails the test.
type Driver struct {
	process *jvm
	stdin   io.WriteCloser
	read    chan struct{} // closed when no more answers come

	mu      sync.Mutex // guards what follows, and writing to stdin
	nextID  int64
	waiting map[int64]chan answer
	ended   error // why no more answers come
}

// A command is one line to the driver; an answer one line from it.
type command struct {
	ID   int64  `json:"id"`
	Op   string `json:"op"`
	Args any    `json:"args"`
}

type answer struct {
	ID     int64           `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

// StartDriver starts a client of version v that finds brokers through a name
// server, and waits until it takes commands. It is killed when the test ends.
func StartDriver(t testing.TB, v Version, nameServer string) *Driver {
	t.Helper()
	d, err := startDriver(t, v, nameServer)
	if err != nil {
		t.Fatalf("driver %s: %v", v, err)
	}
	return d
}

func startDriver(t testing.TB, v Version, nameServer string) (*Driver, error) {
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	classPath, err := c.driverPath(v)
	if err != nil {
		return nil, err
	}
	// The parent keeps one end of each pipe, and the child's ends close with it.
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close(), inWrite.Close())
	}
	home := t.TempDir()
	process, err := startJVM(jvmOptions{
		classPath: classPath, home: home, heapMiB: 384, log: filepath.Join(home, "out.log"),
		// Producers' latencies are measured here: the full compiler.
		flags: []string{"-XX:TieredStopAtLevel=4"},
		main:  "BrokerDriver", args: []string{nameServer}, stdin: inRead, stdout: outWrite,
	})
	if err = errors.Join(err, inRead.Close(), outWrite.Close()); err != nil {
		return nil, errors.Join(err, inWrite.Close(), outRead.Close())
	}
	ready := make(chan answer, 1)
	d := &Driver{
		process: process, stdin: inWrite, read: make(chan struct{}),
		waiting: map[int64]chan answer{0: ready},
	}
	go d.readAnswers(outRead)
	t.Cleanup(func() {
		err := errors.Join(process.kill(), inWrite.Close())
		<-d.read
		if err != nil {
			t.Errorf("end the driver: %v", err)
		}
	})
	_, err = d.await(ready, startTimeout)
	return d, err
}

// readAnswers hands every answer to who waits for it, until the driver ends.
func (d *Driver) readAnswers(out io.ReadCloser) {
	defer close(d.read)
	lines := bufio.NewReaderSize(out, 1<<16)
	var err error
	for err == nil {
		var line []byte
		if line, err = lines.ReadBytes('\n'); err != nil {
			break
		}
		var a answer
		if err = json.Unmarshal(line, &a); err != nil {
			break
		}
		d.mu.Lock()
		if waiter, ok := d.waiting[a.ID]; ok {
			delete(d.waiting, a.ID)
			waiter <- a
		}
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = fmt.Errorf("driver answers no more: %w", errors.Join(err, out.Close()))
	for id, waiter := range d.waiting {
		delete(d.waiting, id)
		close(waiter)
	}
}

// submit sends a command and returns where its answer will come.
func (d *Driver) submit(op string, args any) (chan answer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended != nil {
		return nil, d.ended
	}
	d.nextID++
	line, err := json.Marshal(command{ID: d.nextID, Op: op, Args: args})
	if err != nil {
		return nil, fmt.Errorf("write command %s: %w", op, err)
	}
	waiter := make(chan answer, 1)
	d.waiting[d.nextID] = waiter
	if _, err := d.stdin.Write(append(line, '\n')); err != nil {
		delete(d.waiting, d.nextID)
		return nil, fmt.Errorf("write command %s: %w", op, err)
	}
	return waiter, nil
}

// await waits for an answer.
func (d *Driver) await(waiter chan answer, timeout time.Duration) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	select {
	case a, ok := <-waiter:
		switch {
		case !ok:
			d.mu.Lock()
			defer d.mu.Unlock()
			return nil, fmt.Errorf("%w, last words:\n%s", d.ended, lastWords(d.process.output()))
		case a.Error != "":
			return nil, errors.New(a.Error)
		}
		return a.Result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer after %v, last words:\n%s", timeout, lastWords(d.process.output()))
	}
}

// call runs one command to its end and decodes its result.
func (d *Driver) call(op string, args, result any) error {
	waiter, err := d.submit(op, args)
	if err != nil {
		return err
	}
	raw, err := d.await(waiter, answerTimeout)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("result of %s: %w", op, err)
	}
	return nil
}

// Send sends messages and returns one entry for each, in the order in which the
// sends ended. A send that fails is no failure of the test: see Sent.Status.
func (d *Driver) Send(t testing.TB, spec SendSpec) []Sent {
	t.Helper()
	spec = spec.withDefaults()
	setDefault(&spec.Count, 1)
	d.prepare(t, spec)
	var sent []Sent
	if err := d.call("send", spec, &sent); err != nil {
		t.Fatalf("send to %s: %v", spec.Topic, err)
	}
	return sent
}

// StartSending sends in the background, until stop is called and for Count
// messages where that is set. stop waits for the sends under way and returns all
// entries; it is called once, from the test's goroutine.
func (d *Driver) StartSending(t testing.TB, spec SendSpec) (stop func() []Sent) {
	t.Helper()
	spec = spec.withDefaults()
	d.prepare(t, spec)
	var job int64
	if err := d.call("start", spec, &job); err != nil {
		t.Fatalf("start sending to %s: %v", spec.Topic, err)
	}
	return func() []Sent {
		t.Helper()
		var sent []Sent
		if err := d.call("stop", map[string]int64{"job": job}, &sent); err != nil {
			t.Fatalf("stop sending to %s: %v", spec.Topic, err)
		}
		return sent
	}
}

// prepare checks a spec and makes what its kind needs.
func (d *Driver) prepare(t testing.TB, spec SendSpec) {
	t.Helper()
	if spec.Topic == "" {
		t.Fatal("SendSpec without a topic")
	}
	if spec.Kind == IPv6 {
		d.CreateTopic(t, spec.Topic, 4)
	}
}

// CreateTopic creates a topic on every master that the name server knows, and
// waits until the name server has its route.
func (d *Driver) CreateTopic(t testing.TB, topic string, queues int) {
	t.Helper()
	args := map[string]any{"topic": topic, "queues": queues, "waitMs": patience.Milliseconds()}
	if err := d.call("createTopic", args, nil); err != nil {
		t.Fatalf("create topic %s: %v", topic, err)
	}
}

// PullAll reads all queues of a topic from their min offset to their max offset,
// from every master of the topic.
func (d *Driver) PullAll(t testing.TB, topic string) []Message {
	t.Helper()
	return d.pull(t, "", topic, 0)
}

// PullN is PullAll once the topic holds at least n messages. It is for messages
// that take their time: delayed and transactional ones, and those of a broker
// that has just started and still builds its queues.
func (d *Driver) PullN(t testing.TB, topic string, n int) []Message {
	t.Helper()
	return d.pull(t, "", topic, n)
}

// PullFrom is PullN from one broker, slave or master, whatever the name server
// says.
func (d *Driver) PullFrom(t testing.TB, addr, topic string, n int) []Message {
	t.Helper()
	return d.pull(t, addr, topic, n)
}

func (d *Driver) pull(t testing.TB, addr, topic string, n int) []Message {
	t.Helper()
	var got []Message
	args := map[string]any{"addr": addr, "topic": topic, "atLeast": n, "waitMs": patience.Milliseconds()}
	if err := d.call("pull", args, &got); err != nil {
		t.Fatalf("pull %s: %v", topic, err)
	}
	return got
}

// CommitOffsets commits the positions of a consumer group, by queue, on every
// master of the topic. The group is created where missing: 5.x keeps no
// positions of a group that it does not know.
func (d *Driver) CommitOffsets(t testing.TB, group, topic string, offsets map[int]int64) {
	t.Helper()
	args := map[string]any{"group": group, "topic": topic, "offsets": offsets}
	if err := d.call("commit", args, nil); err != nil {
		t.Fatalf("commit offsets of %s: %v", group, err)
	}
}

// GroupOffsets returns the committed positions of a consumer group, by queue.
// Queues without one are left out, but a 4.x broker answers 0 for a queue whose
// first message it still has.
func (d *Driver) GroupOffsets(t testing.TB, group, topic string) map[int]int64 {
	t.Helper()
	return d.GroupOffsetsFrom(t, "", group, topic)
}

// GroupOffsetsFrom is GroupOffsets from one broker, slave or master.
func (d *Driver) GroupOffsetsFrom(t testing.TB, addr, group, topic string) map[int]int64 {
	t.Helper()
	var raw map[string]int64
	args := map[string]any{"addr": addr, "group": group, "topic": topic}
	if err := d.call("offsets", args, &raw); err != nil {
		t.Fatalf("offsets of %s: %v", group, err)
	}
	offsets := make(map[int]int64, len(raw))
	for queue, offset := range raw {
		id, err := strconv.Atoi(queue)
		if err != nil {
			t.Fatalf("offsets of %s: queue %q: %v", group, queue, err)
		}
		offsets[id] = offset
	}
	return offsets
}

// Consume consumes exactly n messages with a stock consumer, queue after queue,
// from the group's committed positions (a new group starts at the first message),
// and commits the new ones. It waits up to a minute for messages that have still
// to come.
func (d *Driver) Consume(t testing.TB, group, topic string, n int) []Message {
	t.Helper()
	var got []Message
	args := map[string]any{"group": group, "topic": topic, "count": n, "waitMs": patience.Milliseconds()}
	if err := d.call("consume", args, &got); err != nil {
		t.Fatalf("consume %s: %v", topic, err)
	}
	return got
}

// Log returns what the driver has printed besides its answers.
func (d *Driver) Log() string { return d.process.output() }
