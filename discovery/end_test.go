package discovery

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

// Run ends within 3 s of being told to, whatever it is at, and its port can be
// bound at once. Where the machine was busy with something else it is tried
// again.
func TestRun_EndsSoonAndLeavesItsPortFree(t *testing.T) {
	t.Parallel()
	states := map[string]func(*testing.T) *node{
		"just started": func(t *testing.T) *node { return start(t, options("a")) },
		"alone, seeds refuse": func(t *testing.T) *node {
			a := start(t, options("a"))
			eventually(t, "it has tried", func() bool { return a.log.count("no other member answers") > 0 })
			return a
		},
		"a seed is silent": func(t *testing.T) *node {
			s, err := listen(nextIP(), 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { release(t, s) })
			opt := options("a", s.bound.String())
			opt.Timing.TCPTimeout = time.Minute
			a := start(t, opt)
			conn, err := s.tcp.Accept() // so a waits for the answer now
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return a
		},
		"a seed's name is sought": func(t *testing.T) *node {
			asked := make(chan struct{}, 1)
			g, err := newGossip(options("a", "seed.invalid:1"), func(ctx context.Context, _ string) ([]netip.Addr, error) {
				trySend(asked)
				<-ctx.Done()
				return nil, ctx.Err()
			}, localIPs)
			if err != nil {
				t.Fatal(err)
			}
			a := run(t, g, &logBook{})
			<-asked
			return a
		},
		"in a ring": func(t *testing.T) *node {
			b := start(t, options("b"))
			a := start(t, options("a", b.Addr()))
			a.sees(Alive, "b")
			return a
		},
		"news is on its way": func(t *testing.T) *node {
			b := start(t, options("b"))
			opt := options("a", b.Addr())
			opt.Timing.GossipInterval = time.Hour // it never goes
			a := start(t, opt)
			a.sees(Alive, "b")
			if err := a.SetSelf(func(m *Member) { m.Epoch++ }); err != nil {
				t.Fatal(err)
			}
			return a
		},
		"others are suspect": func(t *testing.T) *node {
			b := start(t, options("b"))
			opt := options("a", b.Addr())
			opt.Timing.SuspicionMult = 1000
			a := start(t, opt)
			a.sees(Alive, "b")
			b.kill()
			a.sees(Suspect, "b")
			return a
		},
		"the others are dead": func(t *testing.T) *node {
			b := start(t, options("b"))
			a := start(t, options("a", b.Addr()))
			a.sees(Alive, "b")
			b.kill()
			a.sees(Dead, "b")
			return a
		},
	}
	for name, bring := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var took time.Duration
			for range 3 {
				a := bring(t)
				began := time.Now()
				a.leave()
				took = time.Since(began)
				s, err := listen(a.socks.bound.Addr(), int(a.socks.bound.Port()))
				if err != nil {
					t.Fatalf("its port cannot be bound again: %v", err)
				}
				release(t, s)
				if took < 3*time.Second {
					return
				}
			}
			t.Errorf("three times it took 3 s and more, %v the last time", took)
		})
	}
}
