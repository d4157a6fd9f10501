package stock

import (
	"context"
	"errors"
	"fmt"
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
)

// authoritySession is a time in which the broker keeps its role and its name.
type authoritySession struct {
	a      *Authority
	survey Survey
	conns  int // connection of the Broker on which the survey was answered
}

// session finds out who the broker is and follows its end for as long as it
// stays what it is. It is fruitful once the broker was found.
func (a *Authority) session(ctx context.Context) (fruitful bool, err error) {
	life, _ := a.current()
	s := &authoritySession{a: a}
	if s.survey, s.conns, err = a.find(ctx); err != nil {
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
	return true, group.Wait()
}

// streams reports whether the broker may be given an HA connection. To one that
// waits for its slaves it would be a slave that never has what is waited for.
func streams(s Survey) bool { return s.Config.Role == "ASYNC_MASTER" }

// find surveys the broker and proves that it is ours, all on one connection.
func (a *Authority) find(ctx context.Context) (Survey, int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*a.timing.Patience)
	defer cancel()
	const tries = 3 // the first one may dial
	for range tries {
		conns, _ := a.opt.Broker.dialled()
		s, err := a.surveyed(ctx)
		if err != nil {
			return Survey{}, 0, err
		}
		if now, _ := a.opt.Broker.dialled(); now != conns {
			continue
		}
		if err := a.whose(ctx, s); err != nil {
			return Survey{}, 0, err
		}
		if now, _ := a.opt.Broker.dialled(); now == conns {
			return s, conns, nil
		}
	}
	return Survey{}, 0, fmt.Errorf("broker %s does not keep a connection for two requests", a.opt.Broker.Addr())
}

func (a *Authority) surveyed(ctx context.Context) (Survey, error) {
	s, err := SurveyBroker(ctx, a.opt.Broker, Expectation{HAAddr: a.opt.HAAddr})
	return s, asLocal(err)
}

// ask keeps the end current by asking, and ends the session when the broker is
// not what it was.
func (s *authoritySession) ask(ctx context.Context) error {
	look := time.NewTicker(s.a.timing.Survey)
	defer look.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	pause, asked := firstAskPause, time.Now()
	for {
		var err error
		moved := false
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			moved, err = s.look(ctx)
		case <-s.a.again:
			moved, err = s.look(ctx)
		case <-s.a.asking:
			// At once, but not more often than the end can move in.
			pause = firstAskPause
			next.Reset(max(0, firstAskPause-time.Since(asked)))
			continue
		case <-next.C:
			if !s.a.wanted.Load() {
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
		next.Reset(pause)
	}
}

// end asks for the end, and reports whether it moved.
func (s *authoritySession) end(ctx context.Context) (moved bool, err error) {
	life, before := s.a.current()
	info, err := s.a.opt.Broker.RuntimeInfo(ctx)
	if now, _ := s.a.opt.Broker.dialled(); now != s.conns {
		return s.look(ctx) // whoever answered must show first that it is ours
	}
	switch {
	case errors.Is(err, ErrNotReady):
		return false, nil // too busy; it is still the same one
	case err != nil:
		return false, asLocal(brokerProblem(s.a.opt.Broker.Addr(), err))
	}
	return s.tell(life, before, info.MaxOffset)
}

// look asks again who the broker is, and where its end is.
func (s *authoritySession) look(ctx context.Context) (moved bool, err error) {
	life, before := s.a.current()
	now, err := s.a.surveyed(ctx)
	if conns, _ := s.a.opt.Broker.dialled(); conns != s.conns {
		if now, conns, err = s.a.find(ctx); err == nil {
			s.conns = conns
		}
	}
	switch {
	case errors.Is(err, ErrNotReady):
		return false, nil
	case err != nil:
		return false, err
	case !sameBroker(now.Config, s.survey.Config) || now.HAAddr != s.survey.HAAddr:
		return false, retry.ErrAgain
	}
	return s.tell(life, before, now.Max)
}

// sameBroker compares what must not change within a session.
func sameBroker(a, b BrokerConfig) bool {
	return a.Role == b.Role && a.BrokerName == b.BrokerName && a.ClusterName == b.ClusterName && a.BrokerID == b.BrokerID &&
		a.InSyncReplicas == b.InSyncReplicas && a.SegmentSize == b.SegmentSize &&
		a.StorePathCommitLog == b.StorePathCommitLog && a.Raw["storePathRootDir"] == b.Raw["storePathRootDir"]
}

// tell takes an answer to a question that was asked when the end was before.
func (s *authoritySession) tell(life uint64, before, end wire.PhyOffset) (moved bool, err error) {
	if end > maxOffset {
		return false, fmt.Errorf("broker %s says that its log ends at %d", s.a.opt.Broker.Addr(), end)
	}
	if end < before {
		return false, fmt.Errorf("log of broker %s ended at %d before and ends at %d now", s.a.opt.Broker.Addr(), before, end)
	}
	s.a.raise(life, end)
	return end > before, nil
}
