package watch

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDebounce_WaitsForQuietButNotForEver(t *testing.T) {
	t.Parallel()
	t0 := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	d := debounce{quiet: 100 * time.Millisecond, longest: time.Second}
	if got := d.pause(at(0)); got != -1 {
		t.Fatalf("nothing happened, and an edge is due in %v", got)
	}
	d.mark(at(0))
	d.mark(at(60))
	for _, c := range []struct {
		now  int
		want time.Duration
	}{{60, 100 * time.Millisecond}, {159, time.Millisecond}, {160, 0}, {5000, 0}} {
		if got := d.pause(at(c.now)); got != c.want {
			t.Errorf("at %d ms the edge is due in %v, want %v", c.now, got, c.want)
		}
	}
	d.clear()
	if got := d.pause(at(200)); got != -1 {
		t.Errorf("after its edge another one is due in %v", got)
	}
}

// TestDebounce_StreamGivesAnEdgeASecond marks at random moments that are never
// quiet apart.
func TestDebounce_StreamGivesAnEdgeASecond(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := debounce{quiet: 100 * time.Millisecond, longest: time.Second}
		now := time.Unix(1_700_000_000, 0)
		var since time.Time
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 99).Draw(t, "gap")) * time.Millisecond)
			if d.pause(now) == 0 {
				d.clear()
			}
			if !d.waiting {
				since = now
			}
			d.mark(now)
			if due := now.Add(d.pause(now)); due.Sub(since) > time.Second {
				t.Fatalf("the edge of an event comes %v later", due.Sub(since))
			}
		}
		if d.pause(now) < 0 {
			t.Fatal("an event without an edge")
		}
	})
}
