package remoting_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire/remoting"
)

func TestSecretsStayOutOfTexts(t *testing.T) {
	c := remoting.Credentials{AccessKey: "key", SecretKey: "hush"}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("connected", "as", c)
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprintf("%v", &c), log.String()} {
		if strings.Contains(s, "hush") || !strings.Contains(s, "key") {
			t.Errorf("%q", s)
		}
	}
	if !c.Valid() || (remoting.Credentials{AccessKey: "key"}).Valid() {
		t.Error("valid without a secret, or not with both")
	}
}

func TestDataVersionsOfBothGenerations(t *testing.T) {
	tests := map[string]remoting.DataVersion{
		`{"counter":3,"timestamp":1700000000000}`:                              {Counter: 3, Timestamp: 1700000000000},
		`{"counter":3,"stateVersion":2,"timestamp":1700000000000}`:             {StateVersion: 2, Counter: 3, Timestamp: 1700000000000},
		`{"counter":null,"timestamp":5}`:                                       {Timestamp: 5},
		`{"timestamp":5,"counter":1,"somethingNew":{"a":[1]}}`:                 {Counter: 1, Timestamp: 5},
		`{"counter":9223372036854775807,"stateVersion":-1,"timestamp":-62135}`: {StateVersion: -1, Counter: 1<<63 - 1, Timestamp: -62135},
	}
	for in, want := range tests {
		var got remoting.DataVersion
		if err := json.Unmarshal([]byte(in), &got); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{`[]`, `{"counter":"x"}`, `{"counter":1.5}`, `{"timestamp":99999999999999999999}`} {
		if err := json.Unmarshal([]byte(in), new(remoting.DataVersion)); err == nil {
			t.Errorf("%s was read", in)
		}
	}
}

func TestDataVersionsOfRealBrokers(t *testing.T) {
	for _, v := range []string{"4.9.7", "5.3.3"} {
		config := read(t, golden(t, v+"-26"))
		var inField, inBody remoting.DataVersion
		if err := json.Unmarshal([]byte(config.ExtFields["version"]), &inField); err != nil || inField.Timestamp == 0 {
			t.Errorf("%s: field %v, %v", v, inField, err)
		}
		body := struct {
			DataVersion *remoting.DataVersion `json:"dataVersion"`
		}{&inBody}
		if err := json.Unmarshal(read(t, golden(t, v+"-21")).Body, &body); err != nil || inBody.Timestamp == 0 || inBody.Counter == 0 {
			t.Errorf("%s: topics %v, %v", v, inBody, err)
		}
	}
}

func TestDataVersionOrder(t *testing.T) {
	gen := rapid.Custom(func(rt *rapid.T) remoting.DataVersion {
		small := rapid.Int64Range(-1, 2)
		return remoting.DataVersion{StateVersion: small.Draw(rt, "state"), Counter: small.Draw(rt, "counter"), Timestamp: small.Draw(rt, "time")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		a, b := gen.Draw(rt, "a"), gen.Draw(rt, "b")
		want := 0
		for _, d := range []int64{a.StateVersion - b.StateVersion, a.Counter - b.Counter, a.Timestamp - b.Timestamp} {
			if d != 0 && want == 0 {
				want = map[bool]int{true: 1, false: -1}[d > 0]
			}
		}
		if a.Compare(b) != want || b.Compare(a) != -want || a.Equal(b) != (want == 0) {
			rt.Fatalf("%v and %v: %d", a, b, a.Compare(b))
		}
		text, err := json.Marshal(a)
		var back remoting.DataVersion
		if err != nil || json.Unmarshal(text, &back) != nil || back != a {
			rt.Fatalf("%s came back as %v, %v", text, back, err)
		}
	})
	if s := (remoting.DataVersion{StateVersion: 1, Counter: 2, Timestamp: 3}).String(); s != "1.2@3" {
		t.Error(s)
	}
}

func TestPropertiesByJavasRules(t *testing.T) {
	tests := []struct {
		name, in string
		want     map[string]string
	}{
		{"empty", "", map[string]string{}},
		{"separators", "a=1\nb:2\nc 3\nd = 4\ne\t:\t5\nf  6 \ng", map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6 ", "g": ""}},
		{"comments and blank lines", "# a=1\n ! b=2\n\n \t\nc=3#not one", map[string]string{"c": "3#not one"}},
		{"line ends", "a=1\r\nb=2\rc=3\n\r\nd=4", map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}},
		{"continuation", "a=one,\\\n   two,\\\r\n\tthree\nb=2", map[string]string{"a": "one,two,three", "b": "2"}},
		{"continuation into a comment sign", "a=1\\\n#2", map[string]string{"a": "1#2"}},
		{"a comment is not continued", "#a\\\nb=2", map[string]string{"b": "2"}},
		{"escaped backslash ends the line", "a=c:\\\\\nb=2", map[string]string{"a": `c:\`, "b": "2"}},
		{"backslash at the end", "a=1\\", map[string]string{"a": "1"}},
		{"escapes", `a=\t\n\r\f\:\=\\\q`, map[string]string{"a": "\t\n\r\f:=\\q"}},
		{"escaped key", `a\ b\=c\:d=1`, map[string]string{"a b=c:d": "1"}},
		{"unicode", `a=gr\u00fc\u00DF \ud83d\ude00`, map[string]string{"a": "grüß 😀"}},
		{"half a pair", `a=\ud83dx\ude00`, map[string]string{"a": "\uFFFDx\uFFFD"}},
		{"bad unicode stands for itself", `a=\u12g4 \u1`, map[string]string{"a": "u12g4 u1"}},
		{"UTF-8", "a=grüß", map[string]string{"a": "grüß"}},
		{"value with separators", "namesrvAddr=a:9876;b:9876", map[string]string{"namesrvAddr": "a:9876;b:9876"}},
		{"only separators", "a=\nb==\n=c", map[string]string{"a": "", "b": "=", "": "c"}},
		{"last one counts", "a=1\na=2", map[string]string{"a": "2"}},
		{"YAML-like", "accessKey: x\nsecretKey:  y", map[string]string{"accessKey": "x", "secretKey": "y"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, remoting.ParseProperties([]byte(tt.in))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPropertiesOfRealBrokers(t *testing.T) {
	for v, n := range map[string]int{"4.9.7": 150, "5.3.3": 350} {
		got := remoting.ParseProperties(read(t, golden(t, v+"-26")).Body)
		if len(got) < n {
			t.Errorf("%s: %d properties", v, len(got))
		}
		for k, want := range map[string]string{
			"brokerName": "broker-a", "brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": "1048576",
			"storePathCommitLog": "/var/lib/rocketmq/store/commitlog", "brokerIP2": "127.0.0.1", "listenPort": "12110",
		} {
			if got[k] != want {
				t.Errorf("%s: %s is %q, want %q", v, k, got[k], want)
			}
		}
	}
}

func TestTablesOfRealBrokers(t *testing.T) {
	ends := map[string]string{"4.9.7": "4515", "5.3.3": "4765"}
	for v, end := range ends {
		full, err := remoting.ParseKVTable(read(t, golden(t, v+"-28")).Body)
		if err != nil || full["commitLogMinOffset"] != "0" || full["commitLogMaxOffset"] != end {
			t.Errorf("%s: %v, %v", v, full, err)
		}
		if want := "V" + strings.ReplaceAll(v, ".", "_"); full["brokerVersionDesc"] != want {
			t.Errorf("version %q", full["brokerVersionDesc"])
		}
		empty, err := remoting.ParseKVTable(read(t, golden(t, v+"-28-empty")).Body)
		if err != nil || empty["commitLogMinOffset"] != "-1" || empty["commitLogMaxOffset"] != "0" {
			t.Errorf("%s empty: %v, %v", v, empty, err)
		}
	}
}

func TestTablesThatAreNone(t *testing.T) {
	for _, in := range []string{"", "null", "{}", `{"table":null}`, `{"table":[]}`, `{"table":{"a":{}}}`, `{"table":{"a":"b"}`} {
		if got, err := remoting.ParseKVTable([]byte(in)); !errors.Is(err, remoting.ErrBody) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	got, err := remoting.ParseKVTable([]byte(`{"table":{"a":1,"b":true,"c":"x","d":null}}`))
	if diff := cmp.Diff(map[string]string{"a": "1", "b": "true", "c": "x", "d": ""}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// FuzzReadCommand checks that what was read is read again from its encoding.
func FuzzReadCommand(f *testing.F) {
	for _, b := range goldens(f) {
		if len(b) < 2500 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 16
		r := bytes.NewReader(b)
		c, err := remoting.ReadCommand(r, limit)
		if err != nil {
			if !errors.Is(err, remoting.ErrFrame) && !errors.Is(err, remoting.ErrTooLarge) && err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if len(b)-r.Len() > limit {
			t.Fatal("read above the limit")
		}
		again, err := remoting.Encode(c)
		if err != nil {
			return // numbers and names that JSON can carry and we never send
		}
		back, err := remoting.ReadCommand(bytes.NewReader(again), remoting.MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzProperties checks that nothing is made up: no key or value is longer than
// its text.
func FuzzProperties(f *testing.F) {
	f.Add([]byte("a=1\\\n 2\nb\\u00fc:\\ud83d\\ude00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for k, v := range remoting.ParseProperties(b) {
			n += len(k) + len(v)
		}
		if n > len(b) {
			t.Fatalf("%d bytes out of %d", n, len(b))
		}
	})
}

func TestFuzzCorporaAreNotEmpty(t *testing.T) {
	for _, name := range []string{"FuzzReadCommand", "FuzzProperties"} {
		files, err := os.ReadDir(filepath.Join("testdata", "fuzz", name))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %d files, %v", name, len(files), err)
		}
	}
}
