package link

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/haagent/haagent/wire"
)

const (
	// HeaderSize is the length of a frame's header in bytes.
	HeaderSize = 12

	// TransferHeadSize is what AppendTransfer writes before a body, in bytes.
	TransferHeadSize = HeaderSize + transferFixed

	// MaxHello is the largest payload that a listener reads from a peer that
	// has not proven anything yet.
	MaxHello = helloFixed + 4*stringMax + 2 + MaxDigests*digestSize

	stringMax     = 1 + MaxString
	digestSize    = 8 + 4 + 32
	helloFixed    = 4 + 5*8
	welcomeFixed  = 5 * 8
	textFixed     = 2 + 2
	transferFixed = 2 * 8
	reportSize    = 3 * 8
	snapshotFixed = 3*8 + 2
	entryFixed    = 4 + 32 + 1
	fileFixed     = 2 + 4
	packedFixed   = 2*8 + 4 + 4
)

// castagnoli is the polynomial of CRC-32C, which processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A span is the shortest and the longest payload of a type.
type span struct{ least, most wire.ByteSize }

// sizes is what a header may announce, by type.
var sizes = [...]span{
	TypeHello:     {helloFixed + 4 + 2, MaxHello},
	TypeWelcome:   {welcomeFixed + 4 + digestSize + 2, welcomeFixed + 4*stringMax + digestSize + 2 + MaxDigests},
	TypeRefuse:    {textFixed, textFixed + MaxText},
	TypeAsk:       {12, 12},
	TypeAnswer:    {digestSize, digestSize},
	TypeStart:     {8, 8},
	TypeTransfer:  {transferFixed + 1, transferFixed + MaxTransfer},
	TypeReport:    {reportSize, reportSize},
	TypeHeartbeat: {24, 24},
	TypeSnapshot:  {snapshotFixed, snapshotFixed + MaxFiles*(stringMax+entryFixed)},
	TypeFile:      {fileFixed + 1, fileFixed + MaxPiece},
	TypeGoodbye:   {textFixed, textFixed + MaxText},
	TypeProof:     {32, 32},
	TypePacked:    {packedFixed + 1, packedFixed + MaxTransfer - 1},
}

// header is what stands before a payload.
type header struct {
	size wire.ByteSize
	typ  Type
	crc  uint32
}

// parseHeader reads the first HeaderSize bytes of b and refuses what no frame
// begins with, so that nothing is allocated for it.
func parseHeader(b []byte) (header, error) {
	h := header{
		size: wire.ByteSize(binary.BigEndian.Uint32(b)),
		typ:  Type(b[4]),
		crc:  binary.BigEndian.Uint32(b[8:]),
	}
	switch {
	case !h.typ.known():
		return header{}, refuse(h.typ, ErrType, "no frame has the type %d (starts % x)", b[4], b[:HeaderSize])
	case b[5] != 0:
		return header{}, refuse(h.typ, ErrFrame, "flags %#02x, none are known", b[5])
	case b[6] != 0 || b[7] != 0:
		return header{}, refuse(h.typ, ErrFrame, "reserved bytes % x, want zero", b[6:8])
	case h.size > sizes[h.typ].most:
		return header{}, refuse(h.typ, ErrTooLarge, "%d bytes announced, at most %d are read", h.size, sizes[h.typ].most)
	case h.size < sizes[h.typ].least:
		return header{}, refuse(h.typ, ErrFrame, "%d bytes announced, the shortest has %d", h.size, sizes[h.typ].least)
	}
	return h, nil
}

// checksum returns the CRC-32C of a frame: the first 8 bytes of its header and
// its payload, given in two parts.
func checksum(head, first, second []byte) uint32 {
	crc := crc32.Update(0, castagnoli, head[:8])
	crc = crc32.Update(crc, castagnoli, first)
	return crc32.Update(crc, castagnoli, second)
}

// openFrame appends a header whose size and checksum are still missing.
func openFrame(dst []byte, t Type) []byte {
	return append(dst, 0, 0, 0, 0, byte(t), 0, 0, 0, 0, 0, 0, 0)
}

// closeFrame fills in the header at start; rest is what will follow dst.
func closeFrame(dst []byte, start int, rest []byte) []byte {
	head, payload := dst[start:start+HeaderSize], dst[start+HeaderSize:]
	binary.BigEndian.PutUint32(head, uint32(len(payload)+len(rest)))
	binary.BigEndian.PutUint32(head[8:], checksum(head, payload, rest))
	return dst
}
