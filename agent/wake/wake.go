// Package wake tells whoever waits for a change that there was one. A wake-up
// carries nothing: the listener looks for itself, so that a slow one costs one
// slot, and wake-ups that come faster than they are taken are one.
package wake

import "sync"

// Listeners are those who wait. The zero value is ready, and may be used by
// several goroutines at once.
type Listeners struct {
	mu  sync.Mutex
	set map[chan struct{}]struct{}
}

// Listen returns a channel that gets a value after every Wake, and a function
// that ends it.
func (l *Listeners) Listen() (moved <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		l.set = make(map[chan struct{}]struct{})
	}
	l.set[ch] = struct{}{}
	return ch, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.set, ch)
	}
}

// Wake leaves a wake-up with every listener. It neither blocks nor allocates.
func (l *Listeners) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.set {
		Send(ch)
	}
}

// Send leaves a wake-up in a one-slot channel, unless one is there already.
func Send(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
