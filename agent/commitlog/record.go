package commitlog

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"time"

	"github.com/haagent/haagent/wire"
)

// The values of MAGIC.
const (
	MagicV1    uint32 = 0xdaa320a7 // topics up to 127 bytes
	MagicV2    uint32 = 0xdaa320ab // brokers from 5.1 on, topics above 127 bytes
	MagicBlank uint32 = 0xcbd43194 // nothing more in this segment
)

// The bits of SYSFLAG that say how long the hosts are.
const (
	FlagBornHostV6  int32 = 1 << 4
	FlagStoreHostV6 int32 = 1 << 5
)

// The bits of SYSFLAG that say what part of a transaction a record is.
const (
	FlagTransactionMask     int32 = 3 << 2
	FlagTransactionPrepared int32 = 1 << 2
	FlagTransactionCommit   int32 = 2 << 2
	FlagTransactionRollback int32 = 3 << 2
)

// Bytes that structure PROPERTIES.
const (
	NameValueSeparator = 0x01
	PropertySeparator  = 0x02
)

// Millis is a moment as brokers store it: milliseconds since 1970 UTC.
type Millis int64

// Time returns the moment in local time.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)) }

// Record is one record of a commit log. All its slices are parts of the window
// that it was parsed from, so they live and change with it.
type Record struct {
	PhyOffset   wire.PhyOffset // where it starts
	Size        wire.ByteSize  // TOTALSIZE
	Magic       uint32
	BodyCRC     uint32
	QueueID     int32
	Flag        int32
	QueueOffset int64
	SysFlag     int32

	BornTimestamp  Millis
	StoreTimestamp Millis
	BornHost       []byte // 4 or 16 bytes of address, 4 of port
	StoreHost      []byte

	ReconsumeTimes            int32
	PreparedTransactionOffset int64

	Body       []byte
	Topic      []byte
	Properties []byte

	raw []byte // the whole record
}

// End returns the offset behind the record, where the next one starts. For a
// BLANK that is the start of the next segment.
func (r *Record) End() wire.PhyOffset { return r.PhyOffset.Add(r.Size) }

// Blank reports whether r is the mark at the end of a segment.
func (r *Record) Blank() bool { return r.Magic == MagicBlank }

// Bytes returns the whole record as it lies in the log; for a BLANK its 8 bytes.
func (r *Record) Bytes() []byte { return r.raw }

// BodyOffset returns where the body of a message starts.
func (r *Record) BodyOffset() wire.PhyOffset {
	behind := len(r.Body) + 1 + len(r.Topic) + 2 + len(r.Properties)
	if r.Magic == MagicV2 {
		behind++ // a topic's length is two bytes long
	}
	return r.PhyOffset.Add(r.Size - wire.ByteSize(behind))
}

// BornAddr returns the address of the producer.
func (r *Record) BornAddr() netip.AddrPort { return hostAddr(r.BornHost) }

// StoreAddr returns the address of the broker that stored the record first.
func (r *Record) StoreAddr() netip.AddrPort { return hostAddr(r.StoreHost) }

func hostAddr(host []byte) netip.AddrPort {
	if len(host) < 4 {
		return netip.AddrPort{}
	}
	ip, ok := netip.AddrFromSlice(host[:len(host)-4])
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(binary.BigEndian.Uint32(host[len(host)-4:])))
}

// Property returns the value of the first property called key. It does not
// allocate, and reads what brokers read: pairs without a separator are skipped.
func (r *Record) Property(key string) ([]byte, bool) {
	rest := r.Properties
	for len(rest) > 0 {
		pair := rest
		if i := bytes.IndexByte(rest, PropertySeparator); i >= 0 {
			pair, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		if len(pair) > len(key) && pair[len(key)] == NameValueSeparator && string(pair[:len(key)]) == key {
			return pair[len(key)+1:], true
		}
	}
	return nil, false
}

// WellFormed reports whether topic and properties look written: no zero byte in
// either, and properties that start with a name and a separator. A record that
// becomes visible piece by piece is not well formed while one of them is still
// zero. It is a hint and no proof: brokers 5.2.0 and 5.3.0 can store undefined
// bytes in the properties of complete records.
func (r *Record) WellFormed() bool {
	if bytes.IndexByte(r.Topic, 0) >= 0 || bytes.IndexByte(r.Properties, 0) >= 0 {
		return false
	}
	return len(r.Properties) == 0 || bytes.IndexByte(r.Properties, NameValueSeparator) > 0
}

// CRCState is what the optional checksum of a whole record says.
type CRCState int

// The answers of Record.PropertyCRC.
const (
	CRCAbsent CRCState = iota // the properties do not end with one
	CRCMatch                  // all bytes of the record are those that were stored
	CRCDiffers
)

// crcProperty is the name of the property, crcPropertyLen the length of the
// whole of it: name, separator, 10 digits, separator.
const (
	crcProperty    = "__CRC32#"
	crcPropertyLen = len(crcProperty) + 1 + 10 + 1
)

// PropertyCRC checks the property that brokers with enabledAppendPropCRC put
// behind all others: the CRC-32 (IEEE, top bit cleared) of the record up to that
// property, in 10 decimal digits, the least significant first.
//
// CRCMatch proves that the record is complete. CRCDiffers proves nothing by
// itself: a client, a retry or a timer may have copied the property from an older
// message into a new one, which a broker without the option stores as it is. So
// Parse does not judge by it.
func (r *Record) PropertyCRC() CRCState {
	at := len(r.Properties) - crcPropertyLen
	if at < 0 {
		return CRCAbsent
	}
	prop := r.Properties[at:]
	if string(prop[:len(crcProperty)]) != crcProperty ||
		prop[len(crcProperty)] != NameValueSeparator || prop[crcPropertyLen-1] != PropertySeparator {
		return CRCAbsent
	}
	var want uint64
	digits := prop[len(crcProperty)+1 : crcPropertyLen-1]
	for i := len(digits) - 1; i >= 0; i-- {
		if digits[i] < '0' || digits[i] > '9' {
			return CRCAbsent
		}
		want = want*10 + uint64(digits[i]-'0')
	}
	if uint64(checksum(r.raw[:len(r.raw)-crcPropertyLen])) != want {
		return CRCDiffers
	}
	return CRCMatch
}

// checksum is the one of brokers: CRC-32 (IEEE) without its top bit.
func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) &^ (1 << 31) }
