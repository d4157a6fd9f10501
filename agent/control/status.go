package control

import (
	"time"

	"github.com/haagent/haagent/agent/state"
	"github.com/haagent/haagent/wire"
)

// Status is the answer of GET /v1/status. Fields are only ever added. Offsets
// are JSON integers; -1 stands for "not known" or "nothing yet".
type Status struct {
	Version string      `json:"version"`
	Node    string      `json:"node"`
	Role    string      `json:"role"`
	State   state.State `json:"state"`
	Code    string      `json:"code"`   // of a stuck state, empty otherwise
	Reason  string      `json:"reason"` // what is wrong, or what is waited for
	Try     string      `json:"try"`    // the next step
	Since   time.Time   `json:"since"`  // when the state began

	Cluster     string        `json:"cluster"`
	BrokerName  string        `json:"brokerName"`
	BrokerID    int64         `json:"brokerId"`
	Dir         string        `json:"dir"`
	Ack         string        `json:"ack"`
	SegmentSize wire.ByteSize `json:"segmentSize"`
	// HistoryFrom is > 0 where the replica lacks what the source had before it.
	HistoryFrom wire.PhyOffset `json:"historyFrom"`

	Source         Source  `json:"source"`
	Offsets        Offsets `json:"offsets"`
	LagBytes       int64   `json:"lagBytes"`
	LagSeconds     float64 `json:"lagSeconds"`
	BytesPerSecond float64 `json:"bytesPerSecond"`
	Messages       int64   `json:"messages"` // verified since the start

	Segments      int   `json:"segments"`      // files of the log
	DiskFreeBytes int64 `json:"diskFreeBytes"` // of the file system that holds the log; -1 not known
	// CertExpires is when this agent's certificate for the link ends; absent
	// where it has none.
	CertExpires time.Time `json:"certExpires,omitzero"`

	// Rewound is the last cut since the agent's start; absent where there was none.
	Rewound *Rewound `json:"rewound,omitempty"`

	Metadata Metadata  `json:"metadata"`
	Replicas []Replica `json:"replicas"`
	// Guarantee is what producers of a master's broker can rely on; absent
	// elsewhere.
	Guarantee *Guarantee `json:"guarantee,omitempty"`
	Members   []Member   `json:"members"`
}

// Source is whom a slave follows.
type Source struct {
	Kind string `json:"kind"` // broker or agent
	Addr string `json:"addr"`
	Node string `json:"node"`
	// Connected says that it answers now: a slave has its log from there, a
	// master's broker tells where its log ends.
	Connected bool `json:"connected"`
}

// Rewound says how a replica was cut back to where it parted from its source.
type Rewound struct {
	At      wire.PhyOffset `json:"at"`      // the end that was left
	Bytes   wire.ByteSize  `json:"bytes"`   // cut off, at least 1
	Salvage string         `json:"salvage"` // the directory that keeps them
	Time    time.Time      `json:"time"`
}

// Offsets are the positions of the log, each at or below the next one up to
// received.
type Offsets struct {
	Min      wire.PhyOffset `json:"min"`
	Received wire.PhyOffset `json:"received"`
	Written  wire.PhyOffset `json:"written"`
	Verified wire.PhyOffset `json:"verified"`
	Flushed  wire.PhyOffset `json:"flushed"`
	Acked    wire.PhyOffset `json:"acked"`
	Source   wire.PhyOffset `json:"source"`
}

// Metadata says how current the broker's config files are.
type Metadata struct {
	Generation uint64         `json:"generation"`
	AgeSeconds float64        `json:"ageSeconds"` // since the source was last asked with success; -1 never
	Error      string         `json:"error,omitempty"`
	Files      []MetadataFile `json:"files"`
}

// MetadataFile is one of them.
type MetadataFile struct {
	Name        string  `json:"name"`
	Size        int64   `json:"size"`
	SHA256      string  `json:"sha256"`
	DataVersion string  `json:"dataVersion"`
	AgeSeconds  float64 `json:"ageSeconds"`
	Stale       bool    `json:"stale"`
}

// Replica is one follower of a master.
type Replica struct {
	Node       string         `json:"node"`
	Kind       string         `json:"kind"`
	Addr       string         `json:"addr"`
	State      state.State    `json:"state"`
	Acked      wire.PhyOffset `json:"acked"`
	Flushed    wire.PhyOffset `json:"flushed"`
	LagBytes   int64          `json:"lagBytes"`
	LagSeconds float64        `json:"lagSeconds"`
	Ack        string         `json:"ack"`
}

// Guarantee says what the SEND_OK of a master's broker means.
type Guarantee struct {
	Text  string `json:"text"`  // for people
	Waits bool   `json:"waits"` // SEND_OK says that at least one replica has the message
	// RelayAcks is how many replicas the broker is told of; 0: it is told of none.
	RelayAcks      int            `json:"relayAcks"`
	RelayConnected bool           `json:"relayConnected"` // so many are in reach, and the broker knows
	Relayed        wire.PhyOffset `json:"relayed"`        // the last that it was told; -1 nothing
	Code           string         `json:"code,omitempty"` // of what keeps a relay from its work
	Try            string         `json:"try,omitempty"`
}

// Member is one agent in the gossip.
type Member struct {
	Node       string `json:"node"`
	Addr       string `json:"addr"`
	Role       string `json:"role"`
	Cluster    string `json:"cluster"`
	BrokerName string `json:"brokerName"`
	BrokerID   int64  `json:"brokerId"`
	Status     string `json:"status"`
	Version    string `json:"version"` // of its program
}

// Promotion is the answer to a promote request.
type Promotion struct {
	Dir          string         `json:"dir"`
	CommitLogDir string         `json:"commitLogDir"` // where the segments are; empty from an older agent
	Cluster      string         `json:"cluster"`
	BrokerName   string         `json:"brokerName"`
	SegmentSize  wire.ByteSize  `json:"segmentSize"`
	Min          wire.PhyOffset `json:"min"`
	End          wire.PhyOffset `json:"end"` // the verified end, a message boundary
	Epoch        int64          `json:"epoch"`
}
