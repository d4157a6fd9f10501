//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestReadme_ChineseShowsTheSameCommands: what README.zh-CN.md tells to run or to
// write stands in README.md too, whose commands are run.
func TestReadme_ChineseShowsTheSameCommands(t *testing.T) {
	t.Parallel()
	read := func(name string) (lines []string) {
		text, err := os.ReadFile(filepath.Join(checkout, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fencedBlocks(string(text)) {
			lines = append(lines, block.lines...)
		}
		return lines
	}
	english, chinese := read("README.md"), read("README.zh-CN.md")
	for _, line := range chinese {
		if !slices.Contains(english, line) {
			t.Errorf("README.md does not show %q", line)
		}
	}
	if len(chinese) < 25 {
		t.Errorf("only %d lines are compared", len(chinese))
	}
}
