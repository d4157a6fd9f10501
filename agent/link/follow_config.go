package link

import (
	"context"
	"fmt"
	"time"

	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// followConfig keeps a connection for config files until ctx ends. Trouble with
// it never stops the log.
func (f *Follower) followConfig(ctx context.Context, addr string) error {
	loop := retry.Loop{First: f.opt.Timing.FirstRetry, Max: 5 * f.opt.Timing.MaxRetry, OnError: f.opt.ConfigState}
	return loop.Run(ctx, func(ctx context.Context) (bool, error) {
		hello, err := f.hello(wirelink.ChannelMetadata)
		if err != nil {
			return false, err
		}
		session, _, err := connect(ctx, addr, hello, f.opt.Security, f.opt.Dial, f.opt.Timing)
		if err != nil {
			return false, problemOf(addr, err)
		}
		defer func() { _ = session.Close() }() // in most cases it is closed by now
		c := &configStream{pipe: newPipe(session, f.opt.Timing.Silence), f: f}
		if err := c.write(ctx, &wirelink.Start{}); err != nil {
			return false, err
		}
		err = c.duplex(ctx, c.read, c.beat, ending{})
		return c.got, problemOf(addr, err)
	})
}

// configStream is a replica's metadata connection.
type configStream struct {
	*pipe
	f     *Follower
	inbox metadata.Inbox
	got   bool // a whole snapshot came
}

// beat keeps the source from believing that the replica has gone.
func (c *configStream) beat(ctx context.Context) error {
	tick := time.NewTicker(c.f.opt.Timing.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if err := c.write(ctx, &wirelink.Heartbeat{Min: wire.NoOffset, Confirmed: wire.NoOffset, Visible: wire.NoOffset}); err != nil {
			return err
		}
	}
}

// read takes snapshots until the connection ends.
func (c *configStream) read(ctx context.Context) error {
	c.expect(wirelink.TypeHeartbeat, wirelink.TypeSnapshot, wirelink.TypeFile)
	for {
		m, err := c.next(ctx)
		if err != nil {
			return err
		}
		var s metadata.Snapshot
		var whole bool
		switch m := m.(type) {
		case *wirelink.Heartbeat:
			continue
		case *wirelink.Snapshot:
			s, whole, err = c.inbox.Begin(manifest(m))
		case *wirelink.File:
			s, whole, err = c.inbox.Chunk(metadata.Chunk{Index: int(m.Index), Offset: m.Offset, Bytes: m.Data})
		default:
			return unexpected(m, "on the metadata channel")
		}
		if err != nil {
			return &goodbye{wirelink.CodeProtocol, fmt.Sprintf("config files cannot be taken: %v", err)}
		}
		if whole {
			c.got = true
			// What is refused is refused for what it is: asking for it again does not help.
			c.f.opt.ConfigState(c.f.opt.Offer(s))
		}
	}
}

func manifest(m *wirelink.Snapshot) metadata.Manifest {
	out := metadata.Manifest{Generation: m.Generation, TakenAt: time.UnixMilli(m.TakenAt), SourceEnd: m.SourceEnd, Items: make([]metadata.Item, len(m.Files))}
	for i, f := range m.Files {
		out.Items[i] = metadata.Item{Name: f.Name, Size: f.Size, SHA256: f.Sum, Follows: f.Follows}
	}
	return out
}
