package replica

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/wire"
)

// Space returns how much the file system that holds dir has left for us. It may
// take as long as that file system does.
func Space(dir string) (wire.ByteSize, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return wire.ByteSize(fs.Bavail) * wire.ByteSize(fs.Bsize), nil
}
