package logs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/cmd/haagent/logs"
)

// Bounds that the package promises.
const (
	burst  = 5
	window = 10 * time.Second
)

// notes keeps what is written.
type notes struct {
	fails bool

	mu   sync.Mutex
	kept []note // guarded by mu
}

func (n *notes) lines() []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.kept)
}

type note struct {
	at       time.Time
	text     string
	repeated int
}

func (n *notes) Enabled(context.Context, slog.Level) bool { return true }
func (n *notes) WithAttrs([]slog.Attr) slog.Handler       { return n }
func (n *notes) WithGroup(string) slog.Handler            { return n }
func (n *notes) Handle(_ context.Context, r slog.Record) error {
	line := note{at: time.Now(), text: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "repeated" {
			line.repeated = int(a.Value.Int64())
		}
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, line)
	if n.fails {
		return errors.New("the disk is full")
	}
	return nil
}

// background runs f until the function that is returned is called.
func background(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// step is a record, and how long nothing happens before it.
type step struct {
	text  int
	pause time.Duration
}

// Whatever is logged: nothing is lost from the count, nothing is written before it
// came, each kind is written at most so often in a window, the first one at once,
// and what was counted is told within two windows.
func TestRepeats_AgainstModel(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		pause := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(15*time.Second)).Draw(t, "pause"))
		})).Draw(t, "wait")
		return step{rapid.IntRange(0, 3).Draw(t, "text"), pause}
	}), 1, 120)
	rapid.Check(t, func(rt *rapid.T) {
		list := steps.Draw(rt, "steps")
		var wrong string
		synctest.Test(t, func(*testing.T) { wrong = replay(list) })
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// replay logs the steps, and says what is wrong with what was written.
func replay(list []step) string {
	out := &notes{}
	h := logs.NewRepeats(out)
	stop := background(h.Run)
	log := slog.New(h)
	came := map[string][]time.Time{}
	for _, s := range list {
		<-time.After(s.pause)
		synctest.Wait()
		text := fmt.Sprint("text ", s.text)
		before := len(out.lines())
		came[text] = append(came[text], time.Now())
		log.Info(text)
		if now := out.lines(); len(came[text]) <= burst && (len(now) == before || now[len(now)-1].text != text) {
			return text + " was not written at once"
		}
	}
	<-time.After(2 * window)
	told := len(out.lines())
	stop()
	if len(out.lines()) != told {
		return "something was counted and not told in time"
	}
	for text, times := range came {
		var at []time.Time
		n := 0
		for _, l := range out.lines() {
			if l.text != text {
				continue
			}
			at = append(at, l.at)
			n += max(l.repeated, 1)
			if seen := slices.IndexFunc(times, func(c time.Time) bool { return c.After(l.at) }); seen >= 0 && n > seen {
				return fmt.Sprintf("%s: %d told when %d had come", text, n, seen)
			}
		}
		if n != len(times) {
			return fmt.Sprintf("%s came %d times, %d are told", text, len(times), n)
		}
		for i := burst + 1; i < len(at); i++ { // a burst, and the number of the window before
			if at[i].Sub(at[i-burst-1]) < window {
				return fmt.Sprintf("%s was written %d times in %s", text, burst+2, at[i].Sub(at[i-burst-1]))
			}
		}
	}
	return ""
}

// Records that differ in level, message, attribute, or in what their logger adds
// are not equal.
func TestRepeats_DifferentAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &notes{}
		log := slog.New(logs.NewRepeats(out))
		for range burst {
			log.Info("m", "k", "v")
		}
		for i, say := range []func(){
			func() { log.Warn("m", "k", "v") }, func() { log.Info("n", "k", "v") }, func() { log.Info("m", "k", "w") },
			func() { log.Info("m", "kv", "") }, func() { log.Info("m") }, func() { log.With("k", "v").Info("m") },
			func() { log.WithGroup("g").Info("m", "k", "v") }, func() { log.WithGroup("g").With("a", "b").Info("m", "k", "v") },
		} {
			before := len(out.lines())
			say()
			if len(out.lines()) != before+1 {
				t.Errorf("record %d was taken for another one", i)
			}
		}
		before := len(out.lines())
		log.Info("m", "k", "v")
		if len(out.lines()) != before {
			t.Error("the same record was written again")
		}
	})
}

// What is counted when the agent ends is told then, and a log that fails does not
// keep it from ending.
func TestRepeats_EndTellsTheRest(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			out := &notes{fails: fails}
			h := logs.NewRepeats(out)
			stop := background(h.Run)
			for range burst + 7 {
				slog.New(h).Info("m")
			}
			stop()
			if n := len(out.lines()); n != burst+1 || out.lines()[burst].repeated != 7 {
				t.Errorf("%+v", out.lines())
			}
		})
	}
}

// Records that are all different are written, and not kept.
func TestRepeats_MemoryIsBounded(t *testing.T) {
	out := &notes{}
	h := logs.NewRepeats(out)
	log := slog.New(h)
	text := string(make([]byte, 64<<10))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const many = 4000
	for i := range many {
		log.Info("m", "n", i, "large", text+fmt.Sprint(i))
	}
	if len(out.lines()) != many {
		t.Errorf("%d of %d written", len(out.lines()), many)
	}
	if grown := int64(heap() - before); grown > 64<<20 {
		t.Errorf("%d bytes are kept", grown)
	}
	runtime.KeepAlive(h)
}
