package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignalled runs do under a context that ends with the first SIGINT or
// SIGTERM, and returns its exit code. A second one does not wait for do: the code
// is then 128 and the signal's number, as shells have it.
func untilSignalled(do func(context.Context) int) int {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	sent := make(chan os.Signal, 2)
	signal.Notify(sent, syscall.SIGINT, syscall.SIGTERM)
	code := make(chan int, 1)
	go func() { code <- do(ctx) }() // the process ends with it, or without
	for ctx.Err() == nil {
		select {
		case c := <-code:
			return c
		case <-sent:
			end()
		}
	}
	select {
	case c := <-code:
		return c
	case second := <-sent:
		if n, ok := second.(syscall.Signal); ok {
			return 128 + int(n)
		}
		return exitRuntime
	}
}
