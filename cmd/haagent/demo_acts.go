package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/verify"
	"github.com/haagent/haagent/wire"
)

// When the second slave goes, when it comes back, and when the writer stops, in
// parts of the duration.
const (
	demoGoes  = 0.45
	demoBack  = 0.65
	demoStops = 1
)

// play moves through the acts. The agents run in a group. It returns where the
// promoted copies end, by node.
func (d *demo) play(ctx context.Context, group *errgroup.Group) (map[string]wire.PhyOffset, error) {
	if err := d.open(ctx, group); err != nil {
		return nil, err
	}
	if err := d.part(ctx, group); err != nil {
		return nil, err
	}
	return d.close(ctx)
}

// open lets the agents find each other, and the slaves catch up.
func (d *demo) open(ctx context.Context, group *errgroup.Group) error {
	d.say("in %s: source, a broker's store of %s", d.dir, bytesText(d.broker.writer.End()))
	d.say("it grows by %s/s; beside it and to copy it run:", humanize.IBytes(uint64(d.rate)))
	d.say("haagent --role master --dir source --broker %s", d.master.cfg.Broker)
	if err := d.master.start(ctx, group); err != nil {
		return err
	}
	d.broker.tell(func(end wire.PhyOffset) { d.waits.begin(ctx, end) })
	for _, x := range d.slaves {
		d.say("haagent --role slave --dir %s --join %s", x.cfg.Node, d.ring.seed)
		if err := x.start(ctx, group); err != nil {
			return err
		}
	}
	for _, x := range d.slaves {
		if err := d.untilInSync(ctx, x); err != nil {
			return err
		}
	}
	d.waits.move(demoTogether)
	d.say("both slaves have found the master and caught up; producers wait")
	return nil
}

// part sends one slave away for a while.
func (d *demo) part(ctx context.Context, group *errgroup.Group) error {
	x := d.slaves[1]
	if err := d.untilPart(ctx, demoGoes); err != nil {
		return err
	}
	if err := d.untilSteady(ctx); err != nil {
		return err
	}
	d.waits.move(demoChanging)
	d.say("%s goes away; the source goes on, with one slave in reach", x.cfg.Node)
	if err := x.leave(ctx); err != nil {
		return fmt.Errorf("demo: the end of %s: %w", x.cfg.Node, err)
	}
	err := d.until(ctx, "the master to miss "+x.cfg.Node, func() (bool, string) {
		s, _ := d.master.status()
		return len(s.Replicas) < len(d.slaves), fmt.Sprintf("it has %d replicas", len(s.Replicas))
	})
	if err != nil {
		return err
	}
	d.waits.move(demoAway)
	if err := d.untilPart(ctx, demoBack); err != nil {
		return err
	}
	err = d.until(ctx, "a wait for 2 slaves to time out", func() (bool, string) { return d.waits.timedOut() > 0, "none has" })
	if err != nil {
		return err
	}
	missed := d.broker.writer.End().Sub(x.holds())
	d.waits.move(demoChanging)
	d.say("%s comes back and asks for the %s that it missed", x.cfg.Node, humanize.IBytes(uint64(missed)))
	if err := x.start(ctx, group); err != nil {
		return err
	}
	if err := d.untilInSync(ctx, x); err != nil {
		return err
	}
	d.waits.move(demoTogether)
	d.say("%s has caught up", x.cfg.Node)
	if err := d.untilPart(ctx, demoStops); err != nil {
		return err
	}
	return d.untilSteady(ctx)
}

// close stops the writer, waits until the slaves have everything, and promotes
// both.
func (d *demo) close(ctx context.Context) (map[string]wire.PhyOffset, error) {
	d.broker.pause()
	d.waits.drain()
	end := d.broker.writer.End()
	d.say("the writer stops at %d", end)
	a, err := d.waits.client.Wait(ctx, control.WaitRequest{Now: true, Acks: len(d.slaves), Timeout: demoPatience})
	if err != nil {
		return nil, fmt.Errorf("demo: the wait for the end: %w", err)
	}
	if a.Result != acks.PutOK || a.Offset != end {
		return nil, &exitError{code: exitNotConnected, err: fmt.Errorf("the wait for %d, the end, was answered %s for %d: %s", end, a.Result, a.Offset, a.Reason)}
	}
	want, err := readDemoConfig(d.broker.dir)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	ends := make(map[string]wire.PhyOffset)
	for _, x := range d.slaves {
		if err := d.untilConfigured(ctx, x, want); err != nil {
			return nil, err
		}
	}
	for _, x := range d.slaves {
		p, err := x.client().Promote(ctx)
		if err != nil {
			return nil, fmt.Errorf("demo: promote %s: %w", x.cfg.Node, err)
		}
		ends[x.cfg.Node] = p.End
	}
	d.say("both slaves hold everything and are promoted; the copies are compared")
	return ends, d.master.leave(ctx)
}

// untilInSync waits until a slave follows closely.
func (d *demo) untilInSync(ctx context.Context, x *demoAgent) error {
	return d.until(ctx, x.cfg.Node+" to catch up", func() (bool, string) {
		s, _ := x.status()
		return d.inSync(s), fmt.Sprintf("it is in state %s, %s behind: %s", s.State, humanize.IBytes(uint64(d.broker.writer.End().Sub(max(s.Offsets.Verified, 0)))), s.Reason)
	})
}

// untilConfigured waits until a slave has the config files.
func (d *demo) untilConfigured(ctx context.Context, x *demoAgent, want map[string][]byte) error {
	return d.until(ctx, x.cfg.Node+" to have the config files", func() (bool, string) {
		s, _ := x.status()
		same := 0
		for _, f := range s.Metadata.Files {
			sum := sha256.Sum256(want[f.Name])
			if f.SHA256 == hex.EncodeToString(sum[:]) {
				same++
			}
		}
		return same == len(want), fmt.Sprintf("it has %d of %d as they are", same, len(want))
	})
}

// untilSteady waits until producers have waited for both slaves a few times, with
// both in sync since the phase began.
func (d *demo) untilSteady(ctx context.Context) error {
	const few = 10
	return d.until(ctx, "waits for 2 slaves to be answered", func() (bool, string) {
		n := d.waits.steady()
		return n >= few, fmt.Sprintf("%d of %d are", n, few)
	})
}

// untilPart waits until a part of the duration is over.
func (d *demo) untilPart(ctx context.Context, part float64) error {
	return d.until(ctx, "time to pass", func() (bool, string) {
		return time.Since(d.began) >= time.Duration(part*float64(d.duration)), ""
	})
}

// until waits for what, and says how far it has come where that takes too long.
func (d *demo) until(ctx context.Context, what string, done func() (ok bool, now string)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, now := done()
		if ok {
			return nil
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if !errors.Is(context.Cause(ctx), errDemoTooLong) {
			return ctx.Err()
		}
		return &exitError{code: exitNotConnected, try: "give a smaller --rate, or look at --verbose",
			err: fmt.Errorf("demo: waited in vain for %s: %s", what, now)}
	}
}

// verdict compares what is on the disk, and says what was answered to producers.
func (d *demo) verdict(ctx context.Context, ends map[string]wire.PhyOffset) error {
	d.screen.settle()
	want, err := readDemoConfig(d.broker.dir)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	var lines []string
	for _, x := range d.slaves {
		line, err := d.compare(ctx, x, ends[x.cfg.Node], want)
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	tally, fault := d.waits.result()
	if fault != nil {
		return fault
	}
	for i, t := range tally {
		if t.ok == 0 || i > 0 && t.late == 0 {
			return &exitError{code: exitNotConnected, err: fmt.Errorf("of the waits for %s %d were answered PUT_OK, %d FLUSH_SLAVE_TIMEOUT", slaves(i+1), t.ok, t.late)}
		}
		p50, p99 := t.percentiles()
		lines = append(lines, fmt.Sprintf("acks %d   %s waits PUT_OK, p50 %s, p99 %s", i+1, humanize.Comma(int64(t.ok)), timeText(p50), timeText(p99)))
		if i > 0 {
			lines = append(lines, fmt.Sprintf("acks %d   %s waits FLUSH_SLAVE_TIMEOUT, all with %s away or catching up", i+1, humanize.Comma(int64(t.late)), d.slaves[1].cfg.Node))
		}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(d.out, line); err != nil {
			return err
		}
	}
	return nil
}

// compare holds a promoted copy against the source.
func (d *demo) compare(ctx context.Context, x *demoAgent, end wire.PhyOffset, want map[string][]byte) (string, error) {
	r, err := verify.Compare(ctx, d.broker.dir, x.cfg.Dir, nil)
	if err != nil {
		return "", fmt.Errorf("demo: compare %s: %w", x.cfg.Node, err)
	}
	if !r.Same() || r.From != r.A.Min || r.A.End != r.B.End || r.A.Messages != r.B.Messages || end != r.A.End {
		return "", &exitError{code: exitDifferent, err: fmt.Errorf("%s is not equal: the source goes from %d to %d with %d messages, the copy from %d to %d with %d and was promoted at %d; first difference %d",
			x.cfg.Node, r.A.Min, r.A.End, r.A.Messages, r.B.Min, r.B.End, r.B.Messages, end, r.Different)}
	}
	got, err := readDemoConfig(x.cfg.Dir)
	if err != nil {
		return "", &exitError{code: exitDifferent, err: fmt.Errorf("%s lacks a config file: %w", x.cfg.Node, err)}
	}
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			return "", &exitError{code: exitDifferent, err: fmt.Errorf("%s is not equal: %s differs from the source's", x.cfg.Node, filepath.Join(x.cfg.Dir, "config", name))}
		}
	}
	return fmt.Sprintf("%s  identical up to %d: %s, %s messages, %d config files",
		x.cfg.Node, r.IdenticalTo, humanize.IBytes(uint64(r.IdenticalTo.Sub(r.From))), humanize.Comma(r.B.Messages), len(want)), nil
}
