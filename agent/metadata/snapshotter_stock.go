package metadata

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// ErrDatabases is matched by the error for tables that a broker keeps in RocksDB
// and that nothing but the broker itself can hand out.
var ErrDatabases = errors.New("the broker keeps its tables in RocksDB")

// databaseSource reads a source that has config databases. What the broker's
// properties say decides: databases may be left from an earlier setup.
type databaseSource struct {
	dir       string
	databases []string
	ask       Ask
}

// tables asks the broker where its tables are. A broker that does not say keeps
// them where databases are.
func (d databaseSource) tables(ctx context.Context) (Tables, error) {
	if d.ask == nil {
		return ImportedTables, fmt.Errorf("%w (%s), and there is no broker to ask for them", ErrDatabases, d.databases[0])
	}
	answer, err := d.ask(ctx, remoting.GetBrokerConfig)
	if err != nil {
		return 0, fmt.Errorf("ask for %v: %w", remoting.GetBrokerConfig, err)
	}
	if answer.Answer() != remoting.Success {
		return ImportedTables, nil
	}
	return TablesOf(remoting.ParseProperties(answer.Body)), nil
}

// collect asks the broker for everything that it hands out. What stands in no
// answer is skipped.
func (d databaseSource) collect(ctx context.Context, end func(context.Context) wire.PhyOffset) (Snapshot, []Skipped, error) {
	snapshot, missing, err := Collect(ctx, d.ask, func(ctx context.Context) (wire.PhyOffset, error) { return end(ctx), nil })
	if err != nil {
		return Snapshot{}, nil, err
	}
	failed := make(map[remoting.RequestCode]error)
	for _, m := range missing {
		failed[m.Request] = m.Err
	}
	var skipped []Skipped
	for _, k := range known {
		switch {
		case k.Policy == Never:
		case k.Request == 0 && exists(filepath.Join(d.dir, "config"), k.Name):
			skipped = append(skipped, Skipped{k.Name, fmt.Errorf("%w, and no request yields this file", ErrDatabases)})
		case failed[k.Request] != nil:
			skipped = append(skipped, Skipped{k.Name, failed[k.Request]})
		}
	}
	return snapshot, skipped, nil
}
