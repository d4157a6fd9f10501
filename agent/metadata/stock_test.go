package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// versions of the brokers whose answers are in testdata, with the number that
// they put into their answers.
var versions = map[string]int{"4.9.7": 407, "5.1.4": 441, "5.3.3": 479, "5.5.0": 513}

// compact drops white space outside of strings: the one thing in which a
// broker's files differ from its answers.
func compact(b []byte) []byte {
	var out []byte
	inString := false
	for i := 0; i < len(b); i++ {
		c := b[i]
		if !inString && strings.IndexByte(" \t\r\n", c) >= 0 {
			continue
		}
		out = append(out, c)
		if inString && c == '\\' && i+1 < len(b) {
			i++
			out = append(out, b[i])
			continue
		}
		if c == '"' {
			inString = !inString
		}
	}
	return out
}

func answerOf(t testing.TB, version string, code remoting.RequestCode) remoting.Command {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "stock", version, "answers", strconv.Itoa(int(code))))
	if errors.Is(err, os.ErrNotExist) {
		return remoting.Command{Code: int(remoting.RequestCodeNotSupported), Version: versions[version]}
	}
	if err != nil {
		t.Fatal(err)
	}
	return remoting.Command{Body: body, Version: versions[version]}
}

// The files made of a broker's answers are those that the same broker wrote,
// token for token, and byte for byte where it writes without white space.
func TestFromStock_EqualsTheBrokersOwnFiles(t *testing.T) {
	for version := range versions {
		made := make(map[string]File)
		for _, code := range StockRequests() {
			a := answerOf(t, version, code)
			if a.Answer() != remoting.Success {
				continue
			}
			files, err := FromStock(code, a)
			if err != nil {
				t.Fatalf("%s: %v", version, err)
			}
			for _, f := range files {
				made[f.Name] = f
			}
		}
		for _, k := range KnownFiles() {
			own, err := os.ReadFile(filepath.Join("testdata", "stock", version, "config", k.Name))
			f, ok := made[k.Name]
			switch {
			case errors.Is(err, os.ErrNotExist):
				if ok {
					t.Errorf("%s: made %s, which the broker does not have", version, k.Name)
				}
			case err != nil:
				t.Fatal(err)
			case k.Request == 0:
				if ok {
					t.Errorf("%s: made %s, which no request yields", version, k.Name)
				}
			case !ok:
				t.Errorf("%s: did not make %s", version, k.Name)
			case !bytes.Equal(f.Content, compact(own)):
				t.Errorf("%s: %s is\n%s\nthe broker's own is\n%s", version, k.Name, f.Content, compact(own))
			case strings.Contains(string(own), `"dataVersion"`) != (f.DataVersion != nil):
				t.Errorf("%s: %s has the data version %v", version, k.Name, f.DataVersion)
			}
		}
	}
}

func TestFromStock_KeepsTokens(t *testing.T) {
	body := `{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"a":{"x":1.10,"big":12345678901234567890,"s":"\u00e9 \/"}},` +
		`"topicQueueMappingDetailMap":{"a":{"hostedQueues":{0:[{}],1:[]}}},"mappingDataVersion":{"counter":3,"timestamp":4}}`
	files, err := FromStock(remoting.GetAllTopicConfig, remoting.Command{Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{
		`{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"a":{"x":1.10,"big":12345678901234567890,"s":"\u00e9 \/"}}}`,
		`{"dataVersion":{"counter":3,"timestamp":4},"topicQueueMappingInfoMap":{"a":{"hostedQueues":{0:[{}],1:[]}}}}`,
	} {
		if string(files[n].Content) != want {
			t.Errorf("%s is %s\nwant %s", files[n].Name, files[n].Content, want)
		}
	}
}

func TestFromStock_Refuses(t *testing.T) {
	ext := func(field, n string) map[string]string { return map[string]string{field: n} }
	for what, test := range map[string]struct {
		code   remoting.RequestCode
		answer remoting.Command
		err    error
	}{
		"no body":          {remoting.GetAllConsumerOffset, remoting.Command{}, ErrIncomplete},
		"half a body":      {remoting.GetAllConsumerOffset, remoting.Command{Body: []byte(`{"offsetTable":{`)}, ErrIncomplete},
		"an array":         {remoting.GetAllDelayOffset, remoting.Command{Body: []byte(`[]`)}, ErrNotJSON},
		"no topics":        {remoting.GetAllTopicConfig, remoting.Command{Body: []byte(`{"dataVersion":{}}`)}, ErrNotJSON},
		"null topics":      {remoting.GetAllTopicConfig, remoting.Command{Body: []byte(`{"topicConfigTable":null}`)}, ErrNotJSON},
		"a page of topics": {remoting.GetAllTopicConfig, remoting.Command{ExtFields: ext("totalTopicNum", "3"), Body: []byte(`{"topicConfigTable":{"a":{},"b":{}}}`)}, ErrPartial},
		"a page of groups": {remoting.GetAllSubscriptionGroupConfig, remoting.Command{ExtFields: ext("totalGroupNum", "2"), Body: []byte(`{"subscriptionGroupTable":{"a":{}}}`)}, ErrPartial},
		"a bad number":     {remoting.GetAllTopicConfig, remoting.Command{ExtFields: ext("totalTopicNum", "x"), Body: []byte(`{"topicConfigTable":{}}`)}, strconv.ErrSyntax},
		"an error":         {remoting.GetAllTopicConfig, remoting.Command{Code: 1, Remark: "No topic in this broker"}, nil},
		"another request":  {remoting.GetBrokerConfig, remoting.Command{Body: []byte(`{}`)}, nil},
	} {
		files, err := FromStock(test.code, test.answer)
		if err == nil || files != nil || test.err != nil && !errors.Is(err, test.err) {
			t.Errorf("%s: %d files, %v, want %v", what, len(files), err, test.err)
		}
	}
	whole := remoting.Command{ExtFields: ext("totalTopicNum", "2"), Body: []byte(`{"topicConfigTable":{"a":{},"b":{}}}`)}
	if _, err := FromStock(remoting.GetAllTopicConfig, whole); err != nil {
		t.Errorf("all of two topics: %v", err)
	}
}

// asked answers from testdata and keeps the order of the questions.
type asked struct {
	t       testing.TB
	version string
	codes   []int
	fail    map[remoting.RequestCode]remoting.Command
}

func (a *asked) ask(_ context.Context, code remoting.RequestCode) (remoting.Command, error) {
	a.codes = append(a.codes, int(code))
	if c, ok := a.fail[code]; ok {
		c.Version = versions[a.version]
		return c, nil
	}
	return answerOf(a.t, a.version, code), nil
}

func (a *asked) end(context.Context) (wire.PhyOffset, error) {
	a.codes = append(a.codes, 28)
	return 4711, nil
}

func TestCollect(t *testing.T) {
	for version, want := range map[string][]int{
		// What 4.x does not know must not be asked: 4.5 would not answer at all.
		"4.9.7": {43, 45, 201, 21, 28},
		"5.1.4": {43, 45, 402, 61, 60, 201, 21, 28},
		"5.3.3": {43, 45, 402, 61, 60, 201, 21, 28},
		"5.5.0": {43, 45, 402, 61, 60, 201, 21, 28},
	} {
		a := &asked{t: t, version: version}
		s, missing, err := Collect(t.Context(), a.ask, a.end)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		if !slices.Equal(a.codes, want) {
			t.Errorf("%s: asked %v, want %v", version, a.codes, want)
		}
		if s.SourceEnd != 4711 || s.TakenAt.IsZero() {
			t.Errorf("%s: end %v, taken %v", version, s.SourceEnd, s.TakenAt)
		}
		for _, m := range missing {
			if m.Err != nil {
				t.Errorf("%s: %v: %v", version, m.Request, m.Err)
			}
		}
		i := open(t, t.TempDir(), Options{})
		offered(t, i, s)
		names, err := i.Install(4711)
		if err != nil || len(names) < 4 {
			t.Errorf("%s: installed %q, %v", version, names, err)
		}
	}
}

func TestCollect_Fails(t *testing.T) {
	refused := remoting.Command{Code: int(remoting.SystemError), Remark: "busy"}
	for _, code := range StockRequests() {
		a := &asked{t: t, version: "5.3.3", fail: map[remoting.RequestCode]remoting.Command{code: refused}}
		s, missing, err := Collect(t.Context(), a.ask, a.end)
		if newIn5(code) {
			if err != nil || !slices.ContainsFunc(missing, func(m Missing) bool { return m.Request == code && m.Err != nil }) {
				t.Errorf("%v refused: missing %v, %v", code, missing, err)
			}
		} else if err == nil || s.Files != nil {
			t.Errorf("%v refused: %d files, %v", code, len(s.Files), err)
		}
	}
	gone := errors.New("connection refused")
	if _, _, err := Collect(t.Context(), func(context.Context, remoting.RequestCode) (remoting.Command, error) {
		return remoting.Command{}, gone
	}, nil); !errors.Is(err, gone) {
		t.Errorf("no answer: %v", err)
	}
	a := &asked{t: t, version: "4.9.7"}
	if _, _, err := Collect(t.Context(), a.ask, func(context.Context) (wire.PhyOffset, error) { return 0, gone }); !errors.Is(err, gone) {
		t.Errorf("no end: %v", err)
	}
}

// A table of 50,000 topics goes from the answer to the disk with no more than a
// few copies of it, however it is taken apart.
func TestFault56_LargeTables(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"dataVersion":{"counter":77,"stateVersion":0,"timestamp":1},"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"topicConfigTable":{`)
	for i := range 50_000 {
		if i > 0 {
			b.WriteByte(',')
		}
		name := fmt.Sprintf("a-topic-with-a-name-of-a-certain-length-as-teams-use-to-choose-them-%06d", i)
		fmt.Fprintf(&b, `%q:{"attributes":{"message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"SINGLE_TAG","topicName":%q,"topicSysFlag":0,"writeQueueNums":16}`, name, name)
	}
	b.WriteString(`},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}`)
	answer := remoting.Command{Body: b.Bytes(), ExtFields: map[string]string{"totalTopicNum": "50000"}}
	dir := t.TempDir()
	i := open(t, dir, Options{})
	c := newClock()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files, err := FromStock(remoting.GetAllTopicConfig, answer)
	if err != nil {
		t.Fatal(err)
	}
	offered(t, i, c.snapshot(0, files...))
	installed(t, i, 0, "topics.json", "topicQueueMapping.json")
	for range 5 { // what did not change is neither copied nor written again
		offered(t, i, c.snapshot(0, files...))
		installed(t, i, 0)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes of answer, %d bytes allocated", b.Len(), allocated)
	if b.Len() < 13<<20 || allocated > uint64(3*b.Len()) {
		t.Errorf("%d bytes of answer, %d bytes allocated in all", b.Len(), allocated)
	}
	if s := status(t, i, "topics.json"); s.Size != wire.ByteSize(len(files[0].Content)) || i.Generation() != 1 {
		t.Errorf("status %+v, generation %d", s, i.Generation())
	}
}
