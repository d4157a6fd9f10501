package forge

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"strconv"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// Variety bounds what RandomMessage makes up. The zero value gives messages that
// every broker version reads.
type Variety struct {
	MaxSize      wire.ByteSize // of the whole record; default 4 KiB, at least 1 KiB
	V2           bool          // long topics too (brokers from 5.1 on)
	IPv6         bool          // IPv6 hosts too
	PropertyCRC  bool          // checksums over the whole record too (brokers from 5.2 on)
	Transactions bool          // prepared, committed and rolled back messages too
	Topics       int           // number of topics; default 4
	Queues       int           // number of queues in a topic; default 4
}

// RandomMessage makes up a message from r alone: the same r gives the same
// message. Its QueueOffset is NextQueueOffset, its times go up from a fixed moment.
func RandomMessage(r *rand.Rand, v Variety) Message {
	if v.MaxSize == 0 {
		v.MaxSize = 4 * wire.KiB
	}
	v.MaxSize = max(v.MaxSize, wire.KiB)
	if v.Topics == 0 {
		v.Topics = 4
	}
	if v.Queues == 0 {
		v.Queues = 4
	}
	m := Message{
		QueueID:        r.Int32N(int32(v.Queues)),
		QueueOffset:    NextQueueOffset,
		BornTimestamp:  commitlog.Millis(1_700_000_000_000 + r.Int64N(1_000_000_000)),
		BornHost:       randomHost(r, v.IPv6),
		StoreHost:      randomHost(r, v.IPv6),
		ReconsumeTimes: pick[int32](r, 0, 0, 0, 1, 16),
		Topic:          randomTopic(r, v),
		Properties:     randomProperties(r),
		PropertyCRC:    v.PropertyCRC && r.IntN(4) == 0,
	}
	m.StoreTimestamp = m.BornTimestamp + commitlog.Millis(r.IntN(50))
	if v.Transactions && r.IntN(4) == 0 {
		m.SysFlag = pick(r, commitlog.FlagTransactionPrepared, commitlog.FlagTransactionCommit, commitlog.FlagTransactionRollback)
	}
	if left := v.MaxSize - m.Size(); left > 0 && r.IntN(16) != 0 {
		m.Body = randomBody(r, int(r.Int64N(int64(left)+1)))
	}
	return m
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func randomHost(r *rand.Rand, v6 bool) netip.AddrPort {
	port := uint16(1024 + r.IntN(60000))
	if v6 && r.IntN(2) == 0 {
		ip := [16]byte{0x20, 0x01, 0x0d, 0xb8}
		binary.BigEndian.PutUint64(ip[8:], r.Uint64())
		return netip.AddrPortFrom(netip.AddrFrom16(ip), port)
	}
	ip := [4]byte{10}
	binary.BigEndian.PutUint16(ip[2:], uint16(r.Uint32()))
	return netip.AddrPortFrom(netip.AddrFrom4(ip), port)
}

// randomTopic returns one of the topics "t-0", "t-1" ..., of which every second
// one is as long as its record allows.
func randomTopic(r *rand.Rand, v Variety) string {
	n := r.IntN(v.Topics)
	topic := "t-" + strconv.Itoa(n)
	size := len(topic)
	switch {
	case n%4 == 1:
		size = maxTopicV1
	case n%4 == 3 && v.V2:
		size = 200
	}
	for len(topic) < size {
		topic += "x"
	}
	return topic
}

func randomProperties(r *rand.Rand) string {
	p := ""
	if r.IntN(2) == 0 {
		p = AppendProperty(p, "KEYS", "k"+strconv.FormatUint(r.Uint64(), 36))
	}
	if r.IntN(2) == 0 {
		p = AppendProperty(p, "TAGS", pick(r, "a", "b", "c"))
	}
	if r.IntN(4) == 0 {
		p = AppendProperty(p, "UNIQ_KEY", strconv.FormatUint(r.Uint64(), 16))
	}
	return p
}

// randomBody returns n bytes: noise, text that compresses, or zeros.
func randomBody(r *rand.Rand, n int) []byte {
	body := make([]byte, n)
	switch r.IntN(4) {
	case 0:
	case 1:
		for i := range body {
			body[i] = "the same again "[i%15]
		}
	default:
		for i := range body {
			body[i] = byte(r.Uint32())
		}
	}
	return body
}
