package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// checkout is the root of the module, seen from this package.
var checkout = filepath.Join("..", "..")

// sources returns the files of the module with one of the endings, by name.
func sources(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(checkout, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != checkout {
			return fs.SkipDir
		}
		if d.IsDir() || !slices.ContainsFunc(endings, func(e string) bool { return strings.HasSuffix(path, e) }) {
			return nil
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var markdownLink = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

// TestDocs_LinksLeadSomewhere follows every link between the documents, to the
// heading where it names one.
func TestDocs_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for path, text := range sources(t, ".md") {
		for _, m := range markdownLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(m[1]))
			}
			there, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if m[2] != "" && !slices.Contains(headings(string(there)), m[2]) {
				t.Errorf("%s: %s has no heading %s", path, target, m[2])
			}
		}
	}
}

// headings returns the anchors of a document's headings.
func headings(text string) []string {
	var anchors []string
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			anchors = append(anchors, "#"+strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-"))
		}
	}
	return anchors
}

var (
	stateWord   = regexp.MustCompile(`(?m)^\s+(\w+)\s+State = "([a-z_]+)"`)
	problemCode = regexp.MustCompile(`Problemf\(state\.(\w+), "([a-z_]+)"`)
	literalCode = regexp.MustCompile(`State: state\.(\w+), Code: "([a-z_]+)"`)
	codeRow     = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ((?:`[a-z_]+`(?:, )?)+) \\|")
	quoted      = regexp.MustCompile("`([a-z_]+)`")
)

// TestDocs_EveryCodeIsExplained holds the states and codes of the program
// against those of docs/operations.md, both ways.
func TestDocs_EveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	words := map[string]string{}
	inCode := map[string]bool{}
	files := sources(t, ".go")
	for _, m := range stateWord.FindAllStringSubmatch(files[filepath.Join(checkout, "agent", "state", "state.go")], -1) {
		words[m[1]] = m[2]
	}
	for path, text := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range slices.Concat(problemCode.FindAllStringSubmatch(text, -1), literalCode.FindAllStringSubmatch(text, -1)) {
			inCode[words[m[1]]+" "+m[2]] = true
		}
	}
	operations, err := os.ReadFile(filepath.Join(checkout, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	inDocs := map[string]bool{}
	for _, row := range codeRow.FindAllStringSubmatch(string(operations), -1) {
		for _, code := range quoted.FindAllStringSubmatch(row[2], -1) {
			inDocs[row[1]+" "+code[1]] = true
		}
	}
	for code := range inCode {
		if !inDocs[code] {
			t.Errorf("docs/operations.md does not explain %q", code)
		}
	}
	for code := range inDocs {
		if !inCode[code] {
			t.Errorf("docs/operations.md explains %q, which is not in the program", code)
		}
	}
	if len(inCode) < 20 {
		t.Errorf("found %d codes in the program: are they still read?", len(inCode))
	}
}

var (
	citedTest = regexp.MustCompile("`((?:Test|Benchmark|Fuzz)[A-Z0-9]\\w*)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// TestDocs_CitedTestsExist keeps the proofs that the documents name.
func TestDocs_CitedTestsExist(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	for _, text := range sources(t, "_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			exists[m[1]] = true
		}
	}
	cited := 0
	for path, text := range sources(t, ".md") {
		for _, m := range citedTest.FindAllStringSubmatch(text, -1) {
			cited++
			if !exists[m[1]] {
				t.Errorf("%s names %s, and there is no such test", path, m[1])
			}
		}
	}
	if cited < 5 {
		t.Errorf("found %d names of tests in the documents: are they still read?", cited)
	}
}

// TestDocs_ExitCodesAreThose holds the table of exit codes against the help.
func TestDocs_ExitCodesAreThose(t *testing.T) {
	t.Parallel()
	operations, err := os.ReadFile(filepath.Join(checkout, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(operations), -1)
	var documented []string
	for _, m := range rows {
		documented = append(documented, m[1])
	}
	_, help, _ := strings.Cut(helpTemplate, "EXIT CODES")
	helped := regexp.MustCompile(`\b\d+\b`).FindAllString(help, -1)
	if !slices.Equal(documented, helped) || len(helped) != exitNoSlave+1 {
		t.Errorf("docs/operations.md has exit codes %v, --help %v", documented, helped)
	}
}
