package agent

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// condition is what an agent knows about itself. It belongs to no goroutine:
// whoever learns something tells it, whoever asks gets a copy.
type condition struct {
	log *slog.Logger
	now func() time.Time

	mu       sync.Mutex
	state    state.State
	problem  state.Problem // zero unless stuck
	reason   string        // what is waited for, where nothing is stuck
	since    time.Time
	repeated int       // reports of the same trouble that were not logged
	logged   time.Time // when the present trouble was last logged
	followed bool      // a source has been followed since the start

	cluster, brokerName string
	segmentSize         wire.ByteSize
	source              control.Source
	// fill adds what the present role knows: positions, files, replicas.
	fill func(s *control.Status, now time.Time)
	rate rate
	// rewound is the last cut; nil before one.
	rewound *control.Rewound

	counts   *control.Counts
	diskFree atomic.Int64 // bytes; -1 not known
}

// know replaces what is known beyond the state.
func (c *condition) know(change func(c *condition)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// repeatAfter is how often trouble that lasts in a state is logged again. That there
// is nobody to follow is no news as long as the reason stays the same.
func repeatAfter(s state.State) time.Duration {
	if s == state.Searching {
		return 5 * time.Minute
	}
	return 30 * time.Second
}

// waiting says what is waited for where nothing is wrong.
type waiting string

// Error implements error.
func (w waiting) Error() string { return string(w) }

// set changes the state and logs the change, once: a trouble that repeats is
// counted and logged again every repeatAfter, a search also when it has another
// reason.
func (c *condition) set(s state.State, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var problem state.Problem
	reason := ""
	if p := state.AsProblem(err); p != nil {
		problem = *p
		reason = p.Error()
	} else if err != nil {
		reason = err.Error()
	}
	now := c.now()
	same := s == c.state && problem.Code == c.problem.Code
	known := s != state.Searching || reason == c.reason
	if !same {
		c.since, c.repeated = now, 0
		if s == state.Diverged || s == state.SourceReplaced {
			c.counts.Divergences.Add(1)
		}
	} else if known && reason != "" && c.reason != "" && now.Sub(c.logged) < repeatAfter(s) {
		c.repeated++
		c.problem, c.reason = problem, reason
		return
	}
	changed := !same || reason != c.reason
	c.state, c.problem, c.reason = s, problem, reason
	c.followed = c.followed || s == state.CatchingUp || s == state.Streaming
	if !changed && c.repeated == 0 {
		return
	}
	c.logged = now
	c.tell(err)
	c.repeated = 0
}

// tell logs the state, which err is the reason of. mu is held.
func (c *condition) tell(err error) {
	args := []any{"state", string(c.state)}
	if c.repeated > 0 {
		args = append(args, "repeated", c.repeated)
	}
	if c.problem.State != "" {
		args = append(args, "code", c.problem.Code)
		if c.problem.Err != nil {
			args = append(args, "cause", c.problem.Err)
		}
		c.log.Error(c.problem.Reason+". Try: "+c.problem.Try, args...)
		return
	}
	var normal waiting
	var searching *errSearching
	switch {
	case err == nil:
		c.log.Info(string(c.state), args...)
	case errors.As(err, &normal), errors.As(err, &searching) && !c.followed && c.repeated == 0: // agents start in any order
		c.log.Info(c.reason, args...)
	default:
		c.log.Warn(c.reason, args...)
	}
}

// status builds the answer for whoever asks.
func (c *condition) status(cfg Config) control.Status {
	var expires time.Time
	if cfg.Security != nil {
		expires = cfg.Security.CertExpires() // looks at files, and so before the lock
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	s := control.Status{
		Version: cfg.Version, Node: cfg.Node, Role: string(cfg.Role),
		State: c.state, Code: c.problem.Code, Reason: c.reason, Try: c.problem.Try, Since: c.since.UTC(),
		Cluster: c.cluster, BrokerName: c.brokerName, BrokerID: cfg.BrokerID,
		Dir: absolute(cfg.Dir), Ack: string(cfg.Ack), SegmentSize: c.segmentSize, Source: c.source,
		Offsets:  control.Offsets{Min: wire.NoOffset, Received: wire.NoOffset, Written: wire.NoOffset, Verified: wire.NoOffset, Flushed: wire.NoOffset, Acked: wire.NoOffset, Source: wire.NoOffset},
		Replicas: []control.Replica{}, Members: members(cfg.Finder),
		Metadata: control.Metadata{AgeSeconds: -1, Files: []control.MetadataFile{}}, DiskFreeBytes: c.diskFree.Load(), CertExpires: expires, Rewound: c.rewound,
	}
	if c.state == state.Searching && s.Try == "" {
		s.Try = trySearching(cfg)
	}
	if c.fill != nil {
		c.fill(&s, now)
	}
	if cfg.Role == RoleSlave {
		s.Source.Connected = c.state == state.CatchingUp || c.state == state.Streaming
	}
	s.BytesPerSecond = c.rate.observe(now, s.Offsets.Verified)
	return s
}

// absolute returns the path of a directory as others may use it, who are elsewhere.
func absolute(dir string) string {
	full, err := filepath.Abs(dir)
	if dir == "" || err != nil {
		return dir
	}
	return full
}

// filled is what a slave's session knows.
func filled(store *replica.Store, from origin, f follower, config *metadataLoop) func(*control.Status, time.Time) {
	return func(s *control.Status, now time.Time) {
		ends, source := store.Ends(), f.SourceEnd()
		s.Source, s.Segments = from.source(), store.Segments()
		s.Messages, s.HistoryFrom = store.Messages(), store.State().HistoryFrom
		if source != wire.NoOffset {
			source = max(source, ends.Verified)
			s.LagBytes = int64(source.Sub(max(ends.Verified, 0)))
		}
		if stored := store.LastStored(); s.LagBytes > 0 && !stored.IsZero() {
			s.LagSeconds = max(0, now.Sub(stored).Seconds())
		}
		s.Offsets = offsets(ends, max(f.Received(), ends.Written), source)
		s.Metadata = config.status(now)
	}
}

// remembered is what is left of a session that has ended.
func remembered(ends replica.Ends, segments int, config *metadataLoop) func(*control.Status, time.Time) {
	return func(s *control.Status, now time.Time) {
		s.Segments = segments
		s.Offsets = offsets(ends, ends.Written, wire.NoOffset)
		s.Metadata = config.status(now)
	}
}

func offsets(ends replica.Ends, received, source wire.PhyOffset) control.Offsets {
	return control.Offsets{Min: ends.Min, Received: received, Written: ends.Written, Verified: ends.Verified,
		Flushed: ends.Flushed, Acked: ends.Acked, Source: source}
}

// spaceInterval is how often the free space is looked at. Whoever asks is told what
// was seen last, because a broken disk may take for ever to answer.
const spaceInterval = 5 * time.Second

// watchSpace keeps what is known of the free space current until ctx ends.
func (a *Agent) watchSpace(ctx context.Context) {
	tick := time.NewTicker(spaceInterval)
	defer tick.Stop()
	for {
		free, err := replica.Space(a.cfg.CommitLogDir)
		if err != nil { // it is not there yet
			free, err = replica.Space(a.cfg.Dir)
		}
		if err != nil {
			free = -1
		}
		a.cond.diskFree.Store(int64(free))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// trySearching is the next step for a slave that has nobody to follow.
func trySearching(cfg Config) string {
	if cfg.Finder != nil {
		return "start haagent --role master beside the broker and give both the same --join; haagent members lists who is seen. A broker without agent is followed with --master HOST:10911"
	}
	return tryGiveMaster
}

const tryGiveMaster = "give --master HOST:10911, the address of the broker to follow"

// rate is a speed over the last second or more.
type rate struct {
	at     time.Time
	offset wire.PhyOffset
	speed  float64
}

func (r *rate) observe(now time.Time, offset wire.PhyOffset) float64 {
	if r.at.IsZero() || offset < r.offset {
		r.at, r.offset, r.speed = now, offset, 0
		return 0
	}
	if span := now.Sub(r.at); span >= time.Second {
		r.speed = float64(offset.Sub(r.offset)) / span.Seconds()
		r.at, r.offset = now, offset
	}
	return r.speed
}

func metadataFiles(files []metadata.FileStatus) []control.MetadataFile {
	out := make([]control.MetadataFile, 0, len(files))
	for _, f := range files {
		version := ""
		if f.DataVersion != nil {
			version = f.DataVersion.String()
		}
		out = append(out, control.MetadataFile{Name: f.Name, Size: int64(f.Size), SHA256: f.SHA256.String(),
			DataVersion: version, AgeSeconds: f.Age.Seconds(), Stale: f.Stale})
	}
	return out
}
