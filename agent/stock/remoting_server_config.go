package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/haagent/haagent/agent/metadata"
	"github.com/haagent/haagent/agent/retry"
	"github.com/haagent/haagent/wire/remoting"
)

// configAnswers returns what makes the body of each request for a config file.
// Brokers answer with what they would write into the file, so the file is the
// body; only the topics of 5.x come with those of another file.
func configAnswers(dir string, v4 bool) map[remoting.RequestCode]func(context.Context) ([]byte, error) {
	file := func(name, empty string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) { return readConfig(ctx, dir, name, empty) }
	}
	answers := map[remoting.RequestCode]func(context.Context) ([]byte, error){
		remoting.GetAllTopicConfig:             file("topics.json", noTopics),
		remoting.GetAllConsumerOffset:          file("consumerOffset.json", `{"offsetTable":{}}`),
		remoting.GetAllDelayOffset:             file("delayOffset.json", `{"offsetTable":{}}`),
		remoting.GetAllSubscriptionGroupConfig: file("subscriptionGroup.json", `{"dataVersion":{"counter":0,"timestamp":0},"subscriptionGroupTable":{}}`),
	}
	if v4 {
		return answers
	}
	answers[remoting.GetAllMessageRequestMode] = file("messageRequestMode.json", `{"messageRequestModeMap":{}}`)
	answers[remoting.GetAllTopicConfig] = func(ctx context.Context) ([]byte, error) {
		topics, err := readConfig(ctx, dir, "topics.json", noTopics)
		if err != nil {
			return nil, err
		}
		mapping, err := readConfig(ctx, dir, "topicQueueMapping.json", `{"topicQueueMappingInfoMap":{}}`)
		if err != nil {
			return nil, err
		}
		return joinTopics(topics, mapping), nil
	}
	return answers
}

const noTopics = `{"dataVersion":{"counter":0,"timestamp":0},"topicConfigTable":{}}`

// joinTopics makes a 5.x broker's answer of its two files about topics.
func joinTopics(topics, mapping []byte) []byte {
	version, ok := member(mapping, "dataVersion")
	if !ok {
		version = []byte(`{"counter":0,"stateVersion":0,"timestamp":0}`)
	}
	table, ok := member(mapping, "topicQueueMappingInfoMap")
	if !ok {
		table = []byte(`{}`)
	}
	topics = bytes.TrimRight(topics, " \t\r\n")
	open := bytes.TrimRight(bytes.TrimSuffix(topics, []byte("}")), " \t\r\n")
	comma := ","
	if bytes.HasSuffix(open, []byte("{")) {
		comma = ""
	}
	return fmt.Appendf(nil, `%s%s"mappingDataVersion":%s,"topicQueueMappingDetailMap":%s,"topicQueueMappingInfoMap":{}}`, open, comma, version, table)
}

// member returns the value of a quoted key of the object b, which must be whole
// (metadata.Complete).
func member(b []byte, key string) ([]byte, bool) {
	quoted := []byte(`"` + key + `"`)
	depth, start, found := 0, 0, false // start is that of a key, or of the value behind it
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == '"':
			i = stringEnd(b, i) - 1
		case c == '{' || c == '[':
			if depth++; depth == 1 {
				start = i + 1
			}
		case depth == 1 && c == ':':
			found = bytes.Equal(bytes.TrimSpace(b[start:i]), quoted)
			start = i + 1
		case depth == 1 && (c == ',' || c == '}'):
			if found {
				return bytes.TrimSpace(b[start:i]), true
			}
			start = i + 1
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil, false
}

// stringEnd returns where the string that begins at i ends.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(b))
}

// errTorn is matched by the error about a config file of which no whole version
// was seen.
var errTorn = errors.New("no whole version of the file")

// configProblem returns the code that tells a client whether to ask again.
func configProblem(err error) remoting.ResponseCode {
	if errors.Is(err, errTorn) {
		return remoting.SystemBusy
	}
	return remoting.SystemError
}

// A broker rewrites a config file in a few milliseconds, and in place, so that a
// reader meets it half written or missing.
const (
	configTries = 10
	configPause = 10 * time.Millisecond
)

// readConfig returns a whole version of a config file, or of the one before it
// where the newest stays torn; empty where there has never been one.
func readConfig(ctx context.Context, dir, name, empty string) ([]byte, error) {
	path := filepath.Join(dir, "config", name)
	var torn error
	for try := range configTries {
		if try > 0 && !retry.Sleep(ctx, configPause) {
			return nil, ctx.Err()
		}
		b, err := readWhole(path)
		if err == nil {
			return b, nil
		}
		torn = err
		if !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := os.Stat(path + ".bak"); errors.Is(err, fs.ErrNotExist) {
			return []byte(empty), nil
		}
	}
	b, err := readWhole(path + ".bak")
	if err == nil {
		return b, nil
	}
	return nil, fmt.Errorf("%s: %w: %w; %w", path, errTorn, torn, err)
}

// readWhole reads a file that must hold one whole JSON value.
func readWhole(path string) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b, err := io.ReadAll(io.LimitReader(f, int64(metadata.MaxFile)+1))
	if err != nil {
		return nil, err
	}
	if err := metadata.Complete(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
