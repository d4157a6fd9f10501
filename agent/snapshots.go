package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/haagent/haagent/agent/control"
	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/replica"
	"github.com/haagent/haagent/agent/state"
)

// metadataLoop keeps the broker's config files on the replica: a snapshot every
// interval, installed as far as the verified log covers it.
type metadataLoop struct {
	a         *Agent
	store     *replica.Store
	installer *metadata.Installer
	// collect asks the source; nil where snapshots are offered by its agent.
	collect collector
	node    string          // who offered last; owned by whoever offers
	seen    map[string]bool // what was installed before; owned by whoever installs

	mu     sync.Mutex
	taken  time.Time // of the last snapshot that was had
	err    error     // of the last attempt
	missed bool      // what cannot be had has been logged
}

// newMetadataLoop opens the installer of a store; files that an earlier session
// found changed by somebody else are put back.
func newMetadataLoop(a *Agent, store *replica.Store) (*metadataLoop, error) {
	installer, err := metadata.NewInstaller(store.Dir(), metadata.Options{Log: a.log})
	if err != nil {
		return nil, fmt.Errorf("open config files: %w", err)
	}
	if err := rewindConfig(installer, store, a.log); err != nil {
		return nil, err
	}
	return &metadataLoop{a: a, store: store, installer: installer, seen: map[string]bool{}}, nil
}

// rewindConfig replaces positions that the recovered log does not cover any
// more by the newest ones that it does: consumers would skip what is written
// there later.
func rewindConfig(installer *metadata.Installer, store *replica.Store, log *slog.Logger) error {
	names, err := installer.Rewind(max(store.Ends().Verified, 0))
	if len(names) > 0 {
		log.Warn("positions beyond the end of the log went back to earlier ones", "files", names)
	}
	if errors.Is(err, metadata.ErrAhead) {
		log.Warn("positions beyond the end of the log stay until the log covers them", "cause", err)
		return nil
	}
	return err
}

// Run takes snapshots until ctx ends. Trouble with them is in the status and in
// the log, and never stops the log itself.
func (m *metadataLoop) Run(ctx context.Context) error {
	tick := time.NewTicker(m.a.cfg.MetadataInterval)
	defer tick.Stop()
	m.snapshot(ctx)
	retry := time.NewTicker(2 * time.Second) // a source that has just booted is asked again soon
	defer retry.Stop()
	settle := time.NewTicker(installInterval)
	defer settle.Stop()
	for {
		m.install()
		select {
		case <-ctx.Done():
			return nil
		case <-retry.C:
			if m.lastError() != nil {
				m.snapshot(ctx)
			}
		case <-tick.C:
			m.snapshot(ctx)
		case <-settle.C: // what waits for the log may be covered now
		}
	}
}

// installInterval bounds how long positions wait when the log has caught up
// with them.
const installInterval = 500 * time.Millisecond

func (m *metadataLoop) lastError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// snapshot asks the source for everything once.
func (m *metadataLoop) snapshot(ctx context.Context) {
	if m.collect == nil {
		return
	}
	s, missing, err := m.collect(ctx)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = m.installer.Offer(s)
	}
	m.note(err)
	if err == nil {
		m.mention(missing)
	}
}

// offer takes a snapshot that the agent of that name has sent. Another agent
// counts its snapshots anew.
func (m *metadataLoop) offer(node string, s metadata.Snapshot) error {
	if m.node != node {
		m.node = node
		m.installer.Rebase()
	}
	err := m.installer.Offer(s)
	m.note(err)
	return err
}

// failed is told how the connection for config files fares.
func (m *metadataLoop) failed(err error) {
	if err != nil {
		m.note(err)
	}
}

// note takes down how an attempt ended.
func (m *metadataLoop) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.err == nil {
			m.a.log.Warn("no snapshot of the config files; the ones in place stay", "cause", err)
		}
		m.err = err
		return
	}
	if m.err != nil {
		m.a.log.Info("snapshots of the config files are taken again")
	}
	m.taken, m.err = time.Now(), nil
}

// mention logs once what a broker does not hand out.
func (m *metadataLoop) mention(missing []metadata.Missing) {
	if !m.missed {
		m.missed = true
		var names []string
		for _, k := range metadata.NotOverStock() {
			names = append(names, k.Name)
		}
		for _, r := range missing {
			if r.Err != nil {
				m.a.log.Warn("the source answers a metadata request with something else", "request", r.Request.String(), "cause", r.Err)
			}
		}
		m.a.log.Info("a broker does not hand out these files, so they are not replicated", "files", names)
	}
}

// install puts in place what the verified log covers.
func (m *metadataLoop) install() {
	verified := max(m.store.Ends().Verified, 0)
	names, err := m.installer.Install(verified)
	if err != nil {
		m.a.log.Error("config files cannot be installed", "cause", replica.Problem(m.store.Dir(), err))
	}
	m.installed(names)
}

// installed logs which files were put in place: the first time for people, later
// changes, which never end on a broker that works, for those who look closer.
func (m *metadataLoop) installed(names []string) {
	if len(names) == 0 {
		return
	}
	say := m.a.log.Debug
	for _, name := range names {
		if !m.seen[name] {
			say = m.a.log.Info
			m.seen[name] = true
		}
	}
	say("installed config files", "files", names)
}

// intact puts back what somebody else changed among the installed files, and
// says so with an error matching replica.ErrDisturbed.
func (m *metadataLoop) intact() error {
	changed, err := m.installer.Check()
	if err != nil || len(changed) == 0 {
		return err
	}
	if _, err := m.installer.Repair(); err != nil {
		return fmt.Errorf("restore config files %v: %w", changed, err)
	}
	return &state.Problem{State: state.Disturbed, Code: "config_changed", Err: replica.ErrDisturbed,
		Reason: fmt.Sprintf("somebody else changed %v; restored", changed), Try: "stop whatever else works on " + m.store.Dir()}
}

// status is the metadata part of the status.
func (m *metadataLoop) status(now time.Time) control.Metadata {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := control.Metadata{AgeSeconds: -1, Generation: m.installer.Generation(), Files: metadataFiles(m.installer.Status())}
	if !m.taken.IsZero() {
		out.AgeSeconds = now.Sub(m.taken).Seconds()
	}
	if m.err != nil {
		out.Error = m.err.Error()
	}
	return out
}
