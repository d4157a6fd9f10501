// Command haagent keeps a live, bootable replica of a RocketMQ broker's log
// directory. See README.md and haagent --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the build: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
