package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
)

// screen is stderr: log lines, and below them a progress bar while catching up
// on a terminal. It belongs to the logger and the progress display together.
type screen struct {
	out      io.Writer
	terminal bool

	mu       sync.Mutex
	live     string        // lines that are rewritten in place, at the bottom
	progress *mpb.Progress // nil while no bar is shown
	bar      *mpb.Bar
	start    int64                          // verified offset when the bar appeared
	status   atomic.Pointer[control.Status] // what the bar shows; read while it draws
}

func newScreen(w io.Writer) *screen { return &screen{out: w, terminal: isTerminal(w)} }

// Write puts a log line above the bar.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.progress != nil:
		return s.progress.Write(b)
	case s.live != "":
		discardErrors(s.out, slices.Concat([]byte(s.clear()), b, []byte(s.live)))
	default:
		discardErrors(s.out, b)
	}
	return len(b), nil
}

// What a terminal is told: lines that are too long are cut instead of wrapped,
// and wrapped again; go up by lines; empty everything from here on.
const (
	cutLines   = "\x1b[?7l"
	wrapLines  = "\x1b[?7h"
	lineUp     = "\x1b[A"
	clearBelow = "\x1b[J"
)

// clear takes the live lines away. mu is held.
func (s *screen) clear() string {
	if s.live == "" {
		return ""
	}
	return "\r" + strings.Repeat(lineUp, strings.Count(s.live, "\n")) + clearBelow
}

// rewrite shows lines in place of the last ones on a terminal, which cuts them to
// its width, and as lines of their own elsewhere. Log lines go above them.
func (s *screen) rewrite(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		discardErrors(s.out, []byte(strings.Join(lines, "\n")+"\n"))
		return
	}
	// Of a line that is cut the last column shows the last character: a blank.
	live := cutLines + strings.Join(lines, " \n") + " " + wrapLines
	discardErrors(s.out, []byte(s.clear()+live))
	s.live = live
}

// settle leaves the rewritten lines where they are and goes on below them.
func (s *screen) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != "" {
		discardErrors(s.out, []byte("\n"))
		s.live = ""
	}
}

// showBar shows or hides the bar as the state asks.
func (s *screen) showBar(st control.Status) {
	if st.State != state.CatchingUp {
		s.hideBar()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Store(&st)
	verified := int64(max(st.Offsets.Verified, 0))
	if s.progress == nil {
		s.start = max(0, int64(st.Offsets.Min))
		s.progress = mpb.New(mpb.WithOutput(s.out), mpb.WithAutoRefresh(), mpb.WithRefreshRate(250*time.Millisecond))
		s.bar = s.progress.New(0, mpb.BarStyle().Lbound("[").Rbound("]"),
			mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("catching up ")), mpb.AppendDecorators(decor.Any(s.caption)))
	}
	s.bar.SetTotal(max(int64(st.Offsets.Source)-s.start, verified-s.start+1), false)
	s.bar.SetCurrent(verified - s.start)
}

// caption is called by the bar while it draws, in its own goroutine.
func (s *screen) caption(decor.Statistics) string {
	st := s.status.Load()
	left := "?"
	if st.BytesPerSecond > 0 {
		left = (time.Duration(float64(st.LagBytes)/st.BytesPerSecond) * time.Second).String()
	}
	verified := uint64(max(st.Offsets.Verified, 0))
	return fmt.Sprintf(" %s of %s  %s/s  %s left", humanize.IBytes(verified), humanize.IBytes(uint64(max(st.Offsets.Source, 0))),
		humanize.IBytes(uint64(st.BytesPerSecond)), left)
}

func (s *screen) hideBar() {
	s.mu.Lock()
	progress, bar := s.progress, s.bar
	s.progress, s.bar = nil, nil
	s.mu.Unlock()
	if progress == nil {
		return
	}
	bar.Abort(true)
	progress.Wait()
}
