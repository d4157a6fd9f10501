package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	wirelink "github.com/haagent/haagent/wire/link"
)

// The directions of a relay.
const (
	toMaster = iota
	toSlave
)

// rule is what happens to bytes in one direction.
type rule struct {
	hold  bool          // nothing passes, and nothing is closed: a black hole
	piece int           // bytes at a time; 0: as they come
	delay time.Duration // before each piece
	cut   int           // close the connection after so many more bytes; 0: never
	flip  int           // change a byte after so many more bytes; 0: never
	swap  bool          // let the halves of the next piece change places, once
}

// relay stands between slaves and a master and spoils what passes. Rules are for
// one channel and direction each.
type relay struct {
	addr   string
	target func() string

	mu      sync.Mutex
	rules   map[wirelink.Channel]*[2]rule
	changed chan struct{} // closed at each change of rules
	conns   map[*relayed]bool
	refuse  bool // new connections are closed at once
	passed  [2]int
	links   int
	flipped int
}

// relayed is one connection through a relay.
type relayed struct {
	ends    [2]net.Conn // by the direction that leads there
	channel wirelink.Channel
}

func (c *relayed) close() {
	for _, conn := range c.ends {
		_ = conn.Close() // twice in most cases
	}
}

// startRelay starts a relay that ends with the test. target is asked at each
// connection.
func startRelay(t testing.TB, target func() string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), target: target, changed: make(chan struct{}), conns: map[*relayed]bool{},
		rules: map[wirelink.Channel]*[2]rule{wirelink.ChannelLog: {}, wirelink.ChannelMetadata: {}}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		r.cut()
		running.Wait()
	})
	return r
}

// cut closes every connection at once.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.close()
	}
}

// set changes the rule of one channel and direction.
func (r *relay) set(channel wirelink.Channel, direction int, to rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules[channel][direction] = to
	close(r.changed)
	r.changed = make(chan struct{})
}

// heal takes all rules back.
func (r *relay) heal() {
	for _, ch := range []wirelink.Channel{wirelink.ChannelLog, wirelink.ChannelMetadata} {
		r.set(ch, toMaster, rule{})
		r.set(ch, toSlave, rule{})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = false
}

func (r *relay) setRefuse(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = on
}

func (r *relay) bytes(direction int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.passed[direction]
}

func (r *relay) counts() (links, flipped int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.links, r.flipped
}

// serve passes one connection on until either side ends it.
func (r *relay) serve(ctx context.Context, slave net.Conn) {
	defer slave.Close()
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	var d net.Dialer
	master, err := d.DialContext(ctx, "tcp", r.target())
	if err != nil {
		return // the master is down, and so is its port here
	}
	defer master.Close()
	if refuse {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &relayed{ends: [2]net.Conn{toMaster: master, toSlave: slave}, channel: wirelink.ChannelLog}
	r.mu.Lock()
	r.links++
	r.conns[c] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, c)
	}()
	var both sync.WaitGroup
	both.Go(func() { r.pass(ctx, c, toMaster); r.over(c, cancel, toMaster) })
	both.Go(func() { r.pass(ctx, c, toSlave); r.over(c, cancel, toSlave) })
	both.Wait()
}

// over passes the end of one direction on: both sides see it.
func (r *relay) over(c *relayed, cancel func(), direction int) {
	if half, ok := c.ends[direction].(*net.TCPConn); ok && half.CloseWrite() == nil {
		return
	}
	cancel()
	c.close()
}

var errCut = errors.New("cut")

// channelByte is where a hello says its channel: behind the greeting and the
// frame's header. In TLS nobody sees it.
const channelByte = wirelink.GreetingSize + wirelink.HeaderSize

// pass passes one direction on to its end.
func (r *relay) pass(ctx context.Context, c *relayed, direction int) {
	from, to := c.ends[1-direction], c.ends[direction]
	buf := make([]byte, 32<<10)
	for seen := 0; ; {
		if _, ok := r.wait(ctx, c, direction); !ok {
			return
		}
		n, err := from.Read(buf)
		if at := channelByte - seen; direction == toMaster && at >= 0 && at < n && buf[at] == byte(wirelink.ChannelMetadata) {
			r.mu.Lock()
			c.channel = wirelink.ChannelMetadata
			r.mu.Unlock()
		}
		seen += n
		if r.forward(ctx, c, direction, to, buf[:n]) != nil {
			c.close()
			return
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.close()
			}
			return
		}
	}
}

// wait waits while the rule holds bytes up, and returns the rule.
func (r *relay) wait(ctx context.Context, c *relayed, direction int) (rule, bool) {
	for {
		r.mu.Lock()
		now, changed := r.rules[c.channel][direction], r.changed
		r.mu.Unlock()
		if !now.hold {
			return now, ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return now, false
		case <-changed:
		}
	}
}

// forward sends b on, as the rules are at each piece.
func (r *relay) forward(ctx context.Context, c *relayed, direction int, to io.Writer, b []byte) error {
	for len(b) > 0 {
		now, ok := r.wait(ctx, c, direction)
		if !ok {
			return errCut
		}
		if now.delay > 0 {
			select {
			case <-ctx.Done():
				return errCut
			case <-time.After(now.delay):
			}
		}
		n := len(b)
		if now.piece > 0 {
			n = min(n, now.piece)
		}
		n, cut := r.count(c, direction, b[:n])
		if _, err := to.Write(b[:n]); err != nil {
			return err
		}
		if cut {
			return errCut
		}
		b = b[n:]
	}
	return nil
}

// count uses up the rules that go by bytes. It returns how much may pass, and
// whether the connection ends then.
func (r *relay) count(c *relayed, direction int, b []byte) (n int, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := &r.rules[c.channel][direction]
	n = len(b)
	if now.cut > 0 {
		if n >= now.cut {
			n, cut, now.cut = now.cut, true, 0
		} else {
			now.cut -= n
		}
	}
	if now.swap && n > 1 && !cut {
		half := append([]byte(nil), b[:n/2]...)
		copy(b, b[n/2:n])
		copy(b[n-n/2:n], half)
		now.swap = false
		r.flipped++
	}
	if now.flip > 0 {
		if n >= now.flip {
			b[now.flip-1] ^= 0x40
			now.flip = 0
			r.flipped++
		} else {
			now.flip -= n
		}
	}
	r.passed[direction] += n
	return n, cut
}
