package discovery

import (
	"cmp"
	"time"
)

// What Member.Status says.
const (
	Alive   = "alive"
	Suspect = "suspect" // did not answer a probe and has not yet refuted that
	Dead    = "dead"    // did not refute being suspect in time
	Left    = "left"    // said that it goes
)

// Member is one agent as gossip knows it.
type Member struct {
	// Node is the member's name, unique in the ring: 1 to 128 bytes.
	Node string
	// Addr is HOST:PORT of its gossip, as it advertises it.
	Addr string

	// What the member says of itself. All are empty or 0 where its meta cannot be
	// read: a program that is not an agent, or one that is much newer.
	Role       string // master, slave or observer
	Cluster    string
	BrokerName string
	BrokerID   int64
	Link       string // HOST:PORT of its agent link; empty: none
	HA         string // HOST:PORT of its stock HA stream; empty: none
	Remoting   string // HOST:PORT of its stock metadata requests; empty: none
	Epoch      int64  // of a master: the higher one wins
	Version    string // of its program

	// Status is alive, suspect, dead or left, and Since is when this agent saw it
	// become so.
	Status string
	Since  time.Time
}

// compareNodes orders members by name, for slices.SortFunc.
func compareNodes(a, b Member) int { return cmp.Compare(a.Node, b.Node) }

// gone reports whether a member of that status takes no part any more.
func gone(status string) bool { return status == Dead || status == Left }
