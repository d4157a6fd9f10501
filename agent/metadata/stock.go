package metadata

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/haagent/haagent/wire"
	"github.com/haagent/haagent/wire/remoting"
)

// ErrPartial is matched by the error for an answer that holds only a part of a
// table.
var ErrPartial = errors.New("answer holds only a part of the table")

// firstV5 is the number of 5.0.0 in the version that every broker puts into its
// answers (MQVersion: V5_0_0_SNAPSHOT).
const firstV5 = 412

// StockRequests returns the requests that yield config files, in the order in
// which they must be sent: positions before topics and groups, so that what the
// positions name is there. [Lookup] tells by Since which of them 4.x brokers know.
//
// None needs a body or extra header fields. Brokers from 5.4 on send large tables
// in pages of 2,000 only to those who ask for it by one of the fields topicSeq,
// groupSeq, maxTopicNum, maxGroupNum or dataVersion, and whole tables to others:
// so none of those is ever sent.
func StockRequests() []remoting.RequestCode {
	return []remoting.RequestCode{
		remoting.GetAllConsumerOffset,
		remoting.GetAllDelayOffset,
		remoting.GetAllMessageRequestMode,
		remoting.GetTimerMetrics,
		remoting.GetTimerCheckPoint,
		remoting.GetAllSubscriptionGroupConfig,
		remoting.GetAllTopicConfig,
	}
}

// newIn5 reports whether brokers before 5.0 do not know a request of the list.
func newIn5(code remoting.RequestCode) bool {
	for _, k := range known {
		if k.Request == code && k.Since == "4.x" {
			return false
		}
	}
	return true
}

// FromStock returns the files that a broker of the answer's version would have
// written itself. Contents are pieces of the answer's body, byte for byte; they
// differ from the broker's own files in white space alone, which brokers put in
// and do not read. The answer's code must be SUCCESS.
//
// Request 21 yields topics.json, and from 5.x brokers topicQueueMapping.json too.
// Request 60 yields timercheck without the zero bytes up to a page that brokers
// append. The others yield one file each.
//
// The errors match ErrPartial where the header announces more entries than the
// body has, and ErrIncomplete, ErrNotJSON, ErrTooDeep or ErrTooLarge.
func FromStock(code remoting.RequestCode, answer remoting.Command) ([]File, error) {
	files, err := fromStock(code, answer)
	if err != nil {
		return nil, fmt.Errorf("answer to %v: %w", code, err)
	}
	return files, nil
}

func fromStock(code remoting.RequestCode, answer remoting.Command) ([]File, error) {
	if c := answer.Answer(); c != remoting.Success {
		return nil, fmt.Errorf("%v: %s", c, answer.Remark)
	}
	switch code {
	case remoting.GetAllTopicConfig:
		return topicFiles(answer)
	case remoting.GetAllSubscriptionGroupConfig:
		if err := whole(answer, `"subscriptionGroupTable"`, "totalGroupNum"); err != nil {
			return nil, err
		}
	}
	for _, k := range known {
		if k.Request == code && k.Policy != Never {
			f, err := NewFile(k.Name, answer.Body)
			if err != nil {
				return nil, err
			}
			return []File{f}, nil
		}
	}
	return nil, errors.New("the request yields no config file")
}

// topicFiles takes the answer to request 21 apart. 4.x brokers answer with what
// they keep in topics.json, 5.x brokers with both tables and their stamps in one
// object.
func topicFiles(answer remoting.Command) ([]File, error) {
	if err := whole(answer, `"topicConfigTable"`, "totalTopicNum"); err != nil {
		return nil, err
	}
	var version, topics, mappingVersion, mapping []byte
	err := members(answer.Body, func(key, value []byte) error {
		switch string(key) {
		case versionKey:
			version = value
		case `"topicConfigTable"`:
			topics = value
		case `"mappingDataVersion"`:
			mappingVersion = value
		case `"topicQueueMappingDetailMap"`:
			mapping = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(topics) == 0 || topics[0] != '{' {
		return nil, &JSONError{Pos: wire.ByteSize(len(answer.Body)), Reason: "no topicConfigTable", Err: ErrNotJSON}
	}
	f, err := NewFile("topics.json", object(member{versionKey, version}, member{`"topicConfigTable"`, topics}))
	if err != nil {
		return nil, err
	}
	files := []File{f}
	if len(mapping) > 0 && mapping[0] == '{' {
		f, err := NewFile("topicQueueMapping.json", object(member{versionKey, mappingVersion}, member{`"topicQueueMappingInfoMap"`, mapping}))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// member is a quoted key and its raw value.
type member struct {
	key   string
	value []byte
}

// object writes an object of the members that have a value.
func object(list ...member) []byte {
	size := len("{}")
	for _, m := range list {
		size += len(m.key) + len(":,") + len(m.value)
	}
	b := append(make([]byte, 0, size), '{')
	for _, m := range list {
		if len(m.value) == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, m.key...), ':'), m.value...)
	}
	return append(b, '}')
}

// whole compares the number of entries in a table with the number that 5.4 and
// later brokers announce in the header. A table that grows while it is written
// may differ too; the next round then has it.
func whole(answer remoting.Command, table, field string) error {
	announced, ok := answer.ExtFields[field]
	if !ok {
		return nil
	}
	want, err := strconv.Atoi(announced)
	if err != nil {
		return fmt.Errorf("header field %s: %w", field, err)
	}
	have := 0
	err = members(answer.Body, func(key, value []byte) error {
		if string(key) != table || value[0] != '{' {
			return nil
		}
		return members(value, func(_, _ []byte) error { have++; return nil })
	})
	if err != nil {
		return err
	}
	if have < want {
		return fmt.Errorf("%w: %d of %d entries", ErrPartial, have, want)
	}
	return nil
}

// Ask sends one request without body or extra fields and returns the answer,
// whatever its code is. An error means that there was none.
type Ask func(ctx context.Context, code remoting.RequestCode) (remoting.Command, error)

// Missing is a request that a broker does not answer with a file.
type Missing struct {
	Request remoting.RequestCode
	// Err is what the broker said instead, nil where its generation does not know
	// the request.
	Err error
}

// Collect takes one snapshot of a stock broker: it asks for everything that the
// broker's generation knows, then calls end for the place where the broker's log
// ends (request 28). Generation is left 0. It fails where there is no answer, or
// no whole one for topics, groups or positions, because those belong together;
// what else is not to be had stands in the list.
//
// What came with 5.0 is asked only of brokers whose first answer says that they
// are as new: 4.9 answers REQUEST_CODE_NOT_SUPPORTED, but 4.5 nothing at all.
func Collect(ctx context.Context, ask Ask, end func(context.Context) (wire.PhyOffset, error)) (Snapshot, []Missing, error) {
	s := Snapshot{TakenAt: time.Now()}
	var missing []Missing
	version := 0
	for n, code := range StockRequests() {
		if n > 0 && version < firstV5 && newIn5(code) {
			missing = append(missing, Missing{Request: code})
			continue
		}
		answer, err := ask(ctx, code)
		if err != nil {
			return Snapshot{}, nil, fmt.Errorf("ask for %v: %w", code, err)
		}
		if n == 0 {
			version = answer.Version
		}
		files, err := FromStock(code, answer)
		switch {
		case err == nil:
			s.Files = append(s.Files, files...)
		case !newIn5(code):
			return Snapshot{}, nil, err
		case answer.Answer() == remoting.RequestCodeNotSupported:
			missing = append(missing, Missing{Request: code})
		default:
			missing = append(missing, Missing{Request: code, Err: err})
		}
	}
	var err error
	if s.SourceEnd, err = end(ctx); err != nil {
		return Snapshot{}, nil, fmt.Errorf("end of the broker's log: %w", err)
	}
	return s, missing, nil
}
