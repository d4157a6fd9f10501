package brokertest

import (
	"slices"
	"strings"
	"testing"
)

// pair returns what a clean test sends and reads.
func pair() ([]Sent, []Message) {
	sent := []Sent{
		{Status: StatusOK, Topic: "t", Key: "a", QueueID: 0, QueueOffset: 7, PhyOffset: 100, BodySHA256: "x", BodySize: 1, Tags: "red"},
		{Status: StatusNoSlave, Topic: "t", Key: "b", QueueID: 0, QueueOffset: 8, PhyOffset: 200, Props: map[string]string{"p": "1"}},
		{Status: StatusError, Topic: "t", Key: "c", QueueID: -1, QueueOffset: -1, PhyOffset: -1},
		{Status: StatusOK, Topic: "t", Key: "d", Kind: Delayed, QueueID: 3, QueueOffset: 1, PhyOffset: 300},
		{Status: StatusOK, Topic: "t", Key: "e", Kind: Transactional, RolledBack: true},
	}
	got := []Message{
		{Topic: "t", Keys: "d", QueueID: 1, QueueOffset: 0, PhyOffset: 400},
		{Topic: "t", Keys: "a", QueueID: 0, QueueOffset: 7, PhyOffset: 100, BodySHA256: "x", BodySize: 1, Tags: "red"},
		{Topic: "t", Keys: "b", QueueID: 0, QueueOffset: 8, PhyOffset: 200, Props: map[string]string{"p": "1", "MSG_REGION": "r"}},
	}
	return sent, got
}

// TestDiff_FindsEveryFault changes one thing at a time in a clean pair.
func TestDiff_FindsEveryFault(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(sent []Sent, got []Message) []Message
		want  string // in the only line; empty: no line
	}{
		{"clean", func(_ []Sent, got []Message) []Message { return got }, ""},
		{"failed send stored once", func(_ []Sent, got []Message) []Message {
			return append(got, Message{Topic: "t", Keys: "c", QueueID: 2})
		}, ""},
		{"failed send stored twice", func(_ []Sent, got []Message) []Message {
			return append(got, Message{Topic: "t", Keys: "c", QueueID: 2}, Message{Topic: "t", Keys: "c", QueueID: 3})
		}, "2 times"},
		{"missing", func(_ []Sent, got []Message) []Message { return got[1:] }, "missing"},
		{"twice", func(_ []Sent, got []Message) []Message {
			return append(got, Message{Topic: "t", Keys: "d", QueueID: 1, QueueOffset: 1})
		}, "2 times"},
		{"unknown", func(_ []Sent, got []Message) []Message {
			return append(got, Message{Topic: "t", Keys: "z", QueueID: 5})
		}, "nobody sent it"},
		{"rolled back", func(_ []Sent, got []Message) []Message {
			return append(got, Message{Topic: "t", Keys: "e", QueueID: 5})
		}, "rolled back"},
		{"body", func(_ []Sent, got []Message) []Message { got[1].BodySHA256 = "y"; return got }, "body is y"},
		{"body size", func(_ []Sent, got []Message) []Message { got[1].BodySize = 2; return got }, "body size is 2"},
		{"topic", func(_ []Sent, got []Message) []Message { got[0].Topic = "u"; return got }, "topic is u"},
		{"tags", func(_ []Sent, got []Message) []Message { got[1].Tags = ""; return got }, "tags"},
		{"property", func(_ []Sent, got []Message) []Message { got[2].Props["p"] = "2"; return got }, "property p is 2"},
		{"queue", func(_ []Sent, got []Message) []Message { got[2].QueueID = 4; return got }, "queue is 4"},
		{"offset", func(_ []Sent, got []Message) []Message { got[2].PhyOffset = 201; return got }, "offset is 201"},
		{"gap", func(sent []Sent, got []Message) []Message {
			sent[1].QueueOffset, got[2].QueueOffset = 9, 9
			return got
		}, "offset 9 follows 7"},
		{"repeat", func(sent []Sent, got []Message) []Message {
			sent[1].QueueOffset, got[2].QueueOffset = 7, 7
			return got
		}, "offset 7 follows 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent, got := pair()
			lines := Diff(sent, c.spoil(sent, got))
			switch {
			case c.want == "" && len(lines) != 0:
				t.Errorf("clean, but: %v", lines)
			case c.want != "" && (len(lines) != 1 || !strings.Contains(lines[0], c.want)):
				t.Errorf("want one line with %q: %q", c.want, lines)
			}
		})
	}
}

func TestDiffMessages_FindsEveryFault(t *testing.T) {
	_, want := pair()
	for _, c := range []struct {
		name  string
		spoil func(got []Message) []Message
		want  string
	}{
		{"clean, in another order", func(got []Message) []Message { slices.Reverse(got); return got }, ""},
		{"missing", func(got []Message) []Message { return got[1:] }, "missing"},
		{"more", func(got []Message) []Message { return append(got, Message{Topic: "t", QueueID: 9}) }, "unexpected"},
		{"twice", func(got []Message) []Message { return append(got, got[0]) }, "twice"},
		{"moved", func(got []Message) []Message { got[0].PhyOffset++; return got }, "differs"},
		{"other body", func(got []Message) []Message { got[0].BodySHA256 = "y"; return got }, "differs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := DiffMessages(want, c.spoil(slices.Clone(want)))
			switch {
			case c.want == "" && len(lines) != 0:
				t.Errorf("clean, but: %v", lines)
			case c.want != "" && (len(lines) != 1 || !strings.Contains(lines[0], c.want)):
				t.Errorf("want one line with %q: %q", c.want, lines)
			}
		})
	}
}

func TestSendSpec_Defaults(t *testing.T) {
	for _, c := range []struct {
		in   SendSpec
		want func(SendSpec) bool
	}{
		{SendSpec{}, func(s SendSpec) bool {
			return s.Kind == Plain && s.BodySize == 1024 && s.Threads == 1 && s.TimeoutMs > 5000
		}},
		{SendSpec{Kind: Compressed}, func(s SendSpec) bool { return s.BodySize > 4096 }},
		{SendSpec{Kind: Big4MiB}, func(s SendSpec) bool { return s.BodySize == 4<<20 }},
		{SendSpec{Kind: LongTopic, Topic: "a"}, func(s SendSpec) bool { return len(s.Topic) == maxTopicName }},
		{SendSpec{Kind: IPv6}, func(s SendSpec) bool { return s.Via == "::1" }},
		{SendSpec{Kind: Tagged}, func(s SendSpec) bool { return s.Tags != "" }},
		{SendSpec{BodySize: 3, Threads: 2, TimeoutMs: 1}, func(s SendSpec) bool { return s.BodySize == 3 && s.Threads == 2 && s.TimeoutMs == 1 }},
	} {
		if got := c.in.withDefaults(); !c.want(got) {
			t.Errorf("%+v became %+v", c.in, got)
		}
	}
}
