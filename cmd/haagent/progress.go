package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/haagent/haagent/agent/control"
)

// progressInterval is how often a line in the log tells how far a replica is, where
// something has changed.
const progressInterval = 10 * time.Second

// showProgress draws a bar while catching up on a terminal, and writes a line now
// and then elsewhere: an agent that has nothing to do says nothing.
func showProgress(ctx context.Context, status func() control.Status, screen *screen, log *slog.Logger) error {
	every := progressInterval
	if screen.terminal {
		every = 250 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer screen.hideBar()
	last := status().Offsets
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := status()
		if screen.terminal {
			screen.showBar(s)
			continue
		}
		if s.Offsets == last {
			continue
		}
		last = s.Offsets
		log.Info("progress", "state", string(s.State), "verified", s.Offsets.Verified, "acked", s.Offsets.Acked,
			"source", s.Offsets.Source, "lagBytes", s.LagBytes, "bytesPerSecond", int64(s.BytesPerSecond))
	}
}
