package metadata

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
)

func TestComplete(t *testing.T) {
	for _, test := range []struct {
		in  string
		err error
		pos wire.ByteSize
	}{
		{`{}`, nil, 0},
		{" \t\r\n{ } \n", nil, 0},
		{`[]`, nil, 0},
		{`"x"`, nil, 0},
		{`-1.5e+3`, nil, 0},
		{`0`, nil, 0},
		{`true`, nil, 0},
		{`null`, nil, 0},
		{`{"a":{"b":[1,{"c":null}]},"d":"\"\\\u00fF\n"}`, nil, 0},
		{`{"topic@group":{0:12,1:9}}`, nil, 0},
		{`{-1:2}`, nil, 0},
		{`{name:1,$x_2:2}`, nil, 0},
		{"{\"a\":\"\xff\xfe\"}", nil, 0}, // 4.x writes in the platform's charset

		{``, ErrIncomplete, 0},
		{` `, ErrIncomplete, 1},
		{`{`, ErrIncomplete, 1},
		{`{"a"`, ErrIncomplete, 4},
		{`{"a":`, ErrIncomplete, 5},
		{`{"a":1`, ErrIncomplete, 6},
		{`{"a":1,`, ErrIncomplete, 7},
		{`{"a":[1,2}`, ErrNotJSON, 9},
		{`{"a":"\`, ErrIncomplete, 7},
		{`{"a":"\u00`, ErrIncomplete, 10},
		{`tru`, ErrIncomplete, 3},
		{`-`, ErrIncomplete, 1},
		{`1.`, ErrIncomplete, 2},
		{`1e`, ErrIncomplete, 2},

		{`{}{}`, ErrNotJSON, 2},
		{`{"a":1}}`, ErrNotJSON, 7},
		{`{"a":1}` + "\n\x00", ErrNotJSON, 8},
		{"\x00\x00\x00\x00", ErrNotJSON, 0},
		{`{"a":1,}`, ErrNotJSON, 7},
		{`{,}`, ErrNotJSON, 1},
		{`{"a",1}`, ErrNotJSON, 4},
		{`{"a" "b"}`, ErrNotJSON, 5},
		{`[1 2]`, ErrNotJSON, 3},
		{`[1,]`, ErrNotJSON, 3},
		{`{'a':1}`, ErrNotJSON, 1},
		{`{"a":01}`, ErrNotJSON, 6},
		{`{"a":+1}`, ErrNotJSON, 5},
		{`{"a":1x}`, ErrNotJSON, 6},
		{`{"a":truex}`, ErrNotJSON, 9},
		{`{"a":NaN}`, ErrNotJSON, 5},
		{`{"a":"\x41"}`, ErrNotJSON, 7},
		{`{"a":"\u00g0"}`, ErrNotJSON, 10},
		{"{\"a\":\"\x00\"}", ErrNotJSON, 6},
		{"{\"a\":\"\n\"}", ErrNotJSON, 6},
		{"\ufeff{}", ErrNotJSON, 0},
	} {
		err := Complete([]byte(test.in))
		if test.err == nil {
			if err != nil {
				t.Errorf("%q: %v", test.in, err)
			}
			continue
		}
		var e *JSONError
		if !errors.As(err, &e) || !errors.Is(err, test.err) || e.Pos != test.pos {
			t.Errorf("%q: %v, want %v at byte %v", test.in, err, test.err, test.pos)
		}
	}
}

func TestComplete_Limits(t *testing.T) {
	nest := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`]}`, n/2))
	}
	if err := Complete(nest(MaxDepth)); err != nil {
		t.Errorf("depth %d: %v", MaxDepth, err)
	}
	if err := Complete(nest(MaxDepth + 2)); !errors.Is(err, ErrTooDeep) {
		t.Errorf("depth %d: %v", MaxDepth+2, err)
	}
	if err := Complete(bytes.Repeat([]byte(" "), int(MaxFile)+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("beyond MaxFile: %v", err)
	}
}

// Files that are being written end somewhere in the middle: no prefix of a real
// file may pass for a whole one.
func TestFault48_NoPrefixOfARealFileIsComplete(t *testing.T) {
	for _, path := range realFiles(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := Complete(b); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for n := 0; n < len(b); n += 1 + len(b)/500 {
			if err := Complete(b[:n]); !errors.Is(err, ErrIncomplete) {
				t.Fatalf("%s: first %d of %d bytes: %v", path, n, len(b), err)
			}
		}
		zeroed := bytes.Clone(b)
		clear(zeroed[len(b)/2:])
		if err := Complete(zeroed); !errors.Is(err, ErrNotJSON) {
			t.Errorf("%s: second half zero: %v", path, err)
		}
	}
}

// realFiles returns all JSON files that brokers wrote or answered.
func realFiles(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"testdata/stock/*/answers/*", "testdata/stock/*/config/*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, paths...)
	}
	if len(all) < 40 {
		t.Fatalf("only %d files of brokers in testdata", len(all))
	}
	return all
}

func TestComplete_DoesNotAllocate(t *testing.T) {
	b := topics(1, 100)
	if n := testing.AllocsPerRun(100, func() {
		if err := Complete(b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Whatever is strict JSON is taken, and a byte more or less is not.
func TestComplete_TakesAllJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := json.Marshal(randomValue(t, 4))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "indented") {
			var out bytes.Buffer
			if err := json.Indent(&out, b, "", "\t"); err != nil {
				t.Fatal(err)
			}
			b = out.Bytes()
		}
		if err := Complete(b); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if b[0] != '{' && b[0] != '[' {
			return
		}
		if n := rapid.IntRange(0, len(b)-1).Draw(t, "cut"); !errors.Is(Complete(b[:n]), ErrIncomplete) {
			t.Fatalf("%s: first %d bytes are complete", b, n)
		}
		if !errors.Is(Complete(append(b, '}')), ErrNotJSON) {
			t.Fatalf("%s}: is complete", b)
		}
	})
}

func randomValue(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "string")
	case 1:
		return rapid.Int64().Draw(t, "int")
	case 2:
		return rapid.Float64Range(-1e300, 1e300).Draw(t, "float")
	case 3:
		return rapid.Bool().Draw(t, "bool")
	case 4:
		return nil
	case 5:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = randomValue(t, depth-1)
		}
		return list
	}
	m := make(map[string]any)
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		m[rapid.String().Draw(t, "key")] = randomValue(t, depth-1)
	}
	return m
}

func TestMembers(t *testing.T) {
	var got []string
	err := members([]byte(" {\"a\" : [1, {\"b\":2}] ,\n 0:{} , \"c\":\"}\"} "), func(key, value []byte) error {
		got = append(got, string(key)+"="+string(value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(got, "|"); s != `"a"=[1, {"b":2}]|0={}|"c"="}"` {
		t.Errorf("members are %s", s)
	}
	for _, in := range []string{"", "[]", "{", `{"a":1`, `{"a":1]`, `{"a":1} x`, `{1}`} {
		if err := members([]byte(in), func(_, _ []byte) error { return nil }); err == nil {
			t.Errorf("members of %q: no error", in)
		}
	}
	stop := errors.New("stop")
	if err := members([]byte(`{"a":1}`), func(_, _ []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error of the callback became %v", err)
	}
}
