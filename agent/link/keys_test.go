package link_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/haagent/haagent/agent/link"
	"github.com/haagent/haagent/agent/state"
)

// key returns the base64 of a key that consists of one byte.
func key(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, link.KeySize))
}

func TestParseKeys(t *testing.T) {
	secret := key('S')
	many := ""
	for i := range link.MaxKeys + 1 {
		many += key(byte(i)) + "\n"
	}
	for _, c := range []struct {
		name, text string
		want       string // the first bytes of the keys
		say        string // or the error
	}{
		{"one", key('a'), "a", ""},
		{"two, the first speaks", key('b') + "\n" + key('a') + "\n", "ba", ""},
		{"comments and empty lines", "# the old one below\n\n" + key('a') + "\r\n  \n\t" + key('b') + " \n# end", "ab", ""},
		{"as many as there may be", strings.TrimPrefix(many, key(0)+"\n"), "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", ""},
		{"none", "# nothing\n", "", "it holds no key"},
		{"empty", "", "", "it holds no key"},
		{"too many", many, "", "line 17: more than 16 keys"},
		{"not base64", key('a') + "\n" + secret[:43] + "!", "", "line 2 is not base64"},
		{"no padding", secret[:43], "", "line 1 is not base64"},
		{"a word behind it", secret + " # mine", "", "line 1 is not base64"},
		{"another encoding of the same key", secret[:42] + "N=", "", "line 1 is not base64"},
		{"hex", hex.EncodeToString(bytes.Repeat([]byte("S"), 32)), "", "line 1 holds 48 bytes, a key has 32"},
		{"16 bytes", base64.StdEncoding.EncodeToString(make([]byte, 16)), "", "line 1 holds 16 bytes, a key has 32"},
		{"15 bytes", base64.StdEncoding.EncodeToString(make([]byte, 15)), "", "line 1 holds 15 bytes, a key has 32"},
		{"twice", key('a') + "\n" + secret + "\n#\n" + secret, "", "line 4 repeats key 2"},
	} {
		keys, err := link.ParseKeys([]byte(c.text))
		var got string
		for _, k := range keys.Bytes() {
			got += string(k[:1])
		}
		switch {
		case c.say == "" && (err != nil || got != c.want || keys.Len() != len(c.want)):
			t.Errorf("%s: %q, %v", c.name, got, err)
		case c.say != "" && (err == nil || err.Error() != c.say || keys.Len() != 0):
			t.Errorf("%s: %v, want %q", c.name, err, c.say)
		}
	}
}

func TestReadKeys_Files(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	linked := filepath.Join(dir, "linked")
	if err := os.Symlink(write("target", key('a'), 0o600), linked); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const chmod, generate = "chmod 600 ", "haagent keygen"
	ofGroup := write("group", key('a'), 0o640)
	if os.Geteuid() == 0 {
		rootsOwn := write("root's", key('a'), 0o640)
		if keys, err := link.ReadKeys(rootsOwn); err != nil || keys.Len() != 1 {
			t.Errorf("root:group 0640: %v, %v", keys, err)
		}
		if err := os.Chown(ofGroup, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ path, say, try string }{
		{write("own", key('a'), 0o600), "", ""},
		{write("read-only", key('a'), 0o400), "", ""},
		{linked, "", ""},
		{ofGroup, "mode 0640, want 0600", chmod},
		{write("world", key('a'), 0o604), "mode 0604, want 0600", chmod},
		{write("written by all", key('a'), 0o622), "mode 0622, want 0600", chmod},
		{write("bad", "x", 0o600), "line 1 is not base64", generate},
		{write("long", strings.Repeat("#\n", 40<<10), 0o600), "longer than 65536 bytes", generate},
		{filepath.Join(dir, "missing"), "no such file", generate},
		{dir, "no regular file", generate},
		{pipe, "no regular file", generate},
	} {
		keys, err := link.ReadKeys(c.path)
		if c.say == "" {
			if err != nil || keys.Len() != 1 {
				t.Errorf("%s: %v, %v", c.path, keys, err)
			}
			continue
		}
		p := state.AsProblem(err)
		if p == nil || p.State != state.Unauthorized || p.Code != "key_file" || !strings.Contains(p.Try, c.try) ||
			!strings.Contains(err.Error(), c.path) || !strings.Contains(err.Error(), c.say) || keys.Len() != 0 {
			t.Errorf("%s: %v, want %q", c.path, err, c.say)
		}
	}
	if _, err := link.ReadKeys(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// TestKeys_AreNeverPrinted tries every verb and encoder, on keys alone and deep
// inside of what holds them.
func TestKeys_AreNeverPrinted(t *testing.T) {
	keys, err := link.ParseKeys([]byte(key('S') + "\n" + key('T')))
	if err != nil {
		t.Fatal(err)
	}
	options := link.SecurityOptions{Keys: keys, Mode: "clear"}
	clearText, err := link.NewSecurity(options)
	if err != nil {
		t.Fatal(err)
	}
	options.Mode = "tls"
	encrypted, err := link.NewSecurity(options)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, v := range []any{keys, &keys, options, &options, []any{keys}, struct{ hidden link.Keys }{keys}, *clearText, clearText, *encrypted, encrypted} {
		for _, verb := range "vsqxXdobUcTtp" {
			fmt.Fprintf(&out, "%"+string(verb)+" %+"+string(verb)+" %#"+string(verb)+"\n", v, v, v)
		}
		text, _ := json.Marshal(v) // some cannot be encoded, which is fine
		out.Write(text)
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("keys", "value", v)
		}
	}
	for _, leak := range []string{key('S')[:8], key('T')[:8], "SSSS", "TTTT", "53535353", "5353 5353", "83 83 83", "83, 83, 83", "83,83,83", "0x53, 0x53", "123 123 123", "1010011 1010011"} {
		if strings.Contains(strings.ToLower(out.String()), strings.ToLower(leak)) {
			t.Errorf("%q is shown", leak)
		}
	}
	if !strings.Contains(out.String(), "2 keys") {
		t.Error("how many there are is not shown")
	}
}

func TestNewKey_IsALineOfAFile(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		line := link.NewKey()
		keys, err := link.ParseKeys([]byte(line + "\n"))
		if err != nil || keys.Len() != 1 || base64.StdEncoding.EncodeToString(keys.Bytes()[0]) != line || seen[line] {
			t.Fatalf("%v", err)
		}
		seen[line] = true
	}
}

// FuzzParseKeys: keys that are read are read again from what they are written
// as, and no error shows what stood in the file.
func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(key('a') + "\n# x\n" + key('b')))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := link.ParseKeys(text)
		if err != nil {
			for _, line := range bytes.Fields(text) {
				if len(line) >= 12 && strings.Contains(err.Error(), string(line)) {
					t.Fatalf("%v shows %q", err, line)
				}
			}
			return
		}
		var again strings.Builder
		for _, k := range keys.Bytes() {
			again.WriteString(base64.StdEncoding.EncodeToString(k) + "\n")
		}
		back, err := link.ParseKeys([]byte(again.String()))
		if err != nil || back.Len() != keys.Len() || keys.Len() < 1 || keys.Len() > link.MaxKeys {
			t.Fatalf("%d keys became %d, %v", keys.Len(), back.Len(), err)
		}
		for i, k := range back.Bytes() {
			if !bytes.Equal(k, keys.Bytes()[i]) {
				t.Fatal("another key")
			}
		}
	})
}

func TestFuzzParseKeys_CorpusIsThere(t *testing.T) {
	files, err := os.ReadDir(filepath.Join("testdata", "fuzz", "FuzzParseKeys"))
	if err != nil || len(files) < 4 {
		t.Errorf("%d seeds, %v", len(files), err)
	}
}
