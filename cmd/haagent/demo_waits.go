package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/wire"
)

// demoPhase says what may be answered to who waits for both slaves.
type demoPhase int

const (
	demoNobody   demoPhase = iota // nobody waits yet
	demoTogether                  // both are in sync: PUT_OK
	demoChanging                  // one comes or goes: PUT_OK or FLUSH_SLAVE_TIMEOUT
	demoAway                      // one is away: FLUSH_SLAVE_TIMEOUT
)

const (
	demoPatience = 5 * time.Second // of producers, as long as a broker's
	demoWaiters  = 64              // producers that wait at once, for each number of acks
	demoRecent   = 1000            // waits that the live figures are about
)

// demoWaits are producers that wait for one slave, and for both. They ask the
// master agent as haagent wait does.
type demoWaits struct {
	client *control.Client
	short  time.Duration                         // how long to wait for both while one is not there
	holds  func(end wire.PhyOffset) (slaves int) // how many slaves hold the log up to end, from their own mouth

	asking sync.WaitGroup
	mu     sync.Mutex // guards what follows
	phase  demoPhase
	turn   int // counts the changes of phase
	before int // how many waits for both had counted when the phase began
	tally  [2]demoTally
	fault  error // the first answer that must not be
}

// demoTally is what was answered to who waits for a number of slaves.
type demoTally struct {
	waiting         int
	ok, late, wrong int             // PUT_OK, FLUSH_SLAVE_TIMEOUT as is right, what must not be
	took            []time.Duration // of PUT_OKs with as many slaves in sync all the time, in their order
}

// move begins a phase.
func (w *demoWaits) move(p demoPhase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase, w.before = p, len(w.tally[1].took)
	w.turn++
}

// steady returns how many waits for both slaves were answered PUT_OK in this
// phase, with both in sync.
func (w *demoWaits) steady() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tally[1].took) - w.before
}

// begin lets two producers wait for a message that ends at end: for one slave,
// and for both.
func (w *demoWaits) begin(ctx context.Context, end wire.PhyOffset) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.phase == demoNobody {
		return
	}
	for n := 1; n <= len(w.tally); n++ {
		if w.tally[n-1].waiting >= demoWaiters {
			continue
		}
		w.tally[n-1].waiting++
		phase, turn, began := w.phase, w.turn, time.Now()
		w.asking.Go(func() { w.ask(ctx, n, end, phase, turn, began) })
	}
}

func (w *demoWaits) ask(ctx context.Context, n int, end wire.PhyOffset, phase demoPhase, turn int, began time.Time) {
	timeout := demoPatience
	if n > 1 && phase != demoTogether {
		timeout = w.short
	}
	a, err := w.client.Wait(ctx, control.WaitRequest{Offset: end, Acks: n, Timeout: timeout})
	took := time.Since(began)
	holds := 0
	if a.Result == acks.PutOK {
		holds = w.holds(end)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &w.tally[n-1]
	t.waiting--
	steady := turn == w.turn || n == 1
	if n == 1 {
		phase = demoTogether // one is always there
	} else if !steady {
		phase = demoChanging
	}
	switch {
	case ctx.Err() != nil: // the demo ends
	case err == nil && a.Result == acks.PutOK && phase != demoAway && holds >= n:
		t.ok++
		if phase == demoTogether {
			t.took = append(t.took, took)
		}
	case err == nil && a.Result == acks.FlushSlaveTimeout && phase != demoTogether:
		t.late++
	default:
		t.wrong++
		w.blame(n, end, a, holds, err)
	}
}

// blame keeps the first answer that must not be. mu is held.
func (w *demoWaits) blame(n int, end wire.PhyOffset, a control.WaitAnswer, holds int, err error) {
	switch {
	case w.fault != nil:
	case err != nil:
		w.fault = &exitError{code: exitNotConnected, err: fmt.Errorf("a wait for %s was not answered: %w", slaves(n), err)}
	case a.Result == acks.PutOK:
		w.fault = &exitError{code: exitDifferent, err: fmt.Errorf("a wait for %s to hold %d was answered PUT_OK, and %s did", slaves(n), end, slaves(holds))}
	default:
		w.fault = &exitError{code: exitNotConnected, err: fmt.Errorf("a wait for %s to hold %d was answered %s: %s", slaves(n), end, a.Result, a.Reason)}
	}
}

func slaves(n int) string {
	if n == 1 {
		return "1 slave"
	}
	return fmt.Sprintf("%d slaves", n)
}

// drain waits until everybody is answered. Nobody may begin to wait any more.
func (w *demoWaits) drain() { w.asking.Wait() }

// timedOut returns how many waits for both slaves were answered
// FLUSH_SLAVE_TIMEOUT while that was right.
func (w *demoWaits) timedOut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally[1].late
}

// result returns the tallies, and the first answer that must not be.
func (w *demoWaits) result() ([2]demoTally, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tally, w.fault
}

// recent returns the tallies with the last waits only.
func (w *demoWaits) recent() [2]demoTally {
	t, _ := w.result()
	for i := range t {
		t[i].took = t[i].took[max(0, len(t[i].took)-demoRecent):]
	}
	return t
}

// percentiles says how long half of the waits, and all but one in a hundred,
// took at most.
func (t demoTally) percentiles() (p50, p99 time.Duration) {
	if len(t.took) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(t.took))
	at := func(p int) time.Duration { return sorted[(len(sorted)-1)*p/100] }
	return at(50), at(99)
}
