package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// stateGone is what a slave is shown as that is not there.
const stateGone state.State = "gone"

// demoView is what is shown at one moment.
type demoView struct {
	elapsed, duration time.Duration
	written           wire.PhyOffset
	speed             wire.ByteSize // written in a second
	slaves            []demoSlaveView
	waits             [2]demoTally
}

// demoSlaveView is a slave by its own word (state, verified) and by its
// master's (acked).
type demoSlaveView struct {
	node            string
	state           state.State
	verified, acked wire.PhyOffset
}

// show draws figures until ctx ends: in place on a terminal, and a line a second
// elsewhere.
func (d *demo) show(ctx context.Context) error {
	every := time.Second
	if d.screen.terminal {
		every = 100 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	speed := demoSpeed{at: d.began, end: d.broker.writer.End()}
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			v := d.look(now)
			v.speed = speed.observe(now, v.written)
			if d.screen.terminal {
				d.screen.rewrite(v.block(d.colours)...)
			} else {
				d.screen.rewrite(v.line())
			}
		}
	}
}

// look asks everybody.
func (d *demo) look(now time.Time) demoView {
	v := demoView{elapsed: now.Sub(d.began), duration: d.duration, waits: d.waits.recent()}
	acked := map[string]wire.PhyOffset{}
	if s, ok := d.master.status(); ok {
		for _, r := range s.Replicas {
			acked[r.Node] = r.Acked
		}
	}
	for _, x := range d.slaves {
		s := demoSlaveView{node: x.cfg.Node, state: stateGone, acked: wire.NoOffset}
		if st, ok := x.status(); ok {
			s.state = st.State
		}
		if at, ok := acked[x.cfg.Node]; ok {
			s.acked = at
		}
		s.verified = x.holds()
		v.slaves = append(v.slaves, s)
	}
	v.written = d.broker.writer.End() // last, so that nobody has more
	return v
}

func (v demoView) lag(s demoSlaveView) wire.ByteSize {
	return max(v.written.Sub(max(s.verified, 0)), 0)
}

// block is what a terminal shows.
func (v demoView) block(colours bool) []string {
	lines := []string{fmt.Sprintf("written    %-12s %s/s", bytesText(v.written), humanize.IBytes(uint64(v.speed)))}
	for _, s := range v.slaves {
		word := fmt.Sprintf("%-12s", s.state)
		if colours {
			word = paint(s.state, word)
		}
		lines = append(lines, fmt.Sprintf("%-10s %s lag %-9s verified %-9s acked %s", s.node, word,
			humanize.IBytes(uint64(v.lag(s))), bytesText(s.verified), bytesText(s.acked)))
	}
	for i, t := range v.waits {
		name, late := fmt.Sprintf("acks %d", i+1), ""
		if i > 0 {
			late = fmt.Sprintf("  %d FLUSH_SLAVE_TIMEOUT", t.late)
		}
		p50, p99 := t.percentiles()
		lines = append(lines, fmt.Sprintf("%-10s %-15s p50 %-8s p99 %-8s%s", name,
			humanize.Comma(int64(t.ok))+" PUT_OK", timeText(p50), timeText(p99), late))
	}
	return append(lines, v.bar())
}

// bar shows how much of the time is over.
func (v demoView) bar() string {
	const width = 50
	done := min(int(width*v.elapsed/v.duration), width)
	return fmt.Sprintf("[%s%s] %.0fs of %s", strings.Repeat("#", done), strings.Repeat("-", width-done), min(v.elapsed, v.duration).Seconds(), v.duration)
}

// line is what a file shows.
func (v demoView) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1fs  written %s at %s/s", v.elapsed.Seconds(), bytesText(v.written), humanize.IBytes(uint64(v.speed)))
	for _, s := range v.slaves {
		fmt.Fprintf(&b, "  %s %s acked %s lag %s", s.node, s.state, bytesText(s.acked), humanize.IBytes(uint64(v.lag(s))))
	}
	for i, t := range v.waits {
		p50, p99 := t.percentiles()
		fmt.Fprintf(&b, "  acks %d: %d ok", i+1, t.ok)
		if i > 0 {
			fmt.Fprintf(&b, " %d timed out", t.late)
		}
		fmt.Fprintf(&b, " p50 %s p99 %s", timeText(p50), timeText(p99))
	}
	return b.String()
}

// paint colours text as the state is: green where all is well, red where a slave
// is not there, yellow on the way.
func paint(s state.State, text string) string {
	colour := "33"
	switch s {
	case state.Streaming, state.Promoted:
		colour = "32"
	case stateGone:
		colour = "31"
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// withColours reports whether a screen may be coloured.
func withColours(s *screen) bool { return s.terminal && os.Getenv("NO_COLOR") == "" }

func bytesText(o wire.PhyOffset) string {
	if o < 0 {
		return "-"
	}
	return humanize.IBytes(uint64(o))
}

// timeText has three digits or a few more.
func timeText(t time.Duration) string {
	switch {
	case t == 0:
		return "-"
	case t < time.Millisecond:
		return t.Round(time.Microsecond).String()
	case t < time.Second:
		return t.Round(10 * time.Microsecond).String()
	}
	return t.Round(10 * time.Millisecond).String()
}

// demoSpeed measures how fast the log grows, over a second or more.
type demoSpeed struct {
	at    time.Time
	end   wire.PhyOffset
	speed wire.ByteSize
}

func (s *demoSpeed) observe(now time.Time, end wire.PhyOffset) wire.ByteSize {
	if span := now.Sub(s.at); span >= 900*time.Millisecond {
		s.speed = wire.ByteSize(float64(end.Sub(s.end)) / span.Seconds())
		s.at, s.end = now, end
	}
	return s.speed
}

// inSync reports whether a slave follows closely: a batch or a few may be under
// way.
func (d *demo) inSync(s control.Status) bool {
	lag := d.broker.writer.End().Sub(max(s.Offsets.Verified, 0))
	return s.State == state.Streaming && lag < wire.MiB+d.rate/4
}
