package metadata

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// FuzzComplete compares with the strict parser of the standard library, to which
// bare keys are shown in quotes.
func FuzzComplete(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		err := Complete(b)
		var e *JSONError
		if err != nil && (!errors.As(err, &e) || e.Pos < 0 || e.Pos > wire.ByteSize(len(b))) {
			t.Fatalf("error without a position in the content: %v", err)
		}
		if err != nil && json.Valid(b) && !errors.Is(err, ErrTooDeep) {
			t.Fatalf("valid JSON is refused: %v", err)
		}
		if err == nil && !json.Valid(quoteKeys(b)) {
			t.Fatalf("%q is taken, and is not JSON", b)
		}
		if trimmed := bytes.TrimSpace(b); err == nil && trimmed[0] == '{' {
			if !errors.Is(Complete(trimmed[:len(trimmed)-1]), ErrIncomplete) {
				t.Fatalf("%q is taken without its end", b)
			}
			n := 0
			if err := members(b, func(_, _ []byte) error { n++; return nil }); err != nil {
				t.Fatalf("members of a whole object: %v", err)
			}
		}
	})
}

// quoteKeys puts bare keys into quotes: what stands outside strings, begins after
// a brace or a comma, and ends in a colon.
func quoteKeys(b []byte) []byte {
	var out, word []byte
	inString := false
	flush := func(key bool) {
		if len(word) > 0 && key {
			out = append(append(append(out, '"'), word...), '"')
		} else {
			out = append(out, word...)
		}
		word = word[:0]
	}
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case inString:
			out = append(out, c)
			if c == '\\' && i+1 < len(b) {
				i++
				out = append(out, b[i])
			}
			inString = c != '"'
		case letter(c) || digit(c) || c == '-' || c == '+' || c == '.':
			word = append(word, c)
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			// Between a key and its colon too.
		default:
			flush(c == ':')
			out = append(out, c)
			inString = c == '"'
		}
	}
	flush(false)
	return out
}

// FuzzFromStock throws bodies at the conversion: what comes out is whole, and a
// second run over a file that came out of a 4.x answer changes nothing.
func FuzzFromStock(f *testing.F) {
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, code := range StockRequests() {
			files, err := FromStock(code, remoting.Command{Body: body})
			if err != nil {
				continue
			}
			for _, file := range files {
				if err := file.verify(func(string, Hash) bool { return false }); err != nil {
					t.Fatalf("%v: %v", code, err)
				}
				if len(file.Content) > len(body)+len(`"topicQueueMappingInfoMap"`) {
					t.Fatalf("%v: %d bytes of %d", code, len(file.Content), len(body))
				}
			}
			again, err := FromStock(code, remoting.Command{Body: files[0].Content})
			if err != nil || again[0].SHA256 != files[0].SHA256 {
				t.Fatalf("%v: a second run gives %v, %v", code, again, err)
			}
		}
	})
}

func TestFuzzCorpora(t *testing.T) {
	for _, name := range []string{"FuzzComplete", "FuzzFromStock"} {
		files, err := os.ReadDir(filepath.Join("testdata", "fuzz", name))
		if err != nil || len(files) < 5 {
			t.Errorf("%s: %d seeds, %v", name, len(files), err)
		}
	}
}
