package stock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/wire"
)

// How long to wait between two questions for the end while it is wanted: the
// first while it moves, and up to the second while it does not.
const (
	firstAskPause = time.Millisecond
	maxAskPause   = 50 * time.Millisecond
	// tellPause is how long a broker that tells its end by itself may be silent
	// before it is asked all the same. An answer takes some of them milliseconds of
	// a processor that their producers need.
	tellPause = 20 * time.Millisecond
)

// authoritySession is a time in which the broker keeps its role and its name.
type authoritySession struct {
	a          *Authority
	survey     Survey // without Min and Version; Max is that of its beginning
	conns      int    // connection of the Broker on which it was surveyed; owned by ask
	noHAStatus atomic.Bool
	peers      atomic.Pointer[[]string] // whom the HA port served when last asked; nil: not told since it was taken
}

// session finds out who the broker is and follows its end for as long as it
// stays what it is. It is fruitful once the broker was found.
func (a *Authority) session(ctx context.Context) (fruitful bool, err error) {
	life, _ := a.current()
	s := &authoritySession{a: a}
	if err := s.find(ctx); err != nil {
		a.refused(s.survey)
		return false, err
	}
	defer a.forget()
	a.found(s.survey)
	a.raise(life, s.survey.Max)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.ask(ctx) })
	if streams(s.survey) {
		group.Go(func() error { return s.stream(ctx) })
	}
	if r := a.opt.Relay; r != nil {
		group.Go(func() error { return r.run(ctx, s) })
	}
	return true, group.Wait()
}

// streams reports whether the broker may be given an HA connection. To one that
// waits for its slaves it would be a slave that never has what is waited for.
func streams(s Survey) bool { return s.Config.Role == "ASYNC_MASTER" }

// find surveys the broker and proves that it is ours, all on one connection.
func (s *authoritySession) find(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.a.timing.Patience)
	defer cancel()
	b := s.a.opt.Broker
	const tries = 3 // the first one may dial
	for range tries {
		s.conns, _ = b.dialled()
		if s.survey, err = s.a.identified(ctx); err != nil {
			return err
		}
		if now, _ := b.dialled(); now != s.conns {
			continue
		}
		if s.survey.Max, err = s.logEnd(ctx); err != nil {
			return asLocal(err)
		}
		if err := s.a.whose(ctx, s.survey); err != nil {
			return err
		}
		if now, _ := b.dialled(); now == s.conns {
			return nil
		}
	}
	return fmt.Errorf("broker %s does not keep a connection for a few requests", b.Addr())
}

func (a *Authority) identified(ctx context.Context) (Survey, error) {
	s, err := identify(ctx, a.opt.Broker, Expectation{HAAddr: a.opt.HAAddr})
	return s, asLocal(err)
}

// ask keeps the end current by asking, and ends the session when the broker is
// not what it was.
func (s *authoritySession) ask(ctx context.Context) error {
	look := time.NewTicker(s.a.timing.Survey)
	defer look.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	pause, asked, told := firstAskPause, time.Now(), s.a.End()
	for {
		var err error
		var moved bool
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			moved, err = s.look(ctx)
		case <-s.a.again:
			moved, err = s.look(ctx)
		case <-s.a.asking:
			// At once, but not more often than the end can move in.
			if pause = firstAskPause; s.a.Tells() {
				next.Reset(tellPause)
			} else {
				next.Reset(max(0, firstAskPause-time.Since(asked)))
			}
			continue
		case <-next.C:
			if !s.a.wanted.Load() {
				continue
			}
			if now := s.a.End(); s.a.Tells() && now != told {
				told = now
				next.Reset(tellPause)
				continue
			}
			moved, err = s.end(ctx)
		}
		if err != nil {
			return err
		}
		asked = time.Now()
		if moved {
			pause = firstAskPause
		} else {
			pause = min(2*pause, maxAskPause)
		}
		if told = s.a.End(); s.a.Tells() {
			pause = max(pause, tellPause)
		}
		next.Reset(pause)
	}
}

// end asks for the end, and reports whether it moved.
func (s *authoritySession) end(ctx context.Context) (moved bool, err error) {
	life, before := s.a.current()
	end, err := s.logEnd(ctx)
	if now, _ := s.a.opt.Broker.dialled(); now != s.conns {
		return s.look(ctx) // whoever answered must show first that it is ours
	}
	switch {
	case errors.Is(err, ErrNotReady):
		return false, nil // too busy; it is still the same one
	case err != nil:
		return false, asLocal(err)
	}
	return s.tell(life, before, end)
}

// look asks again who the broker is, and where its end is.
func (s *authoritySession) look(ctx context.Context) (moved bool, err error) {
	life, before := s.a.current()
	now, end, err := s.glance(ctx)
	if conns, _ := s.a.opt.Broker.dialled(); conns != s.conns {
		anew := &authoritySession{a: s.a}
		err = anew.find(ctx)
		s.conns, now, end = anew.conns, anew.survey, anew.survey.Max
	}
	switch {
	case errors.Is(err, ErrNotReady):
		return false, nil
	case err != nil:
		return false, err
	case !same(now, s.survey):
		return false, retry.ErrAgain
	}
	return s.tell(life, before, end)
}

// glance asks who the broker is, and where its end is, without a proof.
func (s *authoritySession) glance(ctx context.Context) (now Survey, end wire.PhyOffset, err error) {
	if now, err = s.a.identified(ctx); err == nil {
		end, err = s.logEnd(ctx)
	}
	return now, end, asLocal(err)
}

// same compares what must not change within a session.
func same(a, b Survey) bool {
	c, d := a.Config, b.Config
	return a.HAAddr == b.HAAddr && c.Role == d.Role && c.BrokerName == d.BrokerName && c.ClusterName == d.ClusterName &&
		c.BrokerID == d.BrokerID && c.InSyncReplicas == d.InSyncReplicas && c.SegmentSize == d.SegmentSize &&
		c.StorePathCommitLog == d.StorePathCommitLog && c.Raw["storePathRootDir"] == d.Raw["storePathRootDir"]
}

// tell takes an answer to a question that was asked when the end was before.
func (s *authoritySession) tell(life uint64, before, end wire.PhyOffset) (moved bool, err error) {
	if end < before {
		return false, fmt.Errorf("log of broker %s ended at %d before and ends at %d now", s.a.opt.Broker.Addr(), before, end)
	}
	s.a.raise(life, end)
	return end > before, nil
}
