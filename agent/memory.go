package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"github.com/haagent/haagent/agent/replica"
)

// memoryName is the file below DIR/.haagent that a master remembers things in.
const memoryName = "master.json"

// memory is what a master agent remembers about its broker's store over restarts.
type memory struct {
	// Cluster and BrokerName are what the broker has said last, so that they need
	// not be guessed while it is down.
	Cluster    string `json:"cluster,omitempty"`
	BrokerName string `json:"brokerName,omitempty"`
	// SeenEpoch is the highest epoch that another master of the group was seen
	// with, and SeenNode which that was. Below it this store is never served again,
	// whether the other one is in reach or not.
	SeenEpoch int64  `json:"seenEpoch,omitempty"`
	SeenNode  string `json:"seenNode,omitempty"`
}

// recall reads what is remembered; nothing where there is no such file.
func recall(dir string) (memory, error) {
	var m memory
	text, err := os.ReadFile(filepath.Join(replica.AgentDir(dir), memoryName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		return memory{}, fmt.Errorf("read what this master remembers: %w", err)
	}
	return m, nil
}

// keep writes it down.
func (m memory) keep(dir string) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = renameio.WriteFile(filepath.Join(replica.AgentDir(dir), memoryName), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write what this master remembers: %w", err)
	}
	return nil
}
