package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	// joinsAtOnce bounds the addresses that are tried side by side, and
	// formerAtOnce how many of former members in one round.
	joinsAtOnce  = 8
	formerAtOnce = 16
	// deadAtOnce is how many of the dead are tried each SeedInterval: after a long
	// partition neither side speaks to the other of itself.
	deadAtOnce = 3
	// resolveTimeout bounds finding a seed's addresses.
	resolveTimeout = 3 * time.Second
	// maxJoinErrors bounds the errors that are logged while alone.
	maxJoinErrors = 8
	// patientTries is how many rounds may find nobody before that is a warning: with
	// the pauses between them a minute.
	patientTries = 10
)

// joiner joins for ever. It belongs to one goroutine.
type joiner struct {
	s     *session
	g     *Gossip
	quiet bool // there are no seeds, so their silence is no news
	seeds []string
	round int // which of the former members are next

	joined bool // whether there were others after the last round
	tries  int  // rounds since that was so
	logged map[string]bool
}

// join tries seeds and former members until others are there, then looks after
// what is missing.
func (s *session) join(ctx context.Context) {
	changed, stop := s.g.Listen()
	defer stop()
	j := &joiner{s: s, g: s.g, logged: make(map[string]bool)}
	t := s.g.opt.Timing
	backoff := t.RetryMin
	for {
		j.aim()
		err := j.try(ctx)
		if ctx.Err() != nil {
			return
		}
		s.look()
		j.report(len(s.g.others()), err)
		if s.g.displaced(ctx) {
			close(s.moved)
			return
		}
		wait := t.SeedInterval
		if !j.joined || s.g.contested() {
			wait = backoff
			backoff = min(2*backoff, t.RetryMax)
		} else {
			backoff = t.RetryMin
		}
		if !j.rest(ctx, jitter(wait), changed) {
			return
		}
	}
}

// aim takes the seeds that are in force.
func (j *joiner) aim() {
	j.seeds = *j.g.seeds.Load()
	j.quiet = len(j.seeds) == 0
	if j.quiet {
		j.seeds = []string{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), DefaultPort).String()}
	}
}

// jitter returns d, or up to a quarter less or more of it, so that a whole ring
// that starts at once does not knock at one seed in step.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}

// rest waits for the next round, which comes at once when the last other member
// has gone or this agent's own name is met elsewhere. It reports whether ctx
// goes on.
func (j *joiner) rest(ctx context.Context, d time.Duration, changed <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	contested := j.g.contested()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			return true
		case <-j.g.seedsChange:
			return true
		case <-changed:
			if j.joined && j.g.alone() {
				return true
			}
			if !contested && j.g.contested() {
				return pause(ctx, jitter(j.g.opt.Timing.RetryMin))
			}
		}
	}
}

// try makes one round, and returns why nobody answered.
func (j *joiner) try(ctx context.Context) error {
	here := j.g.others()
	contested := j.g.contested()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
		done = make(map[netip.AddrPort]bool)
		gate = make(chan struct{}, joinsAtOnce)
	)
	// one joins every address that find returns, unless it is a member's or our own.
	one := func(find func() ([]netip.AddrPort, error)) {
		gate <- struct{}{}
		defer func() { <-gate }()
		addrs, err := find()
		for _, a := range addrs {
			mu.Lock()
			skip := done[a] || here[a] && !contested || j.g.isSelf(a)
			done[a] = true
			mu.Unlock()
			if skip || ctx.Err() != nil {
				continue
			}
			// The first exchange tells a member what is said of it, the second brings its
			// answer.
			for range 2 {
				if _, e := j.s.list.Join([]string{a.String()}); e != nil {
					err = errors.Join(err, plain(a, e))
					break
				}
			}
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	}
	for _, seed := range j.seeds {
		wg.Go(func() {
			one(func() ([]netip.AddrPort, error) {
				ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
				defer cancel()
				return resolve(ctx, j.g.find, seed, DefaultPort)
			})
		})
	}
	for _, a := range j.former(len(here) == 0) {
		wg.Go(func() { one(func() ([]netip.AddrPort, error) { return []netip.AddrPort{a}, nil }) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// former returns where members were that are not there now: while alone the ones
// after those of the last round, else a few that are dead.
func (j *joiner) former(alone bool) []netip.AddrPort {
	j.g.mu.Lock()
	defer j.g.mu.Unlock()
	var out []netip.AddrPort
	if alone {
		all := j.g.roster.formerly()
		for i := range min(len(all), formerAtOnce) {
			out = append(out, all[(j.round+i)%len(all)])
		}
		j.round += len(out)
		return out
	}
	for _, e := range j.g.roster.members { // in no order, so not always the same ones
		if e.Status == Dead && e.at.IsValid() && len(out) < deadAtOnce {
			out = append(out, e.at)
		}
	}
	return out
}

// plain takes memberlist's wording off an error of Join.
func plain(a netip.AddrPort, err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	text := strings.TrimPrefix(err.Error(), fmt.Sprintf("failed to join %v: ", a))
	return fmt.Errorf("join %v: %s", a, text)
}

// report logs what has changed since the last round: others is how many there
// are now, err why somebody did not answer.
func (j *joiner) report(others int, err error) {
	j.tries++
	j.g.setTrouble(others == 0 && otherKeys(err), err)
	switch {
	case others > 0 && !j.joined:
		j.g.log.Info("joined the ring", "others", others, "tries", j.tries)
		j.joined = true
		j.tries = 0
		clear(j.logged)
	case others > 0:
		j.tries = 0
		if err != nil {
			j.g.log.Debug("a missing seed or a dead member does not answer", "err", err)
		}
	case j.joined:
		j.joined = false
		j.tries = 0
		j.g.log.Warn("alone: no other member is alive; trying seeds and former members for ever")
	case err != nil && !j.quiet:
		// Ports of the other side differ from try to try, the kind of trouble does not.
		// Members start in any order, so silence is trouble only where it lasts.
		level, k := slog.LevelInfo, kindOf(err.Error())
		switch {
		case otherKeys(err) || notLoopback(err):
			level = slog.LevelWarn
		case j.tries >= patientTries:
			level, k = slog.LevelWarn, "silence"
		}
		if !j.logged[k] && len(j.logged) < maxJoinErrors {
			j.logged[k] = true
			j.g.log.Log(context.Background(), level, "no other member answers yet; trying for ever", "seeds", j.seeds, "tries", j.tries, "err", err, "try", hint(err))
		}
	}
}

func notLoopback(err error) bool {
	return errors.Is(err, errNotLoopback) || strings.Contains(err.Error(), errNotLoopback.Error())
}

// hint says what to look at.
func hint(err error) string {
	if otherKeys(err) {
		return "give both agents the same --key-file"
	}
	if notLoopback(err) {
		return "give all agents the same --key-file, or --insecure where nobody else gets through"
	}
	return "see that an agent runs there and that TCP and UDP get through to its gossip port"
}

// isSelf reports whether a is this agent: joining oneself is not a join.
func (g *Gossip) isSelf(a netip.AddrPort) bool {
	g.mu.Lock()
	own := g.addr
	g.mu.Unlock()
	bound := g.socks.bound
	if a == own || a == bound {
		return true
	}
	if a.Port() != bound.Port() || !bound.Addr().IsUnspecified() {
		return false
	}
	if a.Addr().IsLoopback() || a.Addr().IsUnspecified() {
		return true
	}
	local, err := g.adv.local()
	if err != nil {
		return false
	}
	for _, l := range local {
		if l.ip == a.Addr() {
			return true
		}
	}
	return false
}

// contested reports whether this agent's own name is met at another address. As
// long as it is, seeds are tried on: they take this agent once the other one is
// known to be dead.
func (g *Gossip) contested() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claims.wanted(g.self.Node)
}

// displaced reports whether others can no longer reach this agent where it says.
func (g *Gossip) displaced(ctx context.Context) bool {
	g.mu.Lock()
	own := g.addr
	g.mu.Unlock()
	return !g.adv.stands(ctx, own)
}
