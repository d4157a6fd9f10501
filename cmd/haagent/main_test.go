package main

import (
	"os"
	"testing"
)

// runMainVariable in the environment makes the test binary be haagent itself, so
// that what is tested is a process: its command line, signals, exit code and
// death. It is built like the test, with the race detector where that is on.
const runMainVariable = "RUN_MAIN_OF_HAAGENT"

func TestMain(m *testing.M) {
	if os.Getenv(runMainVariable) != "" {
		main() // does not return
	}
	if os.Getenv(hangVariable) != "" {
		os.Exit(untilSignalled(hang))
	}
	os.Exit(m.Run())
}
