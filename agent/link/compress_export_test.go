package link

import (
	"time"

	"github.com/haagent/haagent/wire"
	wirelink "github.com/haagent/haagent/wire/link"
)

// Unpacker is what takes packed frames apart.
type Unpacker struct{ unpacker }

// Unpack takes one apart.
func (u *Unpacker) Unpack(p *wirelink.Packed) ([]byte, error) { return u.unpack(p) }

// Held returns how many bytes it keeps.
func (u *Unpacker) Held() int { return cap(u.body) }

// Pack makes a frame of body, nil where it gains nothing.
func Pack(at, confirmed wire.PhyOffset, body []byte) ([]byte, error) {
	p := packer{body: body}
	return p.pack(at, confirmed)
}

// Choice finds out whether packing pays.
type Choice struct{ *choice }

// NewChoice returns one that has tried nothing.
func NewChoice() Choice { return Choice{newChoice()} }

// Packing reports what it does now, and whether that is a trial.
func (c Choice) Packing() (packing, trial bool) { return c.packing, c.trial }

// Spent notes what n bytes have cost.
func (c Choice) Spent(n wire.ByteSize, took time.Duration) { c.spent(n, took) }
