package replica

import "sync"

// listeners wakes whoever waits for the ends to move. A wake-up carries
// nothing: the listener looks at Ends, so that a slow one costs one slot.
type listeners struct {
	mu  sync.Mutex
	set map[chan struct{}]struct{}
}

// Listen returns a channel that gets a value after every move of an end (moves
// that come faster than they are taken are one), and a function that ends it.
func (s *Store) Listen() (moved <-chan struct{}, stop func()) {
	l := &s.listeners
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

func (l *listeners) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ch := range l.set {
		trySend(ch)
	}
}

// trySend leaves a wake-up in a one-slot channel.
func trySend(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
