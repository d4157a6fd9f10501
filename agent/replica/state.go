package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/haagent/haagent/wire"
)

// State is what a replica remembers about itself over restarts, in
// DIR/.haagent/state.json. Every offset in it was true and on disk before it
// was written; the log may be further on.
type State struct {
	Format      int           `json:"format"` // 1
	Cluster     string        `json:"cluster"`
	BrokerName  string        `json:"brokerName"`
	SegmentSize wire.ByteSize `json:"segmentSize"`
	// CommitLogDir is where the segments are, if not in the default place.
	CommitLogDir string         `json:"commitLogDir,omitempty"`
	Start        wire.PhyOffset `json:"start"`       // base of the first segment ever asked for
	VerifiedEnd  wire.PhyOffset `json:"verifiedEnd"` // verified and synced up to here
	LastMessage  wire.PhyOffset `json:"lastMessage"` // where the last message before VerifiedEnd starts; -1 unknown
	Epoch        int64          `json:"epoch"`       // raised by each promotion
	Promoted     bool           `json:"promoted"`    // handed to a broker
	// Boot identifies the run of the kernel under which this was written. Under
	// another one the log behind VerifiedEnd may have lost any of its pages.
	Boot string `json:"boot"`
	// Unsynced says that a sync failed: what lies behind VerifiedEnd may be in
	// the page cache only, and must be written anew.
	Unsynced bool `json:"unsynced,omitempty"`
	// Provisional says that bytes may lie behind VerifiedEnd that the source had
	// not confirmed: whole messages there prove nothing after a crash.
	Provisional bool `json:"provisional,omitempty"`
	// HistoryFrom is > 0 where the source held older messages that could not be
	// asked for (stock HA port alone).
	HistoryFrom wire.PhyOffset `json:"historyFrom,omitempty"`
}

// LogDir returns where the segments of the store at dir are, of which s is the
// state; the zero State has them in the default place.
func (s State) LogDir(dir string) string {
	if s.CommitLogDir != "" {
		return s.CommitLogDir
	}
	return CommitLogDir(dir)
}

const stateFormat = 1

var (
	// ErrNoState says that the directory has no state.json.
	ErrNoState = errors.New("no replica state")
	// ErrStateFormat says that a newer version has written the state.
	ErrStateFormat = errors.New("format of the replica state is not known to this version")
)

// stateFile is the envelope on disk: the CRC covers the bytes of State exactly
// as they stand, so that a reader need not re-encode anything.
//
//	{"crc32c":"1a2b3c4d","state":{"format":1,...}}
type stateFile struct {
	CRC   string          `json:"crc32c"`
	State json.RawMessage `json:"state"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bootID returns what is different after each start of the kernel.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("find out which boot this is: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func statePath(dir string) string { return filepath.Join(AgentDir(dir), "state.json") }

// ReadState returns the state of the replica at dir. The error matches
// ErrNoState where there is none, and otherwise says what is wrong with it.
func ReadState(dir string) (State, error) {
	b, err := os.ReadFile(statePath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return State{}, ErrNoState
	}
	if err != nil {
		return State{}, fmt.Errorf("read replica state: %w", err)
	}
	var f stateFile
	if err := json.Unmarshal(b, &f); err != nil {
		return State{}, fmt.Errorf("%s: %w", statePath(dir), err)
	}
	if want := fmt.Sprintf("%08x", crc32.Checksum(f.State, castagnoli)); f.CRC != want {
		return State{}, fmt.Errorf("%s: CRC is %q, content has %q", statePath(dir), f.CRC, want)
	}
	var s State
	if err := json.Unmarshal(f.State, &s); err != nil {
		return State{}, fmt.Errorf("%s: %w", statePath(dir), err)
	}
	if s.Format != stateFormat {
		return State{}, fmt.Errorf("%s: %w: it is %d, known is %d", statePath(dir), ErrStateFormat, s.Format, stateFormat)
	}
	return s, nil
}

// writeState replaces the state of dir, durably: after it returns, either the
// old or the new one is found, and after a crash too.
func writeState(dir string, s State) error {
	s.Format = stateFormat
	inner, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode replica state: %w", err)
	}
	b, err := json.Marshal(stateFile{CRC: fmt.Sprintf("%08x", crc32.Checksum(inner, castagnoli)), State: inner})
	if err != nil {
		return fmt.Errorf("encode replica state: %w", err)
	}
	tmp := filepath.Join(AgentDir(dir), "tmp")
	if err := os.MkdirAll(tmp, 0o750); err != nil {
		return fmt.Errorf("write replica state: %w", err)
	}
	if err := renameio.WriteFile(statePath(dir), append(b, '\n'), 0o640, renameio.WithTempDir(tmp)); err != nil {
		return fmt.Errorf("write replica state: %w", err)
	}
	return syncDir(AgentDir(dir))
}
