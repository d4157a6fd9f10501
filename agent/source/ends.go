package source

import (
	"runtime"
	"sync/atomic"

	"github.com/haagent/haagent/wire"
)

// Ends say how far a log reaches: Min <= Confirmed <= Settled <= Visible. All
// are wire.NoOffset where there is no log (yet).
type Ends struct {
	Min       wire.PhyOffset // start of the oldest segment
	Confirmed wire.PhyOffset // everything below is complete records
	Settled   wire.PhyOffset // Confirmed, or behind the one record that stood unchanged
	Visible   wire.PhyOffset // end of the last record that can be parsed
	// Resettled counts how often settled bytes above Confirmed changed after all.
	// Whoever shipped some of them before it went up must ship them again, also
	// where Confirmed lies behind them by now.
	Resettled uint64
}

// noEnds is what is known of a log that is not there.
var noEnds = Ends{Min: wire.NoOffset, Confirmed: wire.NoOffset, Settled: wire.NoOffset, Visible: wire.NoOffset}

// endsBox holds Ends for one writer and many readers, which never wait for a
// lock: a reader that met the writer reads again.
type endsBox struct {
	round                            atomic.Uint64 // odd while the fields are being stored
	min, confirmed, settled, visible atomic.Int64
	resettled                        atomic.Uint64
}

func (b *endsBox) store(e Ends) {
	b.round.Add(1)
	b.min.Store(int64(e.Min))
	b.confirmed.Store(int64(e.Confirmed))
	b.settled.Store(int64(e.Settled))
	b.visible.Store(int64(e.Visible))
	b.resettled.Store(e.Resettled)
	b.round.Add(1)
}

func (b *endsBox) load() Ends {
	for {
		before := b.round.Load()
		e := Ends{
			Min: wire.PhyOffset(b.min.Load()), Confirmed: wire.PhyOffset(b.confirmed.Load()),
			Settled: wire.PhyOffset(b.settled.Load()), Visible: wire.PhyOffset(b.visible.Load()),
			Resettled: b.resettled.Load(),
		}
		if before%2 == 0 && b.round.Load() == before {
			return e
		}
		runtime.Gosched()
	}
}
