//go:build linux

package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAgent_GoesOnWhereNobodyReadsItsLog: whoever reads the log may end, as tee
// does, or a log collector that is restarted. The agent does not end with it: it
// writes on, to nobody, and ends with 0 when it is told to.
func TestAgent_GoesOnWhereNobodyReadsItsLog(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "store")
	cmd := self(testBinary(t), "--role", "slave", "--dir", dir, "--master", "127.0.0.1:1", "--http", "127.0.0.1:0")
	cmd.Stderr = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // the test has failed, and says why
			_ = cmd.Wait()
		}
	})
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(reader)
	for lines.Scan() && !strings.Contains(lines.Text(), "state=connecting") {
	}
	if !strings.Contains(lines.Text(), "state=connecting") {
		t.Fatalf("its log ended: %v", lines.Err())
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	// Both are answered with a line in the log.
	for _, s := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with: %v", err)
	}
}
