package stock_test

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/stock"
	"github.com/haagent/haagent/wire/remoting"
)

// deflated writes the compressed form: pieces with their lengths, and bare
// numbers.
func deflated(t testing.TB, parts ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	for _, part := range parts {
		var raw []byte
		switch p := part.(type) {
		case string:
			raw = append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
		case int:
			raw = binary.BigEndian.AppendUint32(nil, uint32(p))
		}
		if _, err := z.Write(raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	fullTopic  = `"orders":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":5}`
	plainTable = `"dataVersion":{"counter":3,"timestamp":1700000000000},"topicConfigTable":{` + fullTopic + `}`
)

// registrations are bodies that brokers of all generations send.
func registrations(t testing.TB) map[string][]byte {
	return map[string][]byte{
		"oldest": []byte(`{` + plainTable + `}`),
		"4.x":    []byte(`{"filterServerList":[],"topicConfigSerializeWrapper":{` + plainTable + `}}`),
		"5.x": []byte(`{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},` +
			`"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"topicConfigTable":{"orders":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"orders","topicSysFlag":0,"writeQueueNums":5}},` +
			`"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{"s":{"bname":"b","currIdMap":{0:0, 1:1},"dirty":false,"epoch":1,"topic":"s","totalQueues":2}}}}`),
		"compressed 4.x": deflated(t, `{"counter":3,"timestamp":1700000000000}`, 1, "orders 4 5 6 SINGLE_TAG", "[]"),
		"compressed 5.x": deflated(t, `{"counter":3,"stateVersion":0,"timestamp":1700000000000}`, 1, `orders 4 5 6 SINGLE_TAG {"+a":"b c"}`, "[]", 0),
	}
}

// compressed tells by the first byte, which is zlib's.
func compressed(body []byte) bool { return len(body) > 0 && body[0] == 0x78 }

func TestRegistration_AllGenerations(t *testing.T) {
	t.Parallel()
	for name, body := range registrations(t) {
		sum := crc32.ChecksumIEEE(body) &^ (1 << 31)
		version, queues, err := stock.ReadRegistration(body, compressed(body), sum)
		if err != nil || !maps.Equal(queues, map[string]int{"orders": 4}) || version != (remoting.DataVersion{Counter: 3, Timestamp: 1700000000000}) {
			t.Errorf("%s: %v %v %v", name, version, queues, err)
		}
		for n := 1; n < len(body); n++ {
			if _, _, err := stock.ReadRegistration(body[:n], compressed(body), 0); err == nil && !compressed(body) {
				t.Errorf("%s: its first %d bytes are a registration", name, n)
			}
			if _, _, err := stock.ReadRegistration(body[:n], compressed(body), sum); !errors.Is(err, stock.ErrRegistration) {
				t.Errorf("%s: its first %d bytes have its checksum: %v", name, n, err)
			}
		}
	}
	if _, queues, err := stock.ReadRegistration(nil, false, 0); err != nil || len(queues) != 0 {
		t.Errorf("without a body: %v %v", queues, err)
	}
}

// A length inside a compressed body costs nothing before its bytes are there.
func TestRegistration_CompressedLengths(t *testing.T) {
	t.Parallel()
	version := `{"counter":3,"timestamp":1}`
	for name, body := range map[string][]byte{
		"a version of 2 GiB":  deflated(t, 1<<31-1),
		"a negative length":   deflated(t, -1),
		"a topic of 1 GiB":    deflated(t, version, 1, 1<<30),
		"too many topics":     deflated(t, version, stock.MaxBrokerTopics+1),
		"fewer topics":        deflated(t, version, 2, "orders 4 5 6 SINGLE_TAG"),
		"a topic without all": deflated(t, version, 1, "orders 4 5"),
		"a word for a number": deflated(t, version, 1, "orders four 5 6 SINGLE_TAG"),
		"not zlib":            []byte("orders"),
		"no version":          deflated(t, "", 0),
	} {
		if _, _, err := stock.ReadRegistration(body, true, 0); !errors.Is(err, stock.ErrRegistration) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// paddedTopics registers n topics in compressed form, each with size bytes of
// something behind its numbers.
func paddedTopics(t testing.TB, n, size int) []byte {
	t.Helper()
	parts := []any{`{"counter":3,"timestamp":1}`, n}
	for i := range n {
		parts = append(parts, fmt.Sprintf("t%d 4 5 6 %s", i, strings.Repeat("x", size)))
	}
	return deflated(t, parts...)
}

// What is kept of a topic is its name and its numbers, however long it is. (Not in
// parallel: the heap is measured.)
func TestRegistration_KeepsNamesAlone(t *testing.T) {
	const topics, size = 20, 1<<20 - 100
	body := paddedTopics(t, topics, size)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	_, queues, err := stock.ReadRegistration(body, true, 0)
	if err != nil || len(queues) != topics {
		t.Fatalf("%d topics, %v", len(queues), err)
	}
	if now := heap(); now > before+topics*size/2 {
		t.Errorf("%d topics keep %d bytes", topics, now-before)
	}
	runtime.KeepAlive(queues)
	runtime.KeepAlive(body)
}

// Quoting bare keys makes of what fastjson writes what others read, and changes
// nothing else.
func TestStrictJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{0:12,1:9}`:                       `{"0":12,"1":9}`,
		`{"a":[1,2,{-3 : [4,true]}],b:{}}`: `{"a":[1,2,{"-3" : [4,true]}],"b":{}}`,
		`{"a":"{0:1,","b":"\"{2:3"}`:       `{"a":"{0:1,","b":"\"{2:3"}`,
		`[{1:[]},{2:[3,{4:5}]},6]`:         `[{"1":[]},{"2":[3,{"4":5}]},6]`,
		` 7 `:                              ` 7 `,
		"{\n 1:\n2,\t3:4}":                 "{\n \"1\":\n2,\t\"3\":4}",
	} {
		got, err := stock.StrictJSON([]byte(in))
		if err != nil || string(got) != want || !json.Valid(got) {
			t.Errorf("%s became %s, %v", in, got, err)
		}
	}
}

// No body makes a registration that is beyond the bounds, or a panic; and what
// brokers write becomes strict JSON whenever it is whole.
func FuzzRegistration(f *testing.F) {
	for _, body := range registrations(f) {
		f.Add(body)
	}
	seeds, err := filepath.Glob(filepath.Join("testdata", "fuzz", "FuzzRegistration", "*"))
	if err != nil || len(seeds) == 0 {
		f.Fatalf("the corpus is empty: %v", err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_, queues, err := stock.ReadRegistration(body, compressed(body), 0)
		if err != nil && !errors.Is(err, stock.ErrRegistration) {
			t.Errorf("another kind of error: %v", err)
		}
		if len(queues) > stock.MaxBrokerTopics {
			t.Errorf("%d topics", len(queues))
		}
		for name, n := range queues {
			if name == "" || len(name) > 255 || n < 0 || n > 1<<16 {
				t.Errorf("topic %q has %d queues", name, n)
			}
		}
		strict, err := stock.StrictJSON(body)
		if whole := metadata.Complete(body); (whole == nil) != (err == nil) {
			t.Errorf("whole: %v, strict: %v", whole, err)
		}
		if err == nil && metadata.Complete(strict) != nil {
			t.Errorf("%s became %s", body, strict)
		}
	})
}
