package remoting_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) == 0 {
		t.Fatalf("testdata/%s.bin is empty", name)
	}
	return b
}

// goldens are all recorded answers.
func goldens(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(names) < 16 {
		t.Fatalf("%d recorded answers, %v", len(names), err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		short := strings.TrimSuffix(filepath.Base(name), ".bin")
		all[short] = golden(t, short)
	}
	return all
}

func read(t testing.TB, b []byte) remoting.Command {
	t.Helper()
	c, err := remoting.ReadCommand(bytes.NewReader(b), remoting.MaxFrame)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRealBrokersAnswersRead(t *testing.T) {
	for name, b := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			c := read(t, b)
			version := map[string]int{"4.9.7": 407, "5.3.3": 479}[name[:5]]
			if !c.Response() || c.OneWay() || c.Opaque != 7 || c.Language != "JAVA" || c.Version != version {
				t.Errorf("got %+v", c)
			}
			ok := c.Answer() == remoting.Success && len(c.Body) > 0 && c.Remark == ""
			if strings.HasSuffix(name, "-none") || strings.HasSuffix(name, "-early") {
				ok = c.Answer() == remoting.SystemError && c.Body == nil && c.Remark != ""
			}
			if !ok {
				t.Errorf("code %v, remark %q, %d bytes", c.Answer(), c.Remark, len(c.Body))
			}
			if binary := strings.HasSuffix(name, "-binary"); binary != (c.Serialization == remoting.Binary) {
				t.Errorf("serialization %v", c.Serialization)
			}
			again, err := remoting.Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, b) {
				t.Error("does not encode to the bytes of the broker")
			}
		})
	}
}

func TestBothHeadersSayTheSame(t *testing.T) {
	binary, json := read(t, golden(t, "4.9.7-26-binary")), read(t, golden(t, "4.9.7-26"))
	binary.Serialization = remoting.JSON
	if diff := cmp.Diff(json, binary); diff != "" {
		t.Error(diff)
	}
}

func TestTruncatedAtEveryByte(t *testing.T) {
	for _, name := range []string{"4.9.7-33-none", "4.9.7-28-binary"} {
		b := golden(t, name)
		for n := range b {
			_, err := remoting.ReadCommand(bytes.NewReader(b[:n]), remoting.MaxFrame)
			want := io.ErrUnexpectedEOF
			if n == 0 {
				want = io.EOF
			}
			if err != want {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
		}
	}
}

func TestFault1_OneByteAtATime(t *testing.T) {
	for name, b := range goldens(t) {
		got, err := remoting.ReadCommand(iotest.OneByteReader(bytes.NewReader(b)), remoting.MaxFrame)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(read(t, b), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestReadTakesOneFrameOnly(t *testing.T) {
	first, second := golden(t, "4.9.7-33"), golden(t, "5.3.3-33")
	r := bytes.NewReader(append(bytes.Clone(first), second...))
	for _, want := range []int{407, 479} {
		c, err := remoting.ReadCommand(r, remoting.MaxFrame)
		if err != nil || c.Version != want {
			t.Fatalf("version %d, %v; want %d", c.Version, err, want)
		}
	}
}

func TestReadErrorsOfTheConnectionPassThrough(t *testing.T) {
	reset := errors.New("connection reset by peer")
	b := golden(t, "4.9.7-28")
	for _, n := range []int{0, 3, 4, 7, 8, 50} {
		_, err := remoting.ReadCommand(io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(reset)), remoting.MaxFrame)
		if !errors.Is(err, reset) && n != 0 || err == nil {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

func words(total, word uint32, rest string) []byte {
	b := binary.BigEndian.AppendUint32(nil, total)
	b = binary.BigEndian.AppendUint32(b, word)
	return append(b, rest...)
}

func TestGarbageIsRefusedByName(t *testing.T) {
	const limit = wire.MiB * 4
	tests := []struct {
		name string
		in   []byte
		kind error
		says string
	}{
		{"no room for a header", words(3, 0, ""), remoting.ErrFrame, "length 3"},
		{"zeros", make([]byte, 64), remoting.ErrFrame, "length 0"},
		{"header longer than frame", words(10, 7, "{}{}{}"), remoting.ErrFrame, "header of 7 bytes"},
		{"unknown serialization", words(10, 2<<24|6, "{}{}{}"), remoting.ErrFrame, "unknown serialization 2"},
		{"header too long", words(4<<20-4, 1<<20+1, "{"), remoting.ErrTooLarge, "header of 1048577 bytes"},
		{"frame too long", words(4<<20-3, 2, "{}"), remoting.ErrTooLarge, "4194305 bytes"},
		{"length of 4 GiB", words(1<<32-1, 2, "{}"), remoting.ErrTooLarge, "4294967299 bytes"},
		{"no header at all", words(4, 0, ""), remoting.ErrFrame, "no object"},
		{"header is no object", words(8, 4, "null"), remoting.ErrFrame, "no object"},
		{"header is broken", words(8, 4, `{"a"`), remoting.ErrFrame, "JSON header"},
		{"field is an object", words(30, 26, `{"extFields":{"a":{"b":1}}}`[:26]), remoting.ErrFrame, "JSON header"},
		{"binary header ends early", words(8, 1<<24|4, "\x00\x01\x00\x00"), remoting.ErrFrame, "ends early"},
		{"binary remark too long", words(25, 1<<24|21, "\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01\x7f\xff\xff\xff\x00\x00\x00\x00"), remoting.ErrFrame, "ends early"},
		{"binary remark negative", words(25, 1<<24|21, "\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01\xff\xff\xff\xff\x00\x00\x00\x00"), remoting.ErrFrame, "ends early"},
		{"binary field cut", words(27, 1<<24|23, "\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01"), remoting.ErrFrame, "ends early"},
		{"binary left over", words(26, 1<<24|22, "\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00x"), remoting.ErrFrame, "1 bytes left over"},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), remoting.ErrFrame, "48 54 54 50 2f 31 2e 31"},
		{"TLS alert", []byte("\x15\x03\x03\x00\x02\x02\x28"), remoting.ErrFrame, "15 03 03 00 02 02 28"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := remoting.ReadCommand(bytes.NewReader(tt.in), limit)
			var fe *remoting.FrameError
			if !errors.Is(err, tt.kind) || !errors.As(err, &fe) {
				t.Fatalf("got %v, want %v", err, tt.kind)
			}
			if !strings.Contains(err.Error(), tt.says) || !bytes.HasPrefix(tt.in, fe.Head) {
				t.Errorf("%q does not say %q", err, tt.says)
			}
		})
	}
}

// The peer announces 60 MiB and then sends nothing.
func TestFault4_AnAnnouncedLengthAllocatesNothing(t *testing.T) {
	lie := words(60<<20, 10, "{}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := remoting.ReadCommand(bytes.NewReader(lie), remoting.MaxFrame); err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100*(128<<10) {
		t.Errorf("100 lies allocated %d bytes", grown)
	}
}

func TestLargeBodiesArriveWhole(t *testing.T) {
	for _, size := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1, 5<<20 + 17} {
		c := remoting.NewRequest(remoting.SendMessage, nil, bytes.Repeat([]byte("b"), size))
		b, err := remoting.Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := remoting.ReadCommand(iotest.HalfReader(bytes.NewReader(b)), wire.ByteSize(len(b)))
		if err != nil || !bytes.Equal(got.Body, c.Body) {
			t.Errorf("%d: %d bytes, %v", size, len(got.Body), err)
		}
		if _, err := remoting.ReadCommand(bytes.NewReader(b), wire.ByteSize(len(b)-1)); !errors.Is(err, remoting.ErrTooLarge) {
			t.Errorf("%d: one byte below: %v", size, err)
		}
	}
}

func TestHeadersOfOtherClientsAreRead(t *testing.T) {
	tests := map[string]remoting.Command{
		`{}`: {},
		`{"code":103,"extFields":{"brokerId":0,"compressed":false,"n":null,"s":"x"},"flag":0,"language":9,"opaque":3,"remark":null,"version":-1,"more":[{}]}`: {
			Code: 103, Opaque: 3, Language: "9", Version: -1,
			ExtFields: map[string]string{"brokerId": "0", "compressed": "false", "n": "", "s": "x"},
		},
		`{"code":1,"flag":1,"extFields":{},"remark":"gr\u00fc\u00df"}`: {Code: 1, Flag: 1, Remark: "grüß", ExtFields: map[string]string{}},
	}
	for in, want := range tests {
		got := read(t, words(uint32(4+len(in)), uint32(len(in)), in))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}

func TestEncodeRefusesWhatAPeerCannotRead(t *testing.T) {
	tests := map[string]remoting.Command{
		"remark not UTF-8":      {Remark: "\xff"},
		"field not UTF-8":       {ExtFields: map[string]string{"a": "\xff"}},
		"name not UTF-8":        {Serialization: remoting.Binary, ExtFields: map[string]string{"\xff": ""}},
		"binary code":           {Serialization: remoting.Binary, Code: 1 << 15},
		"binary version":        {Serialization: remoting.Binary, Version: 1 << 15},
		"binary flag":           {Serialization: remoting.Binary, Flag: 1 << 31},
		"binary name":           {Serialization: remoting.Binary, ExtFields: map[string]string{strings.Repeat("k", 1<<15): ""}},
		"unknown serialization": {Serialization: 2},
	}
	for name, c := range tests {
		if b, err := remoting.Encode(c); err == nil {
			t.Errorf("%s: encoded as %q", name, b)
		}
	}
	for _, s := range []remoting.Serialization{remoting.JSON, remoting.Binary} {
		if _, err := remoting.Encode(remoting.Command{Serialization: s, Remark: strings.Repeat("r", 1<<20)}); !errors.Is(err, remoting.ErrTooLarge) {
			t.Errorf("%v header above 1 MiB: %v", s, err)
		}
	}
}

func TestReplyBelongsToItsRequest(t *testing.T) {
	ext := map[string]string{"topic": "T"}
	req := remoting.NewRequest(remoting.GetRouteInfoByTopic, ext, []byte("b"))
	ext["topic"] = "changed"
	if req.ExtFields["topic"] != "T" || req.Response() || req.OneWay() || req.Request() != remoting.GetRouteInfoByTopic {
		t.Errorf("request %+v", req)
	}
	req.Opaque, req.Serialization, req.Flag = 99, remoting.Binary, remoting.FlagOneWay
	rep := req.Reply(remoting.TopicNotExist, "no such topic")
	if !req.OneWay() || !rep.Response() || rep.OneWay() || rep.Opaque != 99 || rep.Serialization != remoting.Binary ||
		rep.Answer() != remoting.TopicNotExist || rep.Remark != "no such topic" || rep.Body != nil {
		t.Errorf("reply %+v", rep)
	}
}

func TestNamesAreTheBrokersOwn(t *testing.T) {
	for got, want := range map[string]string{
		remoting.GetBrokerRuntimeInfo.String():    "GET_BROKER_RUNTIME_INFO(28)",
		remoting.RequestCode(9999).String():       "request 9999",
		remoting.RequestCodeNotSupported.String(): "REQUEST_CODE_NOT_SUPPORTED(3)",
		remoting.ResponseCode(77).String():        "code 77",
		remoting.JSON.String():                    "JSON",
		remoting.Binary.String():                  "ROCKETMQ",
		remoting.Serialization(9).String():        "serialization 9",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func drawCommand(rt *rapid.T) remoting.Command {
	c := remoting.Command{
		Code:          rapid.IntRange(-1<<15, 1<<15-1).Draw(rt, "code"),
		Language:      rapid.SampledFrom([]string{"JAVA", "GO", "CPP", "OTHER", "NODE_JS"}).Draw(rt, "language"),
		Version:       rapid.IntRange(-1<<15, 1<<15-1).Draw(rt, "version"),
		Opaque:        rapid.Int32().Draw(rt, "opaque"),
		Flag:          int(rapid.Int32().Draw(rt, "flag")),
		Remark:        rapid.String().Draw(rt, "remark"),
		ExtFields:     rapid.MapOf(rapid.String(), rapid.String()).Draw(rt, "fields"),
		Body:          rapid.SliceOf(rapid.Byte()).Draw(rt, "body"),
		Serialization: rapid.SampledFrom([]remoting.Serialization{remoting.JSON, remoting.Binary}).Draw(rt, "serialization"),
	}
	if len(c.ExtFields) == 0 {
		c.ExtFields = nil
	}
	if len(c.Body) == 0 {
		c.Body = nil
	}
	return c
}

func TestReadingUndoesEncoding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCommand(rt)
		b, err := remoting.Encode(c)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := remoting.ReadCommand(bytes.NewReader(b), wire.ByteSize(len(b)))
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(c, got); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestSignaturesAreThoseThatBrokersCheck(t *testing.T) {
	cred := remoting.Credentials{AccessKey: "haagent", SecretKey: "haagent-secret-1"}
	req := cred.Sign(remoting.NewRequest(remoting.ViewMessageByID, map[string]string{"offset": "0"}, nil))
	// Accepted by 4.9.7 (aclEnable) and 5.3.3 (authenticationEnabled).
	want := map[string]string{"AccessKey": "haagent", "offset": "0", "Signature": "Dk9daPKwbn19drMK+MciUkRzR7w="}
	if diff := cmp.Diff(want, req.ExtFields); diff != "" {
		t.Error(diff)
	}
}

func TestSignatureCoversFieldsAndBody(t *testing.T) {
	cred := remoting.Credentials{AccessKey: "a", SecretKey: "s", SecurityToken: "t"}
	plain := remoting.NewRequest(remoting.QueryDataVersion, map[string]string{"brokerName": "b", "Signature": "old"}, []byte("body"))
	signed := cred.Sign(plain)
	if plain.ExtFields["Signature"] != "old" || len(plain.ExtFields) != 2 {
		t.Error("signing changed the caller's fields")
	}
	if !cred.Verify(signed) || signed.ExtFields["SecurityToken"] != "t" {
		t.Fatalf("not verified: %v", signed.ExtFields)
	}
	again := cred.Sign(signed)
	if diff := cmp.Diff(signed, again); diff != "" {
		t.Errorf("signing twice: %s", diff)
	}
	for name, change := range map[string]func(*remoting.Command){
		"field":      func(c *remoting.Command) { c.ExtFields["brokerName"] = "c" },
		"new field":  func(c *remoting.Command) { c.ExtFields["x"] = "y" },
		"body":       func(c *remoting.Command) { c.Body = []byte("bodY") },
		"signature":  func(c *remoting.Command) { c.ExtFields["Signature"] = "AAAA" },
		"access key": func(c *remoting.Command) { c.ExtFields["AccessKey"] = "b" },
	} {
		forged := signed
		forged.ExtFields = maps.Clone(signed.ExtFields)
		change(&forged)
		if cred.Verify(forged) {
			t.Errorf("%s changed and still verified", name)
		}
	}
}
