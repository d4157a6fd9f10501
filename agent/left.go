package agent

import (
	"os"
	"path/filepath"
	"time"

	"github.com/haagent/haagent/agent/replica"
)

// Left is what agents that have ended left on disk of a store.
type Left struct {
	Dir string
	// Replica is what a replica's agent knew; nil where none has run there, or where
	// what it wrote cannot be read: Unread says why.
	Replica *replica.State
	Written time.Time // when that was written
	Unread  error
	// Cluster and BrokerName are the group that a master's agent has served; empty
	// where none has.
	Cluster, BrokerName string
	// Held says who has the lock of the store, nil where nobody has: it matches
	// replica.ErrLocked.
	Held error
}

// LeftIn looks at what is left at dir. It changes nothing, and may be asked of any
// directory.
func LeftIn(dir string) Left {
	l := Left{Dir: dir, Held: replica.CheckLock(dir)}
	path := filepath.Join(replica.AgentDir(dir), "state.json")
	if info, err := os.Stat(path); err == nil {
		l.Written = info.ModTime()
		st, err := replica.ReadState(dir)
		if err == nil {
			l.Replica = &st
		}
		l.Unread = err
	}
	if past, err := recall(dir); err == nil {
		l.Cluster, l.BrokerName = past.Cluster, past.BrokerName
	}
	return l
}
