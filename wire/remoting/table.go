package remoting

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ParseKVTable reads the body of an answer to GetBrokerRuntimeInfo: a JSON
// object whose member table maps names to texts. It returns an error that
// matches ErrBody where the body is something else.
func ParseKVTable(body []byte) (map[string]string, error) {
	var t struct {
		Table map[string]text `json:"table"`
	}
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("%w: table of %d bytes: %w", ErrBody, len(body), err)
	}
	if t.Table == nil {
		return nil, fmt.Errorf("%w: no table in %d bytes", ErrBody, len(body))
	}
	m := make(map[string]string, len(t.Table))
	for k, v := range t.Table {
		m[k] = string(v)
	}
	return m, nil
}

// ErrBody is matched by errors about an answer's body that is not what its
// request promises.
var ErrBody = errors.New("unexpected answer body")
