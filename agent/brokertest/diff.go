package brokertest

import (
	"cmp"
	"fmt"
	"slices"
)

// Diff compares what was sent with what was read, and says in one line each what
// is wrong; nil is what every test wants. Messages are paired by their keys, which
// no two sends share.
//
//   - A message that the broker said it has must be there once, with its body,
//     tags and properties; and, where the sender was told its final place
//     (Sent.Placed), in that queue and at those offsets.
//   - A rolled back message must not be there.
//   - A message whose send failed may be there, but not twice.
//   - Nothing else may be there.
//   - The queue offsets of what was read have no gap.
func Diff(want []Sent, got []Message) []string {
	var wrong []string
	byKey := make(map[string][]Message, len(got))
	for _, m := range got {
		byKey[m.Keys] = append(byKey[m.Keys], m)
	}
	for _, s := range want {
		found := byKey[s.Key]
		delete(byKey, s.Key)
		wrong = append(wrong, diffOne(s, found)...)
	}
	for _, found := range byKey {
		for _, m := range found {
			wrong = append(wrong, fmt.Sprintf("%s: read at %d/%d, but nobody sent it", m.name(), m.QueueID, m.QueueOffset))
		}
	}
	wrong = append(wrong, gaps(got)...)
	slices.Sort(wrong)
	return wrong
}

// DiffMessages compares two pulls of the same topics, say of a broker and of its
// replica: the same messages, at the same places, with the same content.
func DiffMessages(want, got []Message) []string {
	type place struct {
		topic  string
		queue  int
		offset int64
	}
	at := func(m Message) place { return place{m.Topic, m.QueueID, m.QueueOffset} }
	left := make(map[place]Message, len(got))
	var wrong []string
	for _, m := range got {
		if _, twice := left[at(m)]; twice {
			wrong = append(wrong, fmt.Sprintf("%s: read twice at %d/%d", m.name(), m.QueueID, m.QueueOffset))
		}
		left[at(m)] = m
	}
	for _, w := range want {
		m, ok := left[at(w)]
		delete(left, at(w))
		switch {
		case !ok:
			wrong = append(wrong, fmt.Sprintf("%s: missing at %d/%d", w.name(), w.QueueID, w.QueueOffset))
		case m.PhyOffset != w.PhyOffset, m.StoreSize != w.StoreSize, m.MsgID != w.MsgID, m.BodySHA256 != w.BodySHA256,
			m.StoreTimestamp != w.StoreTimestamp, m.BornHost != w.BornHost, m.StoreHost != w.StoreHost:
			wrong = append(wrong, fmt.Sprintf("%s: differs at %d/%d: %+v instead of %+v", w.name(), w.QueueID, w.QueueOffset, m, w))
		}
	}
	for _, m := range left {
		wrong = append(wrong, fmt.Sprintf("%s: unexpected at %d/%d", m.name(), m.QueueID, m.QueueOffset))
	}
	slices.Sort(wrong)
	return wrong
}

func (m Message) name() string { return m.Topic + " " + m.Keys + " (" + m.MsgID + ")" }

// diffOne compares one sent message with all that was read under its id.
func diffOne(s Sent, found []Message) []string {
	name := s.Topic + " " + s.Key + " (" + s.MsgID + ")"
	switch {
	case s.RolledBack && len(found) > 0:
		return []string{name + ": rolled back, but read"}
	case s.RolledBack, !s.Stored() && len(found) == 0:
		return nil
	case len(found) == 0:
		return []string{fmt.Sprintf("%s: missing, its sender was told %s at %d/%d", name, s.Status, s.QueueID, s.QueueOffset)}
	case len(found) > 1:
		return []string{fmt.Sprintf("%s: read %d times", name, len(found))}
	}
	m := found[0]
	var wrong []string
	check := func(what string, want, got any) {
		if want != got {
			wrong = append(wrong, fmt.Sprintf("%s: %s is %v, sent %v", name, what, got, want))
		}
	}
	check("topic", s.Topic, m.Topic)
	check("body size", s.BodySize, m.BodySize)
	check("body", s.BodySHA256, m.BodySHA256)
	check("tags", s.Tags, m.Tags)
	for name, value := range s.Props {
		check("property "+name, value, m.Props[name])
	}
	if s.Placed() {
		check("queue", s.QueueID, m.QueueID)
		check("queue offset", s.QueueOffset, m.QueueOffset)
		check("offset", s.PhyOffset, m.PhyOffset)
	}
	return wrong
}

// gaps finds holes and repeats in the queue offsets of what one broker group's
// queues gave. Messages with the same queue of several groups cannot be told
// apart here, so a test with several groups compares them one by one.
func gaps(got []Message) []string {
	sorted := slices.Clone(got)
	slices.SortStableFunc(sorted, func(a, b Message) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.QueueID, b.QueueID), cmp.Compare(a.QueueOffset, b.QueueOffset))
	})
	var wrong []string
	for i, m := range sorted {
		if i == 0 {
			continue
		}
		before := sorted[i-1]
		if m.Topic == before.Topic && m.QueueID == before.QueueID && m.QueueOffset != before.QueueOffset+1 {
			wrong = append(wrong, fmt.Sprintf("%s queue %d: offset %d follows %d", m.Topic, m.QueueID, m.QueueOffset, before.QueueOffset))
		}
	}
	return wrong
}
