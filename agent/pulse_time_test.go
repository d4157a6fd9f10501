package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPulse_TellsAHangingLoop shows the loop that turns, hangs, goes on and ends.
func TestPulse_TellsAHangingLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		if !a.Working() {
			t.Error("an agent that has not begun hangs")
		}
		for range 100 {
			a.pulse.turn(turnWithin)
			time.Sleep(watchInterval)
			if !a.Working() {
				t.Fatal("a loop that turns every second hangs")
			}
		}
		time.Sleep(turnWithin)
		if a.Working() {
			t.Error("a loop that has not turned for 31 s works")
		}
		a.pulse.turn(turnWithin)
		if !a.Working() {
			t.Error("a loop that goes on still hangs")
		}
		time.Sleep(turnWithin)
		a.pulse.rest()
		if !a.Working() {
			t.Error("a loop that has ended hangs")
		}
	})
}
