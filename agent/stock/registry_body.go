package stock

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// maxInflated bounds a registration that came compressed.
const maxInflated = 2 * MaxRegistration

// errRegistration is matched by errors about a body that is no registration.
var errRegistration = errors.New("not a registration")

// topicTable is what a broker tells of its topics.
type topicTable struct {
	version remoting.DataVersion
	topics  map[string]registeredTopic
}

// jsonTopics is a TopicConfigSerializeWrapper.
type jsonTopics struct {
	DataVersion      remoting.DataVersion `json:"dataVersion"`
	TopicConfigTable map[string]struct {
		Read    int `json:"readQueueNums"`
		Write   int `json:"writeQueueNums"`
		Perm    int `json:"perm"`
		SysFlag int `json:"topicSysFlag"`
	} `json:"topicConfigTable"`
}

// readRegistration reads the body of request 103 in the forms that it has had:
//
//	{"topicConfigSerializeWrapper":{"dataVersion":…,"topicConfigTable":…},"filterServerList":[…]}
//	{"dataVersion":…,"topicConfigTable":…}                          before 3.0.11
//	zlib( n version  count  n topic  n topic  …  n filterServers … )  compressed=true
//
// where n and count are int32 and a topic is "name read write perm filterType
// {attributes}". sum is the CRC-32 of the body without its top bit; 0: not told.
func readRegistration(body []byte, compressed bool, sum uint32) (topicTable, error) {
	const top = 1 << 31
	if sum != 0 && crc32.ChecksumIEEE(body)&^top != sum {
		return topicTable{}, fmt.Errorf("%w: crc32 not match", errRegistration)
	}
	if len(body) == 0 {
		return topicTable{}, nil
	}
	if compressed {
		return readCompressed(body)
	}
	plain, err := strictJSON(body)
	if err != nil {
		return topicTable{}, fmt.Errorf("%w: %w", errRegistration, err)
	}
	var forms struct {
		Wrapper *jsonTopics `json:"topicConfigSerializeWrapper"`
		jsonTopics
	}
	if err := json.Unmarshal(plain, &forms); err != nil {
		return topicTable{}, fmt.Errorf("%w: %w", errRegistration, err)
	}
	if forms.Wrapper == nil {
		forms.Wrapper = &forms.jsonTopics
	}
	t := topicTable{version: forms.Wrapper.DataVersion, topics: make(map[string]registeredTopic, len(forms.Wrapper.TopicConfigTable))}
	for name, c := range forms.Wrapper.TopicConfigTable {
		if err := t.add(name, registeredTopic{read: c.Read, write: c.Write, perm: c.Perm, sysFlag: c.SysFlag}); err != nil {
			return topicTable{}, err
		}
	}
	return t, nil
}

// add takes a topic in that makes sense.
func (t *topicTable) add(name string, c registeredTopic) error {
	const maxQueues = 1 << 16
	switch {
	case name == "" || len(name) > maxRegisteredText:
		return fmt.Errorf("%w: a topic's name has %d bytes", errRegistration, len(name))
	case c.read < 0 || c.read > maxQueues || c.write < 0 || c.write > maxQueues:
		return fmt.Errorf("%w: topic %s has %d and %d queues", errRegistration, name, c.read, c.write)
	case len(t.topics) >= maxBrokerTopics:
		return fmt.Errorf("%w: more than %d topics", errRegistration, maxBrokerTopics)
	}
	t.topics[name] = c
	return nil
}

// readCompressed reads the compressed form.
func readCompressed(body []byte) (topicTable, error) {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return topicTable{}, fmt.Errorf("%w: %w", errRegistration, err)
	}
	in := inflated{r: io.LimitReader(z, int64(maxInflated))}
	t := topicTable{topics: make(map[string]registeredTopic)}
	if err := json.Unmarshal(in.piece(), &t.version); err != nil {
		return topicTable{}, fmt.Errorf("%w: data version: %w", errRegistration, errors.Join(in.err, err))
	}
	for range in.number() {
		fields := strings.SplitN(string(in.piece()), " ", 6)
		if in.err != nil {
			break
		}
		const least = 5
		if len(fields) < least {
			return topicTable{}, fmt.Errorf("%w: topic %q", errRegistration, fields)
		}
		var c registeredTopic
		for i, into := range []*int{&c.read, &c.write, &c.perm} {
			if *into, err = strconv.Atoi(fields[1+i]); err != nil {
				return topicTable{}, fmt.Errorf("%w: topic %q", errRegistration, fields)
			}
		}
		if err := t.add(strings.Clone(fields[0]), c); err != nil { // without the rest of its piece
			return topicTable{}, err
		}
	}
	if in.err != nil {
		return topicTable{}, fmt.Errorf("%w: %w", errRegistration, in.err)
	}
	return t, nil // what follows is of no use here
}

// inflated takes the compressed form apart; after an error it gives nothing.
type inflated struct {
	r   io.Reader
	err error
}

// number reads a count that cannot be right where it is beyond the topics of a
// broker.
func (in *inflated) number() int {
	n := in.int32()
	if n > maxBrokerTopics {
		in.err = errors.Join(in.err, fmt.Errorf("%d topics are more than %d", n, maxBrokerTopics))
		return 0
	}
	return n
}

func (in *inflated) int32() int {
	var b [4]byte
	if in.err == nil {
		_, in.err = io.ReadFull(in.r, b[:])
	}
	n := int32(binary.BigEndian.Uint32(b[:]))
	if in.err == nil && n < 0 {
		in.err = fmt.Errorf("a length of %d", n)
	}
	if in.err != nil {
		return 0
	}
	return int(n)
}

// piece reads a length and so many bytes.
func (in *inflated) piece() []byte {
	const longest = wire.MiB // a topic, attributes and all
	n := in.int32()
	if in.err == nil && n > int(longest) {
		in.err = fmt.Errorf("a piece of %d bytes", n)
	}
	if in.err != nil {
		return nil
	}
	b := make([]byte, n)
	_, in.err = io.ReadFull(in.r, b)
	return b
}

// strictJSON returns what brokers write with all keys quoted: fastjson leaves
// integer keys bare.
func strictJSON(b []byte) ([]byte, error) {
	if err := metadata.Complete(b); err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(b)+len(b)/16)
	var objects []bool // whether each open bracket is an object's
	key := false       // whether a key may come next
	for i := 0; i < len(b); {
		c, end := b[i], i+1
		switch {
		case c == '"':
			end = stringEnd(b, i)
			key = false
		case c == '{' || c == '[':
			objects = append(objects, c == '{')
			key = c == '{'
		case c == '}' || c == ']':
			objects = objects[:len(objects)-1]
			key = false
		case c == ',':
			key = len(objects) > 0 && objects[len(objects)-1]
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ':':
		case key:
			for end < len(b) && !strings.ContainsRune(": \t\r\n", rune(b[end])) {
				end++
			}
			out = append(out, '"')
			out = append(out, b[i:end]...)
			out = append(out, '"')
			i, key = end, false
			continue
		}
		out = append(out, b[i:end]...)
		i = end
	}
	return out, nil
}
