package link

import (
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// Compress says how the log travels on the link.
type Compress string

// The ways to compress.
const (
	CompressOff  Compress = "off"  // as it is, without a copy
	CompressAuto Compress = "auto" // zstd, while that is faster
	CompressZstd Compress = "zstd" // always, where it makes fewer bytes
)

// packer compresses what a sender sends. A nil *packer does not.
type packer struct {
	encoder *zstd.Encoder // made when it is used first
	choice  *choice       // nil: always
	body    []byte        // of the log, copied: nobody changes it while it is packed
	out     []byte        // a frame, head and data
}

// newPacker returns nil where nothing is to be packed, or the replica cannot take it.
func newPacker(c Compress, accepts wirelink.Encodings) *packer {
	if c == "" || c == CompressOff || accepts&wirelink.EncodingZstd == 0 {
		return nil
	}
	p := &packer{}
	if c == CompressAuto {
		p.choice = newChoice()
	}
	return p
}

// wants reports whether the next bytes are to be packed.
func (p *packer) wants() bool { return p != nil && (p.choice == nil || p.choice.packing) }

// spent notes what n bytes of the log have cost from the segment to the socket.
func (p *packer) spent(n wire.ByteSize, took time.Duration) {
	if p != nil && p.choice != nil {
		p.choice.spent(n, took)
	}
}

// pack makes a frame of body, which it has copied. It returns nil where that has no
// fewer bytes.
func (p *packer) pack(at, confirmed wire.PhyOffset) ([]byte, error) {
	if p.encoder == nil {
		// One thread and no window beyond a frame: each replica has one of these.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(int(wirelink.MaxTransfer)),
			zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			return nil, fmt.Errorf("prepare to compress: %w", err)
		}
		p.encoder = e
	}
	size := wire.ByteSize(len(p.body))
	data := p.encoder.EncodeAll(p.body, append(p.out[:0], make([]byte, wirelink.PackedHeadSize)...))
	p.out = data[:0]
	if packed := wire.ByteSize(len(data) - wirelink.PackedHeadSize); packed >= size {
		return nil, nil
	}
	return wirelink.AppendPacked(data[:0], at, confirmed, size, wirelink.Sum(p.body), data[wirelink.PackedHeadSize:]), nil
}

// How much is moved before costs are compared. What the sockets hold is settled
// first: it hides what a byte costs.
const (
	settleSize  = 4 * wire.MiB
	measureSize = 4 * wire.MiB
	firstTrial  = settleSize + measureSize
	rareTrial   = 4 * wire.GiB
	worthwhile  = 0.9 // of the cost of the other way
)

// choice finds out whether packing pays, by trying the other way from time to time:
// the costs are the time to compress and the time that the socket and the limits
// take. A network that is the bottleneck makes packing pay, a processor that is
// makes it not. Trials that are lost become rare.
type choice struct {
	packing bool
	trial   bool          // packing is what is tried, not what was chosen
	cost    float64       // of a byte of the way that was chosen, in ns
	every   wire.ByteSize // between trials
	moved   wire.ByteSize // in this round
	counted wire.ByteSize // of that, what took is about
	took    time.Duration
}

func newChoice() *choice { return &choice{every: firstTrial} }

func (c *choice) spent(n wire.ByteSize, took time.Duration) {
	if c.moved += n; c.moved > settleSize {
		c.counted, c.took = c.counted+n, c.took+took
	}
	switch {
	case c.counted < measureSize:
		return
	case !c.trial && c.moved < c.every:
		return
	case !c.trial:
		c.cost = c.measured()
		c.packing = !c.packing
	case c.measured() < worthwhile*c.cost:
		c.every = firstTrial
	default:
		c.packing = !c.packing
		c.every = min(2*c.every, rareTrial)
	}
	c.trial = !c.trial
	c.moved, c.counted, c.took = 0, 0, 0
}

func (c *choice) measured() float64 { return float64(c.took) / float64(c.counted) }

// unpacker takes packed frames apart.
type unpacker struct {
	decoder *zstd.Decoder // made when it is used first
	body    []byte
}

// unpack returns the bytes of the log in a frame, valid until the next call. Never
// more memory is taken than the frame says that is in it, which is at most
// wirelink.MaxTransfer; data with more in it is refused where it goes beyond. The
// error is a *wirelink.FrameError.
func (u *unpacker) unpack(p *wirelink.Packed) ([]byte, error) {
	if u.decoder == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxMemory(uint64(wirelink.MaxTransfer)), zstd.WithDecoderMaxWindow(uint64(wirelink.MaxTransfer)))
		if err != nil {
			return nil, fmt.Errorf("prepare to decompress: %w", err)
		}
		u.decoder = d
	}
	if wire.ByteSize(cap(u.body)) < p.Size {
		u.body = make([]byte, p.Size)
	}
	body, err := u.decoder.DecodeAll(p.Data, u.body[:0:p.Size])
	if err != nil {
		return nil, wirelink.BadPacked(err)
	}
	return body, p.Unpacked(body)
}
