package metadata

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// databases are the directories in which 5.x brokers keep config tables when they
// are told to use RocksDB.
var databases = []string{"topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb"}

// Databases returns the paths of the RocksDB databases below dir/config that hold
// a broker's tables in place of the JSON files. Where it returns any, the JSON
// files of that store are missing or old: they must not be read, and the
// databases must not be copied while a broker has them open. The tables are to be
// had over the stock requests.
func Databases(dir string) ([]string, error) {
	var list []string
	for _, name := range databases {
		path := filepath.Join(dir, "config", name)
		// Every RocksDB database has a file CURRENT, from its first start on.
		info, err := os.Lstat(filepath.Join(path, "CURRENT"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for config databases: %w", err)
		}
		if info.Mode().IsRegular() {
			list = append(list, path)
		}
	}
	return list, nil
}

// Tables says where a broker keeps its topics, groups and consumer positions.
type Tables uint8

// The places, and what they mean for a broker that is booted on a replica. The
// stock requests are answered alike by all three.
const (
	// JSONTables: the files of this package. They are read at boot.
	JSONTables Tables = iota + 1
	// ImportedTables: RocksDB databases beside the files (storeType
	// defaultRocksDB). A boot takes a file into an empty database only if its data
	// version has a counter above 0, which a broker's positions do not have before
	// their 500th change: then consumers start anew.
	ImportedTables
	// DatabaseTables: one RocksDB database (configManagerVersion v2). A boot does
	// not read topics.json, subscriptionGroup.json and consumerOffset.json at all.
	DatabaseTables
)

// TablesOf tells the place from a broker's properties, as its own files or
// request 26 have them.
func TablesOf(properties map[string]string) Tables {
	if properties["configManagerVersion"] == "v2" {
		return DatabaseTables
	}
	if strings.EqualFold(properties["storeType"], "defaultRocksDB") {
		return ImportedTables
	}
	return JSONTables
}

// Advice returns what an operator has to know before a broker with these tables
// is booted on a replica; empty where there is nothing to know.
func (t Tables) Advice() string {
	switch t {
	case ImportedTables:
		return "the broker keeps its tables in RocksDB (storeType=defaultRocksDB) and may ignore consumerOffset.json at boot; boot a replica with storeType=default"
	case DatabaseTables:
		return "the broker keeps its tables in RocksDB (configManagerVersion=v2) and ignores the JSON files at boot; boot a replica with configManagerVersion=v1 and storeType=default"
	}
	return ""
}
