//go:build unix

package forge

import (
	"fmt"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// The parts in which AppendSlowly stores a record.
const (
	PartSize       = "size"       // TOTALSIZE
	PartHeader     = "header"     // MAGIC up to the length of the body
	PartBody       = "body"       //
	PartTopic      = "topic"      // its length and its bytes
	PartProperties = "properties" // their length and their bytes
)

// Parts returns the parts in the order in which they lie in a record.
func Parts() []string {
	return []string{PartSize, PartHeader, PartBody, PartTopic, PartProperties}
}

// AppendSlowly stores m part by part, as it can be seen by a reader that looks
// while a broker stores it: step is called after each part but the last with its
// name. The order is that of Parts unless another one is given, which must name
// every part once. End moves when the last part is there.
func (w *Writer) AppendSlowly(m Message, step func(part string), order ...string) (wire.PhyOffset, error) {
	if len(order) == 0 {
		order = Parts()
	}
	at, err := w.prepare(&m)
	if err != nil {
		return w.End(), err
	}
	spans := partSpans(&m, len(w.scratch))
	if len(order) != len(spans) {
		return w.End(), fmt.Errorf("append slowly: %d parts given, a record has %d", len(order), len(spans))
	}
	for i, part := range order {
		span, ok := spans[part]
		if !ok {
			return w.End(), fmt.Errorf("append slowly: no part %q, or it is named twice", part)
		}
		delete(spans, part)
		if err := w.seg.store(at.Add(wire.ByteSize(span[0])), w.scratch[span[0]:span[1]]); err != nil {
			return w.End(), err
		}
		if i < len(order)-1 {
			step(part)
		}
	}
	return w.commit(&m, at), nil
}

// partSpans returns where each part of m's record begins and ends.
func partSpans(m *Message, size int) map[string][2]int {
	body := fixedSize + hostSize(m.BornHost) + hostSize(m.StoreHost) + 4
	topic := body + len(m.Body)
	properties := topic + 1 + len(m.Topic)
	if m.magic() == commitlog.MagicV2 {
		properties++
	}
	return map[string][2]int{
		PartSize: {0, 4}, PartHeader: {4, body}, PartBody: {body, topic},
		PartTopic: {topic, properties}, PartProperties: {properties, size},
	}
}
