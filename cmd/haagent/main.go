// Command haagent keeps a live, bootable replica of a RocketMQ broker's log
// directory. See README.md and haagent --help.
package main

import (
	"context"
	"os"
)

// version is set by the build: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	os.Exit(untilSignalled(func(ctx context.Context) int {
		return run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	}))
}
