package source

import (
	"time"

	"github.com/haagent/haagent/wire"
)

// cutAfter is how long a broker must say that its log ends below Confirmed before
// it is believed. One that only lags says more within its survey of 2 s.
const cutAfter = 3 * time.Second

// recanted is a broker's word that its log ends below Confirmed, given after the
// word before it was taken back: a broker that recovered has lost its tail. It
// does not erase what lay there, so that the files alone do not show it.
//
//	record record record | old record old record | 0 0 0
//	                     ^ the broker's end      ^ Confirmed
type recanted struct {
	word  wire.PhyOffset // the last word that was heard
	at    wire.PhyOffset // Confirmed above it; NoOffset: nothing is recanted
	since time.Time
	seen  int // listings since
}

// hear takes note of what the broker says. It must be called before a look, so
// that the word is held against what was confirmed without it.
func (t *tail) hear(now time.Time) {
	r, word := &t.recanted, t.src.granted()
	if word != r.word {
		fresh := r.word == wire.NoOffset || word < r.word
		r.word = word
		if fresh && word != wire.NoOffset && word < t.at && word >= t.min {
			r.at, r.since, r.seen = t.at, now, 0
			t.rescan = true // what the log was known by may be gone
		}
	}
	if r.at == wire.NoOffset {
		return
	}
	switch {
	case word == wire.NoOffset || word >= t.at:
		r.at = wire.NoOffset
	case r.at != t.at: // the log goes on, and the word lags
		r.at, r.since, r.seen = t.at, now, 0
	}
}

// cutByWord reports whether the broker has gone back for good.
func (t *tail) cutByWord(now time.Time) bool {
	r := &t.recanted
	if r.at == wire.NoOffset || r.at != t.at {
		return false
	}
	r.seen++
	return r.seen > 1 && now.Sub(r.since) >= cutAfter
}
