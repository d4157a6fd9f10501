package link

import (
	"fmt"

	"github.com/haagent/haagent/wire"
)

// Type says what a frame carries.
type Type uint8

// The types of frames, in the order in which a connection may meet them.
const (
	TypeHello     Type = 1  // replica to master: who asks, and what it holds
	TypeWelcome   Type = 2  // master to replica: who answers, and what of it is equal
	TypeRefuse    Type = 3  // instead of an answer; the sender closes
	TypeAsk       Type = 4  // replica to master: the digest of a range
	TypeAnswer    Type = 5  // master to replica: that digest
	TypeStart     Type = 6  // replica to master: stream from here
	TypeTransfer  Type = 7  // master to replica: bytes of the log
	TypeReport    Type = 8  // replica to master: how far it is
	TypeHeartbeat Type = 9  // master to replica, on the metadata channel both ways
	TypeSnapshot  Type = 10 // master to replica: the list of config files
	TypeFile      Type = 11 // master to replica: a piece of one of them
	TypeGoodbye   Type = 12 // both ways: the sender closes, and why
	TypeProof     Type = 13 // both ways in mode clear: the sender holds the key
	TypePacked    Type = 14 // master to replica: compressed bytes of the log, from version 2 on
)

const lastType = TypePacked

var typeNames = [...]string{
	TypeHello: "hello", TypeWelcome: "welcome", TypeRefuse: "refuse", TypeAsk: "ask", TypeAnswer: "answer",
	TypeStart: "start", TypeTransfer: "transfer", TypeReport: "report", TypeHeartbeat: "heartbeat",
	TypeSnapshot: "snapshot", TypeFile: "file", TypeGoodbye: "goodbye", TypeProof: "proof", TypePacked: "packed",
}

// String returns the type's name, or its number where it has none.
func (t Type) String() string {
	if t.known() {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

func (t Type) known() bool { return t >= TypeHello && t <= lastType }

// Mode is how a connection is protected. Both ends must have chosen the same.
type Mode uint8

// The modes of a connection.
const (
	ModeNone  Mode = 0 // no key: loopback only, or networks that somebody else protects
	ModeTLS   Mode = 1 // TLS 1.3 follows the greetings
	ModeClear Mode = 2 // both ends prove the key, then bytes go unencrypted
)

// String returns the mode's name, as --link-security spells it.
func (m Mode) String() string {
	switch m {
	case ModeNone:
		return "none"
	case ModeTLS:
		return "tls"
	case ModeClear:
		return "clear"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// Channel is what a connection carries behind its handshake.
type Channel uint8

// The channels. A replica keeps one connection for each.
const (
	ChannelLog      Channel = 1
	ChannelMetadata Channel = 2
)

// String returns the channel's name.
func (c Channel) String() string {
	switch c {
	case ChannelLog:
		return "log"
	case ChannelMetadata:
		return "metadata"
	}
	return fmt.Sprintf("channel %d", uint8(c))
}

// Ack is what a replica's acknowledgement means.
type Ack uint8

// The meanings of an acknowledgement.
const (
	AckMemory Ack = 1 // verified, in the page cache
	AckDisk   Ack = 2 // verified and synced
)

// String returns the meaning as --ack spells it.
func (a Ack) String() string {
	switch a {
	case AckMemory:
		return "memory"
	case AckDisk:
		return "disk"
	}
	return fmt.Sprintf("ack %d", uint8(a))
}

// Encodings are ways to compress the log, one bit each.
type Encodings uint16

// EncodingZstd is that of Packed: one zstd frame (RFC 8878) without a dictionary.
const EncodingZstd Encodings = 1

// Verdict is what the master says about one digest of a Hello.
type Verdict uint8

// The verdicts on a digest.
const (
	Unknown Verdict = 0 // the range is not, or not wholly, in the master's log
	Equal   Verdict = 1
	Differs Verdict = 2
)

// String returns the verdict in one word.
func (v Verdict) String() string {
	switch v {
	case Unknown:
		return "unknown"
	case Equal:
		return "equal"
	case Differs:
		return "differs"
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Code is why a peer refuses or leaves. Numbers that this package does not know
// may come from newer peers; they are carried as they are.
type Code uint16

// The codes of Refuse and Goodbye.
const (
	CodeVersion       Code = 1
	CodeSecurity      Code = 2
	CodeUnauthorized  Code = 3
	CodeWrongCluster  Code = 4
	CodeWrongBroker   Code = 5
	CodeSegmentSize   Code = 6
	CodeNotMaster     Code = 7
	CodeProtocol      Code = 8
	CodeTooMany       Code = 9
	CodeStopping      Code = 10
	CodeSuperseded    Code = 11
	CodeGap           Code = 12
	CodeInternal      Code = 13
	CodeStaleEpoch    Code = 14
	CodeSourceChanged Code = 15
)

const lastCode = CodeSourceChanged

var codeNames = [...]string{
	CodeVersion: "version", CodeSecurity: "security", CodeUnauthorized: "unauthorized", CodeWrongCluster: "wrong_cluster",
	CodeWrongBroker: "wrong_broker", CodeSegmentSize: "segment_size", CodeNotMaster: "not_master", CodeProtocol: "protocol",
	CodeTooMany: "too_many", CodeStopping: "stopping", CodeSuperseded: "superseded", CodeGap: "gap", CodeInternal: "internal",
	CodeStaleEpoch: "stale_epoch", CodeSourceChanged: "source_changed",
}

// String returns the code's name in lower_snake_case, or its number.
func (c Code) String() string {
	if c >= CodeVersion && c <= lastCode {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// The limits of what frames carry. They are the same for every version.
const (
	// MaxDigests is how many digests a Hello may carry.
	MaxDigests = 64
	// MaxDigestRange is the longest range of one digest.
	MaxDigestRange = wire.MiB
	// MaxTransfer is the longest body of a Transfer.
	MaxTransfer = wire.MiB
	// MaxText is the longest text of a Refuse or Goodbye, in bytes.
	MaxText = 512
	// MaxString is the longest name, in bytes.
	MaxString = 255
	// MaxFiles is how many files a Snapshot may list.
	MaxFiles = 64
	// MaxFileSize is the longest file of a Snapshot.
	MaxFileSize = 64 * wire.MiB
	// MaxPiece is the longest piece of a file that one File carries.
	MaxPiece = 64 * wire.KiB
)
