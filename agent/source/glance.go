package source

import (
	"bytes"
	"encoding/binary"

	"github.com/haagent/haagent/agent/commitlog"
	"github.com/haagent/haagent/wire"
)

// glimpse is what the first bytes at a place say, without looking at the rest.
type glimpse uint8

const (
	nothing glimpse = iota // TOTALSIZE is 0: nothing has been written here
	partly                 // something that is no record here, or not yet
	record                 // a record has begun
	blank                  // a BLANK has begun
)

// maxSearch is how far records are looked for behind a place where there is none.
const maxSearch = 16 * wire.MiB

// glanceLen is how much of a record a glance looks at: TOTALSIZE up to
// PHYSICALOFFSET.
const glanceLen = 36

// glance looks at the head of the record at offset at, whose bytes window starts
// with. Size, magic and embedded offset tell a record from what a torn or an
// older one left in its place.
//
// TOTALSIZE is loaded in acquire order, so once a record has begun, everything
// that the broker stored before it can be read whole.
func glance(window []byte, at, segmentEnd wire.PhyOffset) (glimpse, wire.ByteSize) {
	size := wire.ByteSize(commitlog.LoadSize(window))
	if size == 0 {
		return nothing, 0
	}
	if len(window) < int(commitlog.BlankSize) {
		return partly, size
	}
	room := segmentEnd.Sub(at)
	switch binary.BigEndian.Uint32(window[4:]) {
	case commitlog.MagicBlank:
		if size == room {
			return blank, size
		}
		return partly, size
	case commitlog.MagicV1, commitlog.MagicV2:
	default:
		return partly, size
	}
	if size < commitlog.MinRecord || size > min(room-commitlog.BlankSize, commitlog.MaxRecord) || len(window) < glanceLen {
		return partly, size
	}
	if wire.PhyOffset(binary.BigEndian.Uint64(window[28:])) != at {
		return partly, size
	}
	return record, size
}

// storedAt returns the STORETIMESTAMP of a record that has begun.
func storedAt(window []byte) commitlog.Millis {
	const sysFlagAt, hostAt = 36, 48
	at := hostAt + 8
	if int32(binary.BigEndian.Uint32(window[sysFlagAt:]))&commitlog.FlagBornHostV6 != 0 {
		at = hostAt + 20
	}
	return commitlog.Millis(binary.BigEndian.Uint64(window[at:]))
}

// magicStart is what the magic of both versions begins with, 4 bytes into a record.
var magicStart = []byte{0xda, 0xa3, 0x20}

// search returns the first place in [from, until) where a record has begun,
// wire.NoOffset if there is none.
func (g *Segment) search(from, until wire.PhyOffset) wire.PhyOffset {
	for at := from.Add(4); at < until; {
		i := bytes.Index(g.data[at.Sub(g.Base):until.Sub(g.Base)], magicStart)
		if i < 0 {
			break
		}
		head := at.Add(wire.ByteSize(i - 4))
		if what, _ := glance(g.data[head.Sub(g.Base):], head, g.End); what == record {
			return head
		}
		at = at.Add(wire.ByteSize(i + len(magicStart)))
	}
	return wire.NoOffset
}
