package discovery

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// Nobody ever takes what memberlist tells, while members change all the time and
// a name is claimed twice: memberlist goes on, and nothing that counts is lost.
func TestCallbacks_NobodyTakesAndGossipGoesOn(t *testing.T) {
	t.Parallel()
	const members, updates = 6, 40
	calls := newCallbacks(func() []byte { return nil })
	hub := stranger(t, "hub", func(c *memberlist.Config) {
		c.Delegate, c.Events, c.Conflict, c.Merge, c.Alive = calls, calls, calls, calls, calls
	})
	var wg sync.WaitGroup
	for i := range members {
		var said atomic.Int64
		m := stranger(t, fmt.Sprintf("m%d", i), func(c *memberlist.Config) {
			c.GossipInterval = 5 * time.Millisecond
			c.Delegate = &rawMeta{callbacks{meta: func() []byte { return strconv.AppendInt(nil, said.Load(), 10) }}}
		})
		if n, err := m.Join([]string{hub.LocalNode().Address()}); n != 1 {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range updates {
				said.Add(1)
				_ = m.UpdateNode(50 * time.Millisecond) // it may miss that its news was sent
			}
		})
	}
	twin := stranger(t, "m0", func(*memberlist.Config) {})
	wg.Go(func() {
		for range 2 * cap(calls.claims) {
			_, _ = twin.Join([]string{hub.LocalNode().Address()}) // what it comes to is not what counts
		}
	})
	wg.Wait()

	// That memberlist's lock is free shows in what it still takes and answers.
	late := stranger(t, "late", func(*memberlist.Config) {})
	if n, err := late.Join([]string{hub.LocalNode().Address()}); n != 1 {
		t.Fatal(err)
	}
	eventually(t, "all are members", func() bool { return hub.NumMembers() == members+2 && late.NumMembers() == members+2 })
	if len(calls.changed) != 1 || len(calls.claims) != cap(calls.claims) {
		t.Errorf("%d wake-ups and %d claims wait", len(calls.changed), len(calls.claims))
	}
	last := make(map[string]string)
	eventually(t, "the last that each has said is there to be taken", func() bool {
		news, _ := calls.take()
		for _, n := range news {
			last[n.Name] = string(n.Meta)
		}
		for i := range members {
			if last[fmt.Sprintf("m%d", i)] != strconv.Itoa(updates) {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprint(last) })
}

// An agent whose log takes no line, and whose listener never looks, knows of
// nothing new itself; the others do not suffer from it.
func TestRing_BlockedReadersHoldNobodyUp(t *testing.T) {
	t.Parallel()
	opt := options("hub")
	opt.Timing.SeedInterval = time.Hour
	hub := start(t, opt)
	changed, stop := hub.Listen()
	defer stop()
	hub.log.mu.Lock()
	defer hub.log.mu.Unlock() // before it is told to end
	b := start(t, options("b", hub.Addr()))
	c := start(t, options("c", hub.Addr()))
	for _, n := range []*node{b, c} {
		n.sees(Alive, "hub", "b", "c")
	}
	for epoch := range int64(200) {
		if err := b.SetSelf(func(m *Member) { m.Epoch = epoch + 1 }); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "c has what b said last", func() bool { return c.member("b").Epoch == 200 })
	d := start(t, options("d", hub.Addr())) // it can be joined still
	d.sees(Alive, "hub", "b", "c")
	stays(t, time.Second, "the hub is alive to others", func() bool { return !gone(b.status("hub")) && !gone(c.status("hub")) })
	if len(changed) > 1 {
		t.Errorf("%d wake-ups wait", len(changed))
	}
}

// That memberlist suspects somebody is seen at once, not when the table is read
// the next time. This fails where memberlist's word for it has changed.
func TestRing_SuspicionIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	opt := options("a")
	opt.Timing.Refresh = 4 * patience // a quarter of it where the hint comes too early
	opt.Timing.SuspicionMult = 1000
	opt.Timing.SeedInterval = time.Hour
	a := start(t, opt)
	b := start(t, options("b", a.Addr()))
	a.sees(Alive, "b")
	b.kill()
	within(t, 2*patience, "a sees that b is suspect", func() bool { return a.status("b") == Suspect })
}
