package agent_test

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/haagent/haagent/agent"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// I9: at every moment of an eventful life the status is in order: offsets one
// below the other, no lag below zero, ready and streaming only with all that
// the source had when it was last asked.
func TestI9_StatusIsInOrder(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(500 * wire.KiB)
	dir := t.TempDir()
	a := start(t, agent.Config{Dir: dir, Master: src.addr(), Ack: replica.AckDisk})
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for before := state.Starting; ; {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			end := src.end() // before the status: it only grows
			s := a.Status()
			o := s.Offsets
			if o.Min > o.Verified || o.Acked > o.Verified || o.Flushed > o.Verified || o.Acked > o.Flushed || o.Verified > o.Written || o.Written > o.Received {
				t.Errorf("offsets %+v", o)
			}
			if s.LagBytes < 0 || s.LagSeconds < 0 || o.Source > src.end() || o.Received > src.end() {
				t.Errorf("lag %d, %v s, offsets %+v, the source ends at %d", s.LagBytes, s.LagSeconds, o, end)
			}
			if s.State == state.Streaming && before != state.Streaming && o.Verified < 400<<10 {
				t.Errorf("streaming at %d", o.Verified)
			}
			if s.State.Stuck() && (s.Code == "" || s.Try == "" || s.Reason == "") {
				t.Errorf("stuck without a word: %+v", s)
			}
			before = s.State
		}
	})
	a.caughtUp(src)
	src.grow(300 * wire.KiB)
	a.caughtUp(src)
	src.stop()
	eventually(t, "not streaming", func() bool { return a.Status().State == state.Connecting })
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	close(over)
	watching.Wait()
	s := a.Status()
	if s.State != state.Stopping || s.Offsets.Flushed != s.Offsets.Verified || s.Offsets.Verified != src.end() {
		t.Errorf("after the stop: %+v", s)
	}
	same(t, src, dir)
}

// The page of the status is what the method says, and readiness follows it.
func TestI9_ReadinessOverHTTP(t *testing.T) {
	src := newSource(t, 64*wire.KiB)
	src.grow(1000)
	l := listen(t)
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	a := start(t, agent.Config{Dir: t.TempDir(), Master: src.addr(), HTTP: addr})
	a.caughtUp(src)
	get := func(path string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); err != nil || len(body) == 0 {
			t.Errorf("%s: %q: %v", path, body, err)
		}
		return res.StatusCode
	}
	if code := get("/readyz"); code != http.StatusOK {
		t.Errorf("ready: %d", code)
	}
	src.stop()
	eventually(t, "not ready", func() bool { return get("/readyz") == http.StatusServiceUnavailable })
	if code := get("/healthz"); code != http.StatusOK {
		t.Errorf("healthy: %d", code)
	}
}

// A port in use ends the agent at its start, with the flag's name.
func TestRun_PortInUse(t *testing.T) {
	l := listen(t)
	defer l.Close()
	a := start(t, agent.Config{Dir: t.TempDir(), HTTP: l.Addr().String()})
	var bad *agent.ConfigError
	if err := a.ended(); !errors.As(err, &bad) || bad.Key != "http" || bad.Try == "" {
		t.Errorf("ended with %v", err)
	}
}
