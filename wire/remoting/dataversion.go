package remoting

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// DataVersion stamps a set of metadata, such as all topics: a change raises the
// counter and sets the time.
type DataVersion struct {
	// StateVersion is the broker's epoch in controller mode, else 0. Brokers
	// before 5.0 do not have it.
	StateVersion int64
	// Counter is the number of changes since the store was made.
	Counter int64
	// Timestamp is the time of the last change in milliseconds since 1970.
	Timestamp int64
}

type jsonVersion struct {
	Counter      *int64 `json:"counter"`
	StateVersion int64  `json:"stateVersion"`
	Timestamp    int64  `json:"timestamp"`
}

// MarshalJSON writes the form of 5.x; brokers before it ignore stateVersion.
func (v DataVersion) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonVersion{Counter: &v.Counter, StateVersion: v.StateVersion, Timestamp: v.Timestamp})
}

// UnmarshalJSON reads the forms of both generations: without stateVersion, with
// members that it does not know, with a counter of null.
func (v *DataVersion) UnmarshalJSON(b []byte) error {
	var j jsonVersion
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("data version: %w", err)
	}
	*v = DataVersion{StateVersion: j.StateVersion, Timestamp: j.Timestamp}
	if j.Counter != nil {
		v.Counter = *j.Counter
	}
	return nil
}

// Compare returns -1, 0 or +1 as v is older than, the same as or newer than o,
// by state version, then counter, then time, as 5.x brokers do.
func (v DataVersion) Compare(o DataVersion) int {
	return cmp.Or(
		cmp.Compare(v.StateVersion, o.StateVersion),
		cmp.Compare(v.Counter, o.Counter),
		cmp.Compare(v.Timestamp, o.Timestamp),
	)
}

// Equal reports whether both stamp the same state.
func (v DataVersion) Equal(o DataVersion) bool { return v == o }

// String returns the three values as "stateVersion.counter@timestamp".
func (v DataVersion) String() string {
	return fmt.Sprintf("%d.%d@%d", v.StateVersion, v.Counter, v.Timestamp)
}
