package metadata

import (
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// FileStatus is what is to be said of one installed or waiting file.
type FileStatus struct {
	Name string
	// Size, SHA256 and DataVersion are those of the installed content. A file that
	// only waits so far has none.
	Size        wire.ByteSize
	SHA256      Hash
	DataVersion *remoting.DataVersion
	// Age is how long ago the source was last known to have just this content, 0
	// or more. For a file that only waits it is the age of what waits.
	Age time.Duration
	// Stale is set where newer content is held back, and where the source has not
	// confirmed the file for longer than Options.Stale.
	Stale bool
	// Reason says why, for people.
	Reason string
	// Waits is where the verified log must be for the newest content to be
	// installed, wire.NoOffset where it does not wait for the log.
	Waits wire.PhyOffset
}

// Status returns the files in config/ and those on their way, in the order of
// installation. It does not touch the disk.
func (i *Installer) Status() []FileStatus {
	now := i.opts.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	var list []FileStatus
	for _, k := range known {
		e, c := i.current.entry(k.Name), i.pending[k.Name]
		if !k.Policy.installable() || e == nil && c == nil {
			continue
		}
		s := FileStatus{Name: k.Name, Waits: wire.NoOffset}
		var at time.Time
		if e != nil {
			s.Size, s.SHA256, s.DataVersion = e.Size, e.SHA256, e.DataVersion
			if at = i.confirmed[k.Name]; at.Before(e.TakenAt) {
				at = e.TakenAt
			}
		}
		if c != nil {
			newest := &c.latest().entry
			if e == nil {
				at = newest.TakenAt
			}
			s.Stale = true
			if _, s.Reason = c.ready(k.Policy, i.verified, now, i.opts.Grace); s.Reason == "" {
				s.Reason = "about to be installed"
			}
			if k.Policy == WhenCovered && newest.SourceEnd > i.verified {
				s.Waits = newest.SourceEnd
			}
		}
		if s.Age = max(now.Sub(at), 0); !s.Stale && s.Age > i.opts.Stale {
			s.Stale, s.Reason = true, "not confirmed by the source for "+s.Age.Round(time.Second).String()
		}
		list = append(list, s)
	}
	return list
}
