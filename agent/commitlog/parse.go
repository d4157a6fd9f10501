package commitlog

import (
	"encoding/binary"
	"fmt"

	"github.com/haagent/haagent/wire"
)

// Sizes that bound a record.
const (
	// BlankSize is what is written of a BLANK. A broker keeps that much free
	// behind every record.
	BlankSize wire.ByteSize = 8
	// MaxRecord is the largest record taken for real. Brokers cap messages at
	// 4 MiB by default (maxMessageSize), and the frames they arrive in at 16 MiB;
	// both can be raised, so this is far above: it only tells a record that
	// is on its way from a nonsensical length.
	MaxRecord wire.ByteSize = 256 << 20
	// MinRecord is a V1 record with IPv4 hosts and nothing in it.
	MinRecord wire.ByteSize = fixedSize + hostSizeV4*2 + 4 + 1 + 2
)

// Places inside a record, see the package comment.
const (
	posMagic          = 4
	posBodyCRC        = 8
	posQueueID        = 12
	posFlag           = 16
	posQueueOffset    = 20
	posPhysicalOffset = 28
	posSysFlag        = 36
	posBornTimestamp  = 40
	posBornHost       = 48

	hostSizeV4 = 8
	hostSizeV6 = 20
	// fixedSize counts every field up to BODY but the two hosts.
	fixedSize = posBornHost + 8 + 4 + 8

	maxTopicV1 = 127 // brokers read the length as a signed byte
	maxTopicV2 = 32767
)

// Parse reads the one record that starts at offset at into rec. The window holds
// the bytes from there to the end of what has been written, which is never more
// than segmentEnd, the end of the segment; what lies beyond that is not looked at.
//
// It returns
//   - nil: rec is a record, whole, in its place, its body as it was stored;
//   - ErrSegmentEnd: a BLANK that ends exactly at segmentEnd; rec has its size;
//   - ErrNotYet: what there is may become a record: too few bytes, or TOTALSIZE 0;
//   - *CorruptError: these bytes cannot become a record, however many follow.
//
// A check is made as soon as the window holds the bytes it needs, so a longer
// window never turns a *CorruptError into something else, nor into one for
// another reason. Parse allocates nothing unless it returns a *CorruptError. After
// an error other than ErrSegmentEnd, rec is undefined.
func Parse(window []byte, at, segmentEnd wire.PhyOffset, rec *Record) error {
	room := segmentEnd.Sub(at)
	if room < BlankSize {
		return corrupt(at, ErrBadLength, "%d bytes are left in the segment; a broker keeps at least %d", room, BlankSize)
	}
	if wire.ByteSize(len(window)) > room {
		window = window[:room]
	}
	if len(window) < posMagic {
		return ErrNotYet
	}
	size := wire.ByteSize(int32(binary.BigEndian.Uint32(window)))
	if size == 0 {
		return ErrNotYet
	}
	if size < BlankSize {
		return corrupt(at, ErrBadLength, "TOTALSIZE %d", size)
	}
	if len(window) < posBodyCRC {
		return ErrNotYet
	}
	magic := binary.BigEndian.Uint32(window[posMagic:])
	switch magic {
	case MagicV1, MagicV2:
	case MagicBlank:
		return parseBlank(window, at, segmentEnd, size, rec)
	default:
		return corrupt(at, ErrBadMagic, "0x%08x, TOTALSIZE %d", magic, size)
	}
	if limit := min(room-BlankSize, MaxRecord); size < MinRecord || size > limit {
		return corrupt(at, ErrBadLength, "TOTALSIZE %d; possible here is %d to %d", size, MinRecord, limit)
	}
	if len(window) < posSysFlag {
		return ErrNotYet
	}
	if embedded := wire.PhyOffset(binary.BigEndian.Uint64(window[posPhysicalOffset:])); embedded != at {
		return corrupt(at, ErrOffsetMismatch, "PHYSICALOFFSET %d", embedded)
	}
	return parseMessage(window, at, size, magic, rec)
}

func parseBlank(window []byte, at, segmentEnd wire.PhyOffset, size wire.ByteSize, rec *Record) error {
	if at.Add(size) != segmentEnd {
		return corrupt(at, ErrBlankMismatch, "it reaches to %d, the segment to %d", at.Add(size), segmentEnd)
	}
	*rec = Record{PhyOffset: at, Size: size, Magic: MagicBlank, raw: window[:BlankSize]}
	return ErrSegmentEnd
}

// parseMessage goes on where Parse stops: size, magic and offset are good, and
// the window has at least posSysFlag bytes.
func parseMessage(window []byte, at wire.PhyOffset, size wire.ByteSize, magic uint32, rec *Record) error {
	if len(window) < posBornTimestamp {
		return ErrNotYet
	}
	sysFlag := int32(binary.BigEndian.Uint32(window[posSysFlag:]))
	born, store := hostSize(sysFlag, FlagBornHostV6), hostSize(sysFlag, FlagStoreHostV6)
	topicLenSize, maxTopic := 1, maxTopicV1
	if magic == MagicV2 {
		topicLenSize, maxTopic = 2, maxTopicV2
	}
	total := int(size) // at most MaxRecord, so it fits on 32 bits too
	bodyLenAt := fixedSize + born + store
	empty := bodyLenAt + 4 + topicLenSize + 2 // a record with nothing in it
	if total < empty {
		return corrupt(at, ErrBadLength, "TOTALSIZE %d; SYSFLAG 0x%x needs at least %d", size, sysFlag, empty)
	}

	bodyAt := bodyLenAt + 4
	if len(window) < bodyAt {
		return ErrNotYet
	}
	bodyLen := int(int32(binary.BigEndian.Uint32(window[bodyLenAt:])))
	if bodyLen < 0 || bodyLen > total-empty {
		return corrupt(at, ErrBadLength, "a body of %d in TOTALSIZE %d", bodyLen, size)
	}

	topicAt := bodyAt + bodyLen + topicLenSize
	if len(window) < topicAt {
		return ErrNotYet
	}
	topicLen := int(window[topicAt-1])
	if topicLenSize == 2 {
		topicLen |= int(window[topicAt-2]) << 8
	}
	if topicLen > maxTopic || topicLen > total-empty-bodyLen {
		return corrupt(at, ErrBadLength, "a topic of %d behind a body of %d in TOTALSIZE %d", topicLen, bodyLen, size)
	}

	propertiesAt := topicAt + topicLen + 2
	if len(window) < propertiesAt {
		return ErrNotYet
	}
	// Batches can be stored with more than 32767 bytes of properties, which the
	// broker itself then reads as a negative number: it skips them by TOTALSIZE.
	propertiesLen := int(binary.BigEndian.Uint16(window[propertiesAt-2:]))
	if propertiesAt+propertiesLen != total {
		return corrupt(at, ErrBadLength, "body %d, topic %d and properties %d do not add up to TOTALSIZE %d", bodyLen, topicLen, propertiesLen, size)
	}
	if len(window) < total {
		return ErrNotYet
	}

	body := window[bodyAt : bodyAt+bodyLen : bodyAt+bodyLen]
	if bodyLen > 0 {
		bodyCRC := binary.BigEndian.Uint32(window[posBodyCRC:])
		if sum := checksum(body); sum != bodyCRC {
			return corrupt(at, ErrBadCRC, "BODYCRC 0x%08x, the body has 0x%08x", bodyCRC, sum)
		}
	}
	*rec = Record{
		PhyOffset:  at,
		Size:       size,
		Magic:      magic,
		SysFlag:    sysFlag,
		Body:       body,
		Topic:      window[topicAt : topicAt+topicLen : topicAt+topicLen],
		Properties: window[propertiesAt:total:total],
		raw:        window[:total:total],
	}
	rec.readHeader(born, store)
	return nil
}

// readHeader fills in the fields in front of the body that no check looks at.
func (r *Record) readHeader(bornSize, storeSize int) {
	be := binary.BigEndian
	storeTimeAt := posBornHost + bornSize
	storeHostAt := storeTimeAt + 8
	reconsumeAt := storeHostAt + storeSize
	r.BodyCRC = be.Uint32(r.raw[posBodyCRC:])
	r.QueueID = int32(be.Uint32(r.raw[posQueueID:]))
	r.Flag = int32(be.Uint32(r.raw[posFlag:]))
	r.QueueOffset = int64(be.Uint64(r.raw[posQueueOffset:]))
	r.BornTimestamp = Millis(be.Uint64(r.raw[posBornTimestamp:]))
	r.StoreTimestamp = Millis(be.Uint64(r.raw[storeTimeAt:]))
	r.BornHost = r.raw[posBornHost:storeTimeAt:storeTimeAt]
	r.StoreHost = r.raw[storeHostAt:reconsumeAt:reconsumeAt]
	r.ReconsumeTimes = int32(be.Uint32(r.raw[reconsumeAt:]))
	r.PreparedTransactionOffset = int64(be.Uint64(r.raw[reconsumeAt+4:]))
}

func hostSize(sysFlag, v6 int32) int {
	if sysFlag&v6 != 0 {
		return hostSizeV6
	}
	return hostSizeV4
}

func corrupt(at wire.PhyOffset, reason error, format string, args ...any) error {
	return &CorruptError{PhyOffset: at, Reason: fmt.Sprintf(format, args...), Err: reason}
}
