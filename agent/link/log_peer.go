package link

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/haagent/haagent/agent/acks"
	"github.com/haagent/haagent/agent/meter"
	"github.com/haagent/haagent/agent/source"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// logPeer is a replica on its log connection, seen from the source.
type logPeer struct {
	*pipe
	server      *Server
	hello       *wirelink.Hello
	turn        uint64         // of the hello
	incarnation uint64         // of the source, from before the replica's bytes were compared with it
	equal       wire.PhyOffset // the replica's verified end, where its bytes were found equal; NoOffset where nothing was
	end         chan error     // one slot: ends the connection from outside
	row         *acks.Conn     // set by Server.enter
	watch       *meter.Stopwatch

	mu      sync.Mutex
	from    wire.PhyOffset // start of what is sent on this connection
	sent    wire.PhyOffset // end of what was handed to the socket
	marks   acks.Marks
	synced  time.Time // when the replica last had everything
	arrived bool      // it has had everything once
}

func newLogPeer(s *Server, session *Session, h *wirelink.Hello, turn, incarnation uint64, equal wire.PhyOffset) *logPeer {
	return &logPeer{pipe: newPipe(session, s.opt.Timing.Silence), server: s, hello: h, turn: turn, incarnation: incarnation, equal: equal, end: make(chan error, 1), watch: s.opt.Traffic.Stopwatch(),
		sent: wire.NoOffset, marks: acks.Marks{Memory: wire.NoOffset, Disk: wire.NoOffset}}
}

// run answers questions until the replica starts, and streams from there.
func (p *logPeer) run(ctx context.Context) error {
	var from wire.PhyOffset
	err := p.alone(ctx, func() (err error) { from, err = p.prepare(ctx); return err })
	if err == nil {
		p.begin(from)
		err = p.server.enter(p)
	}
	if err != nil {
		_ = p.part(ctx, err) // what matters is why
		return err
	}
	defer p.server.leave(p)
	s := newSender(p, from)
	defer s.close()
	// Out of reach before the goodbye, which may take its time.
	return p.duplex(ctx, p.reports, s.run, ending{from: p.end, told: p.row.Leave})
}

// supersede ends the connection: its node has made another one.
func (p *logPeer) supersede() {
	select {
	case p.end <- superseded():
	default:
	}
}

func superseded() error {
	return &goodbye{wirelink.CodeSuperseded, "this node has connected again"}
}

func level(a wirelink.Ack) acks.Level {
	if a == wirelink.AckDisk {
		return acks.Disk
	}
	return acks.Memory
}

// prepare answers the replica's questions and returns where it starts.
func (p *logPeer) prepare(ctx context.Context) (wire.PhyOffset, error) {
	p.expect(wirelink.TypeAsk, wirelink.TypeStart)
	for questions := 0; ; questions++ {
		m, err := p.next(ctx)
		if err != nil {
			return 0, err
		}
		switch m := m.(type) {
		case *wirelink.Ask:
			if questions > maxQuestions {
				return 0, &goodbye{wirelink.CodeProtocol, fmt.Sprintf("more than %d questions", maxQuestions)}
			}
			if err := p.answer(ctx, m); err != nil {
				return 0, err
			}
		case *wirelink.Start:
			return p.start(m.From)
		default:
			return 0, unexpected(m, "before the start")
		}
	}
}

// maxQuestions is more than any bisection of a log needs.
const maxQuestions = 4096

func (p *logPeer) answer(ctx context.Context, m *wirelink.Ask) error {
	a := &wirelink.Answer{At: m.At}
	if sum, err := p.server.opt.Source.Digest(m.At, m.Size); err == nil {
		a.Size, a.Sum = m.Size, sum
	}
	return p.write(ctx, a)
}

// start checks where a replica wants to start. An empty one starts where the log
// does.
func (p *logPeer) start(from wire.PhyOffset) (wire.PhyOffset, error) {
	ends := p.server.opt.Source.Ends()
	empty := p.hello.Verified == wire.NoOffset
	switch {
	case p.changed():
		return 0, sourceChanged()
	case empty && from <= max(ends.Min, 0):
		return max(ends.Min, 0), nil
	case from < ends.Min:
		return 0, &goodbye{wirelink.CodeGap, fmt.Sprintf("the log starts at %d, %d is gone", ends.Min, from)}
	case from > max(ends.Visible, 0):
		return 0, &goodbye{wirelink.CodeProtocol, fmt.Sprintf("start at %d, the log ends at %d", from, ends.Visible)}
	case !empty && from != p.hello.Verified:
		return 0, &goodbye{wirelink.CodeProtocol, fmt.Sprintf("start at %d, the replica ends at %d", from, p.hello.Verified)}
	}
	return from, p.prove(from, ends)
}

// prove sets equal, or returns why the replica cannot start at from, where it says
// that its log ends. Where it holds nothing that the source has as well there is
// nothing to prove, and nothing that it says of it counts.
func (p *logPeer) prove(from wire.PhyOffset, ends source.Ends) error {
	if p.equal != wire.NoOffset {
		return nil
	}
	verdict, told := p.compareEnd() // it may not have been visible at the hello
	switch {
	case verdict == source.Equal:
		p.equal = from
	case verdict == source.Differs:
		return sourceChanged()
	case from <= max(ends.Min, 0), p.hello.Min == p.hello.Verified:
	case !told:
		return &goodbye{wirelink.CodeProtocol, fmt.Sprintf("start at %d, and no digest of what the replica holds ends there", from)}
	default:
		return &goodbye{wirelink.CodeSourceChanged, fmt.Sprintf("whether both logs are equal up to %d cannot be told from the digests; ask anew", from)}
	}
	return nil
}

// compareEnd holds the end of what the replica has against the source. told says
// that the replica gave a digest for that.
func (p *logPeer) compareEnd() (v source.Verdict, told bool) {
	for _, d := range p.hello.Digests {
		if d.At.Add(d.Size) != p.hello.Verified {
			continue
		}
		told = true
		v = max(v, p.server.opt.Source.Compare(d.At, d.Size, d.Sum)) // one that differs outweighs all
	}
	return v, told
}

// changed reports whether the log is not any more what the replica was compared
// with.
func (p *logPeer) changed() bool { return p.server.opt.Source.Incarnation() != p.incarnation }

func sourceChanged() error {
	return &goodbye{wirelink.CodeSourceChanged, "the log is not what it was; ask anew"}
}

// reports takes the replica's reports until the connection ends. It touches no
// file, so that acks never wait for a disk.
func (p *logPeer) reports(ctx context.Context) error {
	p.expect(wirelink.TypeReport)
	for {
		t, payload, err := p.raw(ctx)
		if err != nil {
			return err
		}
		if t != wirelink.TypeReport {
			m, err := decode(t, payload)
			if err != nil {
				return err
			}
			return unexpected(m, "in the stream")
		}
		r, err := wirelink.ParseReport(payload)
		if err != nil {
			return err
		}
		if err := p.take(r); err != nil {
			return err
		}
	}
}

// take moves the replica's marks. What is reported must have been sent on this
// connection and confirmed, or found equal at its beginning (I3). Where nothing was
// found equal, what lies below that beginning is nobody's proof: it counts for
// nothing until the replica has something of what was sent.
func (p *logPeer) take(r wirelink.Report) error {
	if err := p.server.admit(); err != nil {
		return err
	}
	ends := p.server.opt.Source.Ends()
	if p.changed() { // looked at behind the ends, which change later
		return sourceChanged()
	}
	p.mu.Lock()
	limit := max(p.equal, p.from, min(p.sent, ends.Confirmed))
	if r.Verified > limit || r.Flushed > r.Verified {
		p.mu.Unlock()
		return &goodbye{wirelink.CodeProtocol, fmt.Sprintf("report of %d verified and %d flushed, %d was proven", r.Verified, r.Flushed, limit)}
	}
	p.marks = acks.Marks{Memory: max(p.marks.Memory, p.proven(r.Verified)), Disk: max(p.marks.Disk, p.proven(r.Flushed))}
	if max(p.marks.Memory, ends.Min) >= ends.Confirmed {
		p.synced, p.arrived = time.Now(), true
	}
	marks := p.marks
	p.mu.Unlock()
	if level(p.hello.Ack) == acks.Disk {
		p.watch.Acked(marks.Disk)
	} else {
		p.watch.Acked(marks.Memory)
	}
	p.row.Report(marks)
	return nil
}

// proven returns what a reported end counts for. mu is held.
func (p *logPeer) proven(end wire.PhyOffset) wire.PhyOffset {
	if p.equal == wire.NoOffset && end <= p.from {
		return wire.NoOffset
	}
	return end
}

// begin notes where the stream begins: nothing was sent yet.
func (p *logPeer) begin(from wire.PhyOffset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from, p.sent = from, from
}

// sentUpTo notes how far bytes were handed to the socket.
func (p *logPeer) sentUpTo(end wire.PhyOffset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = end
}

// status says how the replica is.
func (p *logPeer) status(now time.Time) Replica {
	ends := p.server.opt.Source.Ends()
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Replica{Node: p.hello.Node, Addr: p.conn.RemoteAddr().String(), State: state.CatchingUp, Ack: level(p.hello.Ack),
		Verified: p.marks.Memory, Flushed: p.marks.Disk, Acked: p.marks.Memory}
	if r.Ack == acks.Disk {
		r.Acked = p.marks.Disk
	}
	r.Lag = max(0, max(ends.Confirmed, 0).Sub(max(r.Verified, ends.Min, 0)))
	if p.arrived && r.Lag <= inSync {
		r.State = state.Streaming
	}
	if r.Lag > 0 && p.arrived {
		r.Behind = now.Sub(p.synced)
	}
	return r
}
