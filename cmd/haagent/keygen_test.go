package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/link"
)

// TestKeygen_FileIsReadableByItsOwnerOnlyAndNeverReplaced.
func TestKeygen_FileIsReadableByItsOwnerOnlyAndNeverReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"haagent", "keygen", path}, nil, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want mode 0600", info, err)
	}
	keys, err := link.ReadKeys(path)
	if err != nil || keys.Len() != 1 {
		t.Errorf("%d keys, %v", keys.Len(), err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"haagent", "keygen", path}, nil, &stdout, &stderr); code != exitConfig || !strings.Contains(stderr.String(), "Try: ") {
		t.Errorf("a second time: exit code %d, %s", code, &stderr)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key was replaced: %v", err)
	}
}

// TestKeygen_NowhereToWrite.
func TestKeygen_NowhereToWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "missing", "key")
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"haagent", "keygen", path}, nil, &stdout, &stderr)
	if code != exitConfig || !strings.Contains(stderr.String(), path) || !strings.Contains(stderr.String(), "Try: ") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

// TestKeygen_StdoutIsAKeyFile.
func TestKeygen_StdoutIsAKeyFile(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"haagent", "keygen"}, nil, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if keys, err := link.ParseKeys(stdout.Bytes()); err != nil || keys.Len() != 1 {
		t.Errorf("%q: %v", &stdout, err)
	}
}
