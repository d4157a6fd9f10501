package brokertest

import (
	"strings"
	"time"

	"github.com/haagent/haagent/wire"
)

// Kind is a kind of message, by the way it is sent and stored.
type Kind string

// The kinds of messages.
const (
	// Plain messages have a body and keys.
	Plain Kind = "plain"
	// Tagged messages have SendSpec.Tags as well, "tag" where empty.
	Tagged Kind = "tagged"
	// Keyed messages carry further properties; SendSpec.Props, or one of its own.
	Keyed Kind = "keyed"
	// Delayed messages have a delay level and reach their topic later.
	Delayed Kind = "delayed"
	// Timed messages have a delay in milliseconds: 5.x only, 4.x delivers at once.
	Timed Kind = "timed"
	// Transactional messages reach their topic when they are committed.
	Transactional Kind = "transactional"
	// Compressed messages have bodies that the client compresses.
	Compressed Kind = "compressed"
	// Batch messages travel together, BatchSize at a time, and are stored one by one.
	Batch Kind = "batch"
	// LongTopic messages go to a topic of the longest name that a broker takes:
	// SendSpec.Topic, lengthened by LongName.
	LongTopic Kind = "longtopic"
	// Big4MiB messages have bodies of 4 MiB and need segments of 16 MiB.
	Big4MiB Kind = "big4MiB"
	// IPv6 messages are sent over ::1, see Via. The topic is created where missing.
	IPv6 Kind = "ipv6"
)

// maxTopicName is the length of the longest topic name, in bytes. Brokers of all
// versions refuse to store a longer one, since its length is one signed byte.
const maxTopicName = 127

// LongName lengthens a topic name to the longest that brokers take.
func LongName(topic string) string {
	return topic + strings.Repeat("x", max(0, maxTopicName-len(topic)))
}

// The statuses of a send: those of the stock client, and StatusError for a send
// that ended in an exception, of which nobody knows whether it was stored.
const (
	StatusOK               = "SEND_OK"
	StatusFlushDiskTimeout = "FLUSH_DISK_TIMEOUT"
	StatusFlushSlave       = "FLUSH_SLAVE_TIMEOUT"
	StatusNoSlave          = "SLAVE_NOT_AVAILABLE"
	StatusError            = "ERROR"
)

// SendSpec says what to send. Topic is required; a topic that does not exist is
// created by the broker, with four queues.
type SendSpec struct {
	Topic string `json:"topic"`
	// Count is the number of messages; 1 where zero. StartSending goes on until
	// it is stopped where Count is zero.
	Count int `json:"count"`
	// BodySize is the size of each body in bytes, 1024 where zero (16384 for
	// Compressed, 4 MiB for Big4MiB).
	BodySize int `json:"bodySize"`
	// Kind is Plain where empty.
	Kind Kind `json:"kind"`
	// Threads send at the same time; 1 where zero. Order is kept by one thread only.
	Threads int `json:"threads"`
	// TimeoutMs is the time that one send may take; 10,000 where zero. It must be
	// longer than the broker waits for its slaves.
	TimeoutMs int `json:"timeoutMs"`
	// Rate is the number of messages a second over all threads; 0 is no limit.
	Rate float64 `json:"rate"`
	// DelayLevel is the delay level of Delayed messages; 1 (1 s) where zero.
	DelayLevel int `json:"delayLevel"`
	// DelayMs is the delay of Timed messages; 1000 where zero.
	DelayMs int `json:"delayMs"`
	// BatchSize is the number of Batch messages that travel together; 16 where zero.
	BatchSize int `json:"batchSize"`
	// RollbackEvery rolls back every so manyth transaction; 0 commits all.
	RollbackEvery int `json:"rollbackEvery"`
	// Via is the host to reach the broker by instead of the one in its route
	// ("::1"). Such messages are plain, and their topic must exist.
	Via string `json:"via"`
	// Tags and Props go into every message.
	Tags  string            `json:"tags"`
	Props map[string]string `json:"props"`
	// KeyPrefix starts the key of every message; "k-" where empty. What follows
	// makes the key unique.
	KeyPrefix string `json:"keyPrefix"`
}

// withDefaults fills in what the fields' comments promise.
func (s SendSpec) withDefaults() SendSpec {
	setDefault(&s.Kind, Plain)
	setDefault(&s.Threads, 1)
	setDefault(&s.TimeoutMs, 10_000)
	setDefault(&s.DelayLevel, 1)
	setDefault(&s.DelayMs, 1000)
	setDefault(&s.BatchSize, 16)
	setDefault(&s.KeyPrefix, "k-")
	switch s.Kind {
	case Tagged:
		setDefault(&s.Tags, "tag")
	case Keyed:
		if s.Props == nil {
			s.Props = map[string]string{"origin": "brokertest"}
		}
	case Compressed:
		setDefault(&s.BodySize, 16<<10)
	case Big4MiB:
		setDefault(&s.BodySize, 4<<20)
	case LongTopic:
		s.Topic = LongName(s.Topic)
	case IPv6:
		setDefault(&s.Via, "::1")
	}
	setDefault(&s.BodySize, 1024)
	return s
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Sent is one message that was sent, and what the client was told about it.
type Sent struct {
	Status string `json:"status"` // one of the Status words
	Topic  string `json:"topic"`
	Kind   Kind   `json:"kind"`
	// Broker is the name of the broker group that stored the message.
	Broker string `json:"brokerName"`
	// QueueID, QueueOffset (in messages) and PhyOffset are where it was stored; -1
	// where the client was not told. See Placed.
	QueueID     int            `json:"queueId"`
	QueueOffset int64          `json:"queueOffset"`
	PhyOffset   wire.PhyOffset `json:"phyOffset"`
	// MsgID is the client's id of the message, which stays with it for ever; but
	// 5.x gives all messages of a batch the id of the batch.
	MsgID string `json:"msgId"`
	// OffsetMsgID is the broker's id, made of store host and PhyOffset.
	OffsetMsgID   string            `json:"offsetMsgId"`
	Key           string            `json:"key"`
	Tags          string            `json:"tags"`
	Props         map[string]string `json:"props"`
	BodySize      int               `json:"bodySize"`
	BodySHA256    string            `json:"bodySha256"`
	RolledBack    bool              `json:"rolledBack"`
	LatencyMicros int64             `json:"latencyMicros"`
	Err           string            `json:"err"`
}

// Stored reports whether the broker said that it has the message, with or
// without a slave's word for it.
func (s Sent) Stored() bool { return s.Status != StatusError && s.Status != "" }

// Placed reports whether QueueOffset and PhyOffset are those of the message that
// consumers read. Delayed and transactional messages are stored elsewhere first,
// and that is the place which their sender is told.
func (s Sent) Placed() bool {
	return s.Stored() && s.QueueOffset >= 0 && s.Kind != Delayed && s.Kind != Timed && s.Kind != Transactional
}

// Latency returns the time that the send took, as its sender saw it.
func (s Sent) Latency() time.Duration { return time.Duration(s.LatencyMicros) * time.Microsecond }

// Statuses counts messages by status.
func Statuses(sent []Sent) map[string]int {
	n := make(map[string]int)
	for _, s := range sent {
		n[s.Status]++
	}
	return n
}

// Message is one message as a consumer reads it.
type Message struct {
	Topic       string         `json:"topic"`
	QueueID     int            `json:"queueId"`
	QueueOffset int64          `json:"queueOffset"` // in messages
	PhyOffset   wire.PhyOffset `json:"phyOffset"`
	StoreSize   wire.ByteSize  `json:"storeSize"` // of the whole record in the log
	SysFlag     int            `json:"sysFlag"`   // as stored; of Consume as the client leaves it
	// MsgID is the client's id, as Sent.MsgID.
	MsgID string            `json:"msgId"`
	Keys  string            `json:"keys"`
	Tags  string            `json:"tags"`
	Props map[string]string `json:"props"`
	// BodySize and BodySHA256 are those of the body after decompression.
	BodySize   int    `json:"bodySize"`
	BodySHA256 string `json:"bodySha256"`
	// BornHost and StoreHost are as Java prints them: "/127.0.0.1:40000".
	BornHost       string `json:"bornHost"`
	StoreHost      string `json:"storeHost"`
	StoreTimestamp int64  `json:"storeTimestamp"` // milliseconds since 1970
}

// The bits of Message.SysFlag that tests look at.
const (
	FlagCompressed  = 0x1
	FlagBornHostV6  = 0x10
	FlagStoreHostV6 = 0x20
)
