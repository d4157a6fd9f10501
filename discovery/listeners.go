package discovery

import "sync"

// listeners wakes whoever waits for the members to change. A wake-up carries
// nothing: the listener looks at Members, so that a slow one costs one slot.
type listeners struct {
	mu  sync.Mutex
	set map[chan struct{}]struct{}
}

func (l *listeners) listen() (changed <-chan struct{}, stop func()) {
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
