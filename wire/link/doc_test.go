package link_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/haagent/haagent/wire/link"
)

// TestProtocolDoc_Tables holds the tables of docs/protocol.md against the code.
func TestProtocolDoc_Tables(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	rows := 0
	want := func(row string) {
		rows++
		if strings.Count(doc, "\n"+row) != 1 {
			t.Errorf("docs/protocol.md has no row %q", row)
		}
	}
	for typ := link.TypeHello; typ <= link.LastType; typ++ {
		least, most := link.Sizes(typ)
		name := typ.String()
		want(fmt.Sprintf("| %d | %s | %d | %d |", typ, strings.ToUpper(name[:1])+name[1:], least, most))
	}
	for code := link.CodeVersion; !strings.HasPrefix(code.String(), "code "); code++ {
		want(fmt.Sprintf("| %d | %s |", code, code))
	}
	numbered := 0
	for line := range strings.Lines(doc) {
		if len(line) > 2 && line[:2] == "| " && line[2] >= '0' && line[2] <= '9' {
			numbered++
		}
	}
	if numbered != rows {
		t.Errorf("docs/protocol.md has %d numbered rows, the code %d", numbered, rows)
	}
}
