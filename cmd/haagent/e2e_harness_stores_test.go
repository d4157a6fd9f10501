//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/haagent/haagent/wire"
)

// verifySame holds two stores against each other and returns up to where both
// are said to be the same.
func verifySame(t *testing.T, a, b string) wire.PhyOffset {
	t.Helper()
	stdout, stderr, code := haagentCommand(t, "verify", a, b)
	var end wire.PhyOffset
	_, after, found := strings.Cut(stdout, "identical up to ")
	if code != exitOK || !found {
		t.Fatalf("verify ended with %d: %s%s", code, stdout, stderr)
	}
	if _, err := fmt.Sscanf(after, "%d", &end); err != nil {
		t.Fatalf("verify said %q: %v", stdout, err)
	}
	return end
}

// listing names everything below dir with type, size, permissions and time,
// but for the entries called like one of the given names.
func listing(t *testing.T, dir string, without ...string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == dir {
			return nil
		}
		if slices.Contains(without, d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := path + " " + info.Mode().String()
		if !d.IsDir() {
			line += fmt.Sprintf(" %d %s", info.Size(), info.ModTime())
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// same fails the test with the first lines of what differs.
func same(t *testing.T, what string, wrong []string) {
	t.Helper()
	for i, line := range wrong {
		if i == 10 {
			t.Errorf("%s: and %d more", what, len(wrong)-i)
			return
		}
		t.Errorf("%s: %s", what, line)
	}
}

// mustRead reads a file of a store.
func mustRead(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sum is the checksum of a file.
func sum(t *testing.T, path ...string) string {
	t.Helper()
	h := sha256.Sum256(mustRead(t, path...))
	return hex.EncodeToString(h[:])
}
