package forge

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// Limits of what fits into the length fields of a record.
const (
	maxTopicV1    = math.MaxInt8
	maxTopicV2    = math.MaxInt16
	maxProperties = math.MaxUint16 // above 32767 only in batches, which brokers store and then skip
)

// crcPropertyName is the property that Message.PropertyCRC appends.
const crcPropertyName = "__CRC32#"

// NextQueueOffset as a QueueOffset lets a Writer count, as brokers do: the next
// one of the topic and queue, 0 for prepared and rolled back transactions.
const NextQueueOffset int64 = -1

// Message is what is stored in one record. The zero value is a V1 message without
// anything in it.
type Message struct {
	Magic          uint32 // commitlog.MagicV1 or MagicV2; 0 takes what the topic needs
	QueueID        int32
	Flag           int32
	QueueOffset    int64
	SysFlag        int32 // the two host bits are set by the hosts
	BornTimestamp  commitlog.Millis
	StoreTimestamp commitlog.Millis
	BornHost       netip.AddrPort // IPv6 takes 20 bytes; the zero value is 0.0.0.0:0
	StoreHost      netip.AddrPort

	ReconsumeTimes            int32
	PreparedTransactionOffset int64

	Body        []byte
	Topic       string
	Properties  string // as stored, see AppendProperty
	PropertyCRC bool   // append the checksum of the whole record to the properties
}

// AppendProperty appends a property to a Message's Properties.
func AppendProperty(properties, name, value string) string {
	return properties + name + string(rune(commitlog.NameValueSeparator)) + value + string(rune(commitlog.PropertySeparator))
}

// Check returns an error if m does not fit into a record.
func (m *Message) Check() error {
	switch magic := m.magic(); {
	case magic != commitlog.MagicV1 && magic != commitlog.MagicV2:
		return fmt.Errorf("forge message: magic 0x%08x is none of a message", magic)
	case magic == commitlog.MagicV1 && len(m.Topic) > maxTopicV1:
		return fmt.Errorf("forge message: a topic of %d bytes; V1 holds %d", len(m.Topic), maxTopicV1)
	case len(m.Topic) > maxTopicV2:
		return fmt.Errorf("forge message: a topic of %d bytes; V2 holds %d", len(m.Topic), maxTopicV2)
	case m.propertiesLen() > maxProperties:
		return fmt.Errorf("forge message: properties of %d bytes; a record holds %d", m.propertiesLen(), maxProperties)
	case m.Size() > commitlog.MaxRecord:
		return fmt.Errorf("forge message: %d bytes; at most %d", m.Size(), commitlog.MaxRecord)
	}
	return nil
}

// Size returns the TOTALSIZE of the record.
func (m *Message) Size() wire.ByteSize {
	topicLen := 1
	if m.magic() == commitlog.MagicV2 {
		topicLen = 2
	}
	hosts := hostSize(m.BornHost) + hostSize(m.StoreHost)
	return wire.ByteSize(fixedSize + hosts + 4 + len(m.Body) + topicLen + len(m.Topic) + 2 + m.propertiesLen())
}

// fixedSize counts every field but the two hosts, BODY, TOPIC and PROPERTIES.
const fixedSize = 5*4 + 2*8 + 4 + 2*8 + 4 + 8

func (m *Message) magic() uint32 {
	switch {
	case m.Magic != 0:
		return m.Magic
	case len(m.Topic) > maxTopicV1:
		return commitlog.MagicV2
	}
	return commitlog.MagicV1
}

func (m *Message) sysFlag() int32 {
	flag := m.SysFlag &^ (commitlog.FlagBornHostV6 | commitlog.FlagStoreHostV6)
	if m.BornHost.Addr().Is6() {
		flag |= commitlog.FlagBornHostV6
	}
	if m.StoreHost.Addr().Is6() {
		flag |= commitlog.FlagStoreHostV6
	}
	return flag
}

// needsSeparator reports whether the properties have to be closed before the
// checksum can follow them.
func (m *Message) needsSeparator() bool {
	n := len(m.Properties)
	return m.PropertyCRC && n > 0 && m.Properties[n-1] != commitlog.PropertySeparator
}

func (m *Message) propertiesLen() int {
	n := len(m.Properties)
	if m.needsSeparator() {
		n++
	}
	if m.PropertyCRC {
		n += len(crcPropertyName) + 1 + 10 + 1
	}
	return n
}

// AppendMessage appends the record of m that belongs at offset at. It panics if
// m does not pass Check, which is a programming error.
func AppendMessage(dst []byte, m Message, at wire.PhyOffset) []byte {
	if err := m.Check(); err != nil {
		panic(err)
	}
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint32(dst, uint32(m.Size()))
	dst = be.AppendUint32(dst, m.magic())
	dst = be.AppendUint32(dst, checksum(m.Body))
	dst = be.AppendUint32(dst, uint32(m.QueueID))
	dst = be.AppendUint32(dst, uint32(m.Flag))
	dst = be.AppendUint64(dst, uint64(m.QueueOffset))
	dst = be.AppendUint64(dst, uint64(at))
	dst = be.AppendUint32(dst, uint32(m.sysFlag()))
	dst = be.AppendUint64(dst, uint64(m.BornTimestamp))
	dst = appendHost(dst, m.BornHost)
	dst = be.AppendUint64(dst, uint64(m.StoreTimestamp))
	dst = appendHost(dst, m.StoreHost)
	dst = be.AppendUint32(dst, uint32(m.ReconsumeTimes))
	dst = be.AppendUint64(dst, uint64(m.PreparedTransactionOffset))
	dst = be.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	if m.magic() == commitlog.MagicV2 {
		dst = append(dst, byte(len(m.Topic)>>8))
	}
	dst = append(dst, byte(len(m.Topic)))
	dst = append(dst, m.Topic...)
	dst = be.AppendUint16(dst, uint16(m.propertiesLen()))
	dst = append(dst, m.Properties...)
	if m.needsSeparator() {
		dst = append(dst, commitlog.PropertySeparator)
	}
	if m.PropertyCRC {
		dst = appendCRCProperty(dst, checksum(dst[start:]))
	}
	return dst
}

// appendCRCProperty writes the digits as brokers do, the least significant first.
func appendCRCProperty(dst []byte, sum uint32) []byte {
	dst = append(dst, crcPropertyName...)
	dst = append(dst, commitlog.NameValueSeparator)
	for range 10 {
		dst = append(dst, '0'+byte(sum%10))
		sum /= 10
	}
	return append(dst, commitlog.PropertySeparator)
}

// AppendBlank appends the 8 bytes of the BLANK that ends a segment with size
// bytes left in it, itself included.
func AppendBlank(dst []byte, size wire.ByteSize) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	return binary.BigEndian.AppendUint32(dst, commitlog.MagicBlank)
}

func hostSize(host netip.AddrPort) int {
	if host.Addr().Is6() {
		return 16 + 4
	}
	return 4 + 4
}

func appendHost(dst []byte, host netip.AddrPort) []byte {
	switch addr := host.Addr(); {
	case addr.Is6():
		ip := addr.As16()
		dst = append(dst, ip[:]...)
	case addr.Is4():
		ip := addr.As4()
		dst = append(dst, ip[:]...)
	default:
		dst = append(dst, 0, 0, 0, 0)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(host.Port()))
}

// checksum is the one of brokers: CRC-32 (IEEE) without its top bit.
func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) &^ (1 << 31) }
