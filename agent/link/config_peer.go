package link

import (
	"context"
	"errors"
	"time"

	"github.com/haagent/haagent/agent/metadata"
	wirelink "github.com/haagent/haagent/wire/link"
)

// configPeer is a replica on its metadata connection, seen from the source.
type configPeer struct {
	*pipe
	server *Server
	outbox metadata.Outbox
	sent   uint64 // generation of the last snapshot that was sent
}

func newConfigPeer(s *Server, session *Session) *configPeer {
	return &configPeer{pipe: newPipe(session, s.opt.Timing.Silence), server: s}
}

// run waits for the replica's start, then sends each new snapshot, and heartbeats
// between them. A replica that only asked who we are never starts.
func (p *configPeer) run(ctx context.Context) error {
	p.expect(wirelink.TypeStart)
	if err := p.alone(ctx, func() error { _, err := p.next(ctx); return err }); err != nil {
		return errors.Join(err, p.part(ctx, err))
	}
	return p.duplex(ctx, p.listen, p.send, ending{})
}

// listen takes the replica's heartbeats.
func (p *configPeer) listen(ctx context.Context) error {
	p.expect(wirelink.TypeHeartbeat)
	for {
		if _, err := p.next(ctx); err != nil {
			return err
		}
	}
}

func (p *configPeer) send(ctx context.Context) error {
	tick := time.NewTicker(p.server.opt.Timing.Heartbeat)
	defer tick.Stop()
	var moved <-chan struct{}
	if p.server.opt.Config != nil {
		var stop func()
		moved, stop = p.server.opt.Config.Listen()
		defer stop()
	}
	for {
		if err := p.snapshot(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-moved:
		case <-tick.C:
			if err := p.server.admit(); err != nil {
				return err
			}
			ends := p.server.opt.Source.Ends()
			if err := p.write(ctx, &wirelink.Heartbeat{Min: ends.Min, Confirmed: ends.Confirmed, Visible: ends.Visible}); err != nil {
				return err
			}
		}
	}
}

// snapshot sends the latest snapshot, if it is a new one.
func (p *configPeer) snapshot(ctx context.Context) error {
	if p.server.opt.Config == nil {
		return nil
	}
	s, ok := p.server.opt.Config.Latest()
	if !ok || s.Generation == p.sent {
		return nil
	}
	p.sent = s.Generation
	parcel := p.outbox.Pack(s)
	m := &wirelink.Snapshot{Generation: parcel.Generation, TakenAt: parcel.TakenAt.UnixMilli(), SourceEnd: parcel.SourceEnd}
	for _, item := range parcel.Items {
		m.Files = append(m.Files, wirelink.FileEntry{Name: item.Name, Size: item.Size, Sum: item.SHA256, Follows: item.Follows})
	}
	if err := p.write(ctx, m); err != nil {
		return err
	}
	for c := range parcel.Chunks(wirelink.MaxPiece) {
		if err := p.write(ctx, &wirelink.File{Index: uint16(c.Index), Offset: c.Offset, Data: c.Bytes}); err != nil {
			return err
		}
	}
	return nil
}
