package options

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a file, far above what all options with all their comments take. The
// parser takes time that grows with the square of the entries, and calls itself
// for each thing within another.
const (
	maxFile    = 64 << 10 // bytes
	maxEntries = 512      // lines that are no comments
	maxLine    = 2 << 10  // bytes
	maxDepth   = 64       // brackets open at once
)

// readSmall reads a regular file of at most limit bytes. It is looked at before
// it is opened: opening a pipe waits for its other end.
func readSmall(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it is longer than %d bytes", limit)
	}
	return text, err
}

// file reads the YAML file of --config.
func (r *resolver) file(path string) ([]Value, error) {
	if path == "" {
		return nil, nil
	}
	text, err := readSmall(path, maxFile)
	if err != nil {
		return nil, r.set.Refuse("config", path, reason(err), "give a file that this user may read, or leave --config away")
	}
	return ParseYAML(r.table, base(path), text)
}

// reason is what an error of the os package says without naming the file again.
func reason(err error) string {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// ParseYAML reads the text of a YAML file; name is what errors call it. Errors
// are an *Error.
func ParseYAML(table []Option, name string, text []byte) ([]Value, error) {
	p := yamlFile{table: table, name: name, seen: map[string]int{}}
	if line := directive(text); line != 0 {
		return nil, p.fail(line, "", "", "begins with %: directives of YAML such as %YAML are not read", "take the line out, and the --- below it")
	}
	if line, why := unfit(text); why != "" {
		return nil, p.fail(line, "", "", why, "write one option a line, as in: role: slave")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors begin files with it
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, p.syntax(err)
	}
	var list []Value
	documents := 0
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		if documents++; documents > 1 {
			return nil, p.fail(line(doc.Body), "", "", "a second document begins here", "keep one and take out the ---")
		}
		if list, err = p.document(doc.Body); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// directive returns the line of a directive, which the parser has no clear word
// for; 0: there is none.
func directive(text []byte) int {
	number := 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		if number++; line[0] == '%' {
			return number
		}
	}
	return 0
}

// unfit finds what must not get to the parser.
func unfit(text []byte) (line int, why string) {
	depth, entries := 0, 0
	for content := range bytes.Lines(text) {
		line++
		content = bytes.TrimSpace(content)
		if len(content) > maxLine {
			return line, fmt.Sprintf("is longer than %d bytes", maxLine)
		}
		if !utf8.Valid(content) && !bytes.Contains(content, []byte{0}) { // a path would be another one
			return line, "is not UTF-8"
		}
		if len(content) > 0 && content[0] != '#' {
			entries++
		}
		if entries > maxEntries {
			return line, fmt.Sprintf("is one of more than %d lines", maxEntries)
		}
		for _, b := range content {
			switch b {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			case 0:
				return line, "holds a NUL byte, this is no text"
			}
		}
		if depth > maxDepth {
			return line, "has too many open brackets"
		}
	}
	return 0, ""
}

type yamlFile struct {
	table []Option
	name  string
	seen  map[string]int // the line that an option stands in
}

func (p *yamlFile) fail(line int, key, value, why, try string) error {
	return &Error{Origin: Origin{Layer: FromFile, File: p.name, Line: line}, Key: key, Value: value, Why: why, Try: try}
}

// syntax tells where the parser gave up, in one line.
func (p *yamlFile) syntax(err error) error {
	at, why := 0, err.Error()
	var known yaml.Error
	if errors.As(err, &known) {
		why = known.GetMessage()
		if t := known.GetToken(); t != nil && t.Position != nil {
			at = t.Position.Line
		}
	}
	why, _, _ = strings.Cut(why, "\n")
	return p.fail(at, "", "", "this is not YAML: "+why, "write one option a line, as in: role: slave")
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func (p *yamlFile) document(body ast.Node) ([]Value, error) {
	var entries []*ast.MappingValueNode
	switch n := body.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		return nil, p.fail(line(body), "", "", "the file holds no options, but something else", "write one option a line, as in: role: slave")
	}
	var list []Value
	for _, e := range entries {
		v, err := p.entry(e)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (p *yamlFile) entry(e *ast.MappingValueNode) (Value, error) {
	at := line(e.Key)
	key := e.Key.GetToken().Value
	if e.Key.Type() != ast.StringType {
		return Value{}, p.fail(at, "", "", "a key must be the name of an option, and "+fmt.Sprintf("%.40q", e.Key.String())+" is none", "haagent --help lists the options")
	}
	o, ok := Lookup(p.table, key)
	if !ok {
		return Value{}, p.unknown(at, key)
	}
	if o.NoKey {
		return Value{}, p.fail(at, key, "", "cannot be said in the file itself", "give it as --"+key+" or "+o.Env())
	}
	if first, twice := p.seen[key]; twice {
		return Value{}, p.fail(at, key, "", fmt.Sprintf("is given twice, first in line %d", first), "keep one of the lines")
	}
	p.seen[key] = at
	text, why := p.text(o, e.Value)
	if why != "" {
		return Value{}, p.fail(at, key, text, why, o.try())
	}
	return value(o, text, Origin{Layer: FromFile, File: p.name, Line: at})
}

func (p *yamlFile) unknown(at int, key string) error {
	if len(key) > 100 {
		key = key[:100]
	}
	try := "haagent --help lists the options"
	known := names(p.table, func(o Option) bool { return !o.NoKey })
	if meant := nearest(strings.ReplaceAll(key, "_", "-"), known); meant != "" {
		return p.fail(at, key, "", "no such option; did you mean "+meant+"?", try)
	}
	return p.fail(at, key, "", "no such option", try)
}

// text returns a value as a flag would have it, or why it is of the wrong type.
func (p *yamlFile) text(o Option, n ast.Node) (text, why string) {
	switch n := n.(type) {
	case *ast.BoolNode:
		if o.Kind != Switch {
			return n.GetToken().Value, "must not be true or false: put it in quotes if it is a text"
		}
		return n.GetToken().Value, ""
	case *ast.StringNode:
		if o.Kind == Switch {
			return n.Value, "must be true or false, without quotes"
		}
		if n.Value == "" && !o.Off {
			return "", "is empty: leave the line away"
		}
		return n.Value, ""
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n"), ""
	case *ast.IntegerNode, *ast.FloatNode:
		if o.Kind == Switch {
			return n.GetToken().Value, "must be true or false"
		}
		return strings.TrimSpace(n.GetToken().Value), ""
	case *ast.SequenceNode:
		return p.list(o, n)
	case *ast.NullNode:
		return "", "has no value: leave the line away"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "", "must be a single value: options are not nested"
	}
	return "", "must be a plain value, without anchors and tags"
}

func (p *yamlFile) list(o Option, n *ast.SequenceNode) (text, why string) {
	if o.Kind != List {
		return "", "must be a single value, not a list"
	}
	var parts []string
	for _, item := range n.Values {
		var part string
		switch item := item.(type) {
		case *ast.StringNode:
			part = item.Value
		case *ast.IntegerNode, *ast.FloatNode:
			part = item.GetToken().Value
		default:
			return "", "must be a list of texts"
		}
		if part == "" || strings.Contains(part, ",") {
			return part, "one of the list is empty or has a comma in it"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ","), ""
}

// quote returns a text as a YAML value, in quotes where it needs them.
func quote(text string) string {
	if token.IsNeedQuoted(text) {
		return fmt.Sprintf("%q", text)
	}
	return text
}
