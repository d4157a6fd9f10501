package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// hangVariable in the environment makes the test binary a program that says when
// it was told to end, and then never does.
const hangVariable = "HAAGENT_TEST_HANG"

func hang(ctx context.Context) int {
	fmt.Println("runs")
	<-ctx.Done()
	fmt.Println("told to end")
	select {}
}

// TestSignals_SecondOneEndsAtOnce ends a process that does not end by itself.
func TestSignals_SecondOneEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		first, second syscall.Signal
		code          int
	}{
		{"TERM twice", syscall.SIGTERM, syscall.SIGTERM, 143},
		{"INT twice", syscall.SIGINT, syscall.SIGINT, 130},
		{"TERM, then INT", syscall.SIGTERM, syscall.SIGINT, 130},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			binary, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), binary)
			cmd.Env = []string{hangVariable + "=1", "GORACE=atexit_sleep_ms=0"}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for _, step := range []struct {
				says string
				then syscall.Signal
			}{{"runs", c.first}, {"told to end", c.second}} {
				if !lines.Scan() || lines.Text() != step.says {
					t.Fatalf("it says %q, not %q: %v", lines.Text(), step.says, lines.Err())
				}
				if err := cmd.Process.Signal(step.then); err != nil {
					t.Fatal(err)
				}
			}
			err = cmd.Wait()
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Errorf("it ended with %v, want exit code %d", err, c.code)
			}
		})
	}
}
