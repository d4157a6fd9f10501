package wake_test

import (
	"sync"
	"testing"

	"github.com/haagent/haagent/agent/wake"
)

// TestListeners_WakeUpsThatAreNotTakenAreOne: each listener has one slot, and an
// ended one gets nothing more. Not parallel: it counts allocations.
func TestListeners_WakeUpsThatAreNotTakenAreOne(t *testing.T) {
	var l wake.Listeners
	l.Wake() // nobody listens
	first, stop := l.Listen()
	second, _ := l.Listen()
	l.Wake()
	l.Wake()
	for name, ch := range map[string]<-chan struct{}{"first": first, "second": second} {
		if len(ch) != 1 {
			t.Errorf("%s has %d wake-ups, want 1", name, len(ch))
		}
		<-ch
	}
	stop()
	l.Wake()
	if len(first) != 0 || len(second) != 1 {
		t.Errorf("after the first ended: %d and %d wake-ups, want 0 and 1", len(first), len(second))
	}
	if n := testing.AllocsPerRun(100, l.Wake); n != 0 {
		t.Errorf("a wake-up allocates %v times", n)
	}
}

// TestListeners_ComeAndGoWhileOthersAreWoken is for the race detector.
func TestListeners_ComeAndGoWhileOthersAreWoken(t *testing.T) {
	t.Parallel()
	var l wake.Listeners
	stays, _ := l.Listen()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 500 {
				moved, stop := l.Listen()
				l.Wake()
				<-moved
				stop()
			}
		})
	}
	group.Wait()
	if len(stays) != 1 {
		t.Errorf("who stayed has %d wake-ups, want 1", len(stays))
	}
}
