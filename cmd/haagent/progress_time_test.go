package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// An agent that has nothing to do writes nothing; one that gets on says so every
// ten seconds.
func TestProgress_OnlyWhereSomethingMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var end atomic.Int64
		status := func() control.Status {
			return control.Status{State: state.Streaming, Offsets: control.Offsets{Verified: wire.PhyOffset(end.Load())}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- showProgress(ctx, status, newScreen(&bytes.Buffer{}), slog.New(slog.NewTextHandler(&out, nil)))
		}()
		<-time.After(time.Hour + time.Second) // off the ticks
		synctest.Wait()
		if out.Len() > 0 {
			t.Errorf("an idle agent wrote %q", out.String())
		}
		for range 3 {
			end.Add(100)
			<-time.After(progressInterval)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if n := strings.Count(out.String(), "msg=progress"); n != 3 || !strings.Contains(out.String(), "verified=300") {
			t.Errorf("%d lines:\n%s", n, out.String())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
