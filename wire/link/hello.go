package link

import (
	"encoding/binary"

	"github.com/haagent/haagent/wire"
)

// Digest is the SHA-256 of a range of the log.
type Digest struct {
	// At is the offset of the first byte.
	At wire.PhyOffset
	// Size is the length, from 1 to MaxDigestRange; 0 in the Head of a master
	// whose log is empty.
	Size wire.ByteSize
	Sum  [32]byte
}

// Hello is the first message of a replica.
type Hello struct {
	Channel Channel
	// Ack is what this replica's reports mean.
	Ack Ack
	// Accepts are the encodings that the replica can take the log in, besides none;
	// zero before VersionPacked.
	Accepts Encodings
	// SegmentSize is the replica's; 0 where it has none yet.
	SegmentSize wire.ByteSize
	// Min is where the replica's log begins, Verified the end of what it has
	// checked, Flushed of what of that is synced; NoOffset where there is
	// nothing.
	Min, Verified, Flushed wire.PhyOffset
	// Epoch is that of the master that the replica has followed last, from 0.
	Epoch int64
	// Cluster may be empty: the replica takes the master's. So may BrokerName.
	Cluster, BrokerName string
	// Node is the name under which acks count; never empty.
	Node string
	// Version is the program's, for people.
	Version string
	// Digests are ranges of the replica's log to be compared, at most MaxDigests.
	Digests []Digest
}

// Type returns TypeHello.
func (m *Hello) Type() Type { return TypeHello }

// Append appends the whole frame; see Message.
func (m *Hello) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Hello) Check() error {
	switch {
	case m.Channel != ChannelLog && m.Channel != ChannelMetadata:
		return refuse(TypeHello, ErrFrame, "channel %d is unknown", uint8(m.Channel))
	case m.Ack != AckMemory && m.Ack != AckDisk:
		return refuse(TypeHello, ErrFrame, "ack %d is unknown", uint8(m.Ack))
	case m.Accepts&^EncodingZstd != 0:
		return refuse(TypeHello, ErrFrame, "encodings %#04x, unknown ones among them", uint16(m.Accepts))
	case len(m.Digests) > MaxDigests:
		return refuse(TypeHello, ErrFrame, "%d digests, at most %d", len(m.Digests), MaxDigests)
	}
	for _, d := range m.Digests {
		if err := checkRange(TypeHello, d.At, d.Size, MaxDigestRange); err != nil {
			return err
		}
	}
	return firstError(
		checkOffset(TypeHello, "min", m.Min, true),
		checkOffset(TypeHello, "verified", m.Verified, true),
		checkOffset(TypeHello, "flushed", m.Flushed, true),
		checkIdentity(TypeHello, m.SegmentSize, m.Epoch, m.Cluster, m.BrokerName, m.Node, m.Version),
	)
}

// checkIdentity checks what Hello and Welcome have in common.
func checkIdentity(t Type, segmentSize wire.ByteSize, epoch int64, cluster, brokerName, node, version string) error {
	switch {
	case segmentSize < 0:
		return refuse(t, ErrFrame, "segment size is %d", int64(segmentSize))
	case epoch < 0:
		return refuse(t, ErrFrame, "epoch is %d", epoch)
	case node == "":
		return refuse(t, ErrFrame, "node has no name")
	}
	return firstError(
		checkName(t, "cluster", cluster), checkName(t, "broker name", brokerName),
		checkName(t, "node", node), checkName(t, "version", version),
	)
}

func (m *Hello) appendPayload(dst []byte) []byte {
	dst = append(dst, byte(m.Channel), byte(m.Ack))
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.Accepts))
	dst = appendOffset(dst, wire.PhyOffset(m.SegmentSize), m.Min, m.Verified, m.Flushed, wire.PhyOffset(m.Epoch))
	for _, s := range []string{m.Cluster, m.BrokerName, m.Node, m.Version} {
		dst = appendString(dst, s)
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Digests)))
	for _, d := range m.Digests {
		dst = appendDigest(dst, d)
	}
	return dst
}

func (m *Hello) decode(c *cursor) {
	m.Channel, m.Ack, m.Accepts = Channel(c.u8()), Ack(c.u8()), Encodings(c.u16())
	m.SegmentSize, m.Min, m.Verified, m.Flushed, m.Epoch = wire.ByteSize(c.i64()), c.offset(), c.offset(), c.offset(), c.i64()
	m.Cluster, m.BrokerName, m.Node, m.Version = c.str(), c.str(), c.str(), c.str()
	n := int(c.u16())
	if n > MaxDigests || n*digestSize > len(c.rest) { // nothing is allocated for what is not there
		c.short = true
		return
	}
	for range n {
		m.Digests = append(m.Digests, c.digest())
	}
}

// Welcome is a master's answer to a Hello that it accepts.
type Welcome struct {
	// SegmentSize is the master's; 0 where it does not know it yet.
	SegmentSize wire.ByteSize
	// Min is where the master's log begins, Confirmed the end of what is
	// complete, Visible the end of the last message that can be read: Min <=
	// Confirmed <= Visible. All are NoOffset where there is no log.
	Min, Confirmed, Visible wire.PhyOffset
	// Epoch goes up with every promotion, from 0.
	Epoch int64

	Cluster, BrokerName, Node, Version string
	// Head is the digest of the beginning of the oldest segment, which tells
	// one log from another; all zero where the log is empty.
	Head Digest
	// Verdicts has one for each digest of the Hello, in its order.
	Verdicts []Verdict
}

// Type returns TypeWelcome.
func (m *Welcome) Type() Type { return TypeWelcome }

// Append appends the whole frame; see Message.
func (m *Welcome) Append(dst []byte) []byte { return appendFrame(dst, m) }

// Check returns a *FrameError for values that no frame can carry.
func (m *Welcome) Check() error {
	if len(m.Verdicts) > MaxDigests {
		return refuse(TypeWelcome, ErrFrame, "%d verdicts, at most %d", len(m.Verdicts), MaxDigests)
	}
	for _, v := range m.Verdicts {
		if v > Differs {
			return refuse(TypeWelcome, ErrFrame, "verdict %d is unknown", uint8(v))
		}
	}
	if m.Head != (Digest{}) {
		if err := checkRange(TypeWelcome, m.Head.At, m.Head.Size, MaxDigestRange); err != nil {
			return err
		}
	}
	return firstError(
		checkEnds(TypeWelcome, m.Min, m.Confirmed, m.Visible),
		checkIdentity(TypeWelcome, m.SegmentSize, m.Epoch, m.Cluster, m.BrokerName, m.Node, m.Version),
	)
}

func (m *Welcome) appendPayload(dst []byte) []byte {
	dst = appendOffset(dst, wire.PhyOffset(m.SegmentSize), m.Min, m.Confirmed, m.Visible, wire.PhyOffset(m.Epoch))
	for _, s := range []string{m.Cluster, m.BrokerName, m.Node, m.Version} {
		dst = appendString(dst, s)
	}
	dst = appendDigest(dst, m.Head)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Verdicts)))
	for _, v := range m.Verdicts {
		dst = append(dst, byte(v))
	}
	return dst
}

func (m *Welcome) decode(c *cursor) {
	m.SegmentSize, m.Min, m.Confirmed, m.Visible, m.Epoch = wire.ByteSize(c.i64()), c.offset(), c.offset(), c.offset(), c.i64()
	m.Cluster, m.BrokerName, m.Node, m.Version = c.str(), c.str(), c.str(), c.str()
	m.Head = c.digest()
	for _, v := range c.take(int(c.u16())) {
		m.Verdicts = append(m.Verdicts, Verdict(v))
	}
}
