package control

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConns bounds the connections to one port: many thousand waits fit, each on
	// a connection of its own.
	maxConns = 4096
	// idleTimeout is how long a connection may stay between two requests.
	idleTimeout = time.Minute
	// headerTimeout is how long a request may take from its first byte to the end
	// of its header, and how long a new connection may be without a first byte.
	headerTimeout = 5 * time.Second
)

// connBook bounds the connections of an http.Server. Where one comes that is too
// many, the one that has been without a request for longest makes room, so that
// forgotten ones and probes keep nobody out; where all have requests under way it
// is the new one.
type connBook struct {
	max int

	mu    sync.Mutex
	conns map[net.Conn]*list.Element // nil: a request is under way
	quiet list.List                  // of net.Conn, the longest first
}

func newConnBook(most int) *connBook {
	return &connBook{max: most, conns: make(map[net.Conn]*list.Element)}
}

// note is http.Server.ConnState.
func (b *connBook) note(conn net.Conn, s http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	element, known := b.conns[conn]
	if !known && s != http.StateNew {
		return // it had to make room
	}
	if element != nil {
		b.quiet.Remove(element)
	}
	switch s {
	case http.StateNew, http.StateIdle:
		b.conns[conn] = b.quiet.PushBack(conn)
	case http.StateActive:
		b.conns[conn] = nil
	case http.StateClosed, http.StateHijacked:
		delete(b.conns, conn)
	}
	if len(b.conns) > b.max {
		b.makeRoom()
	}
}

// makeRoom closes the connection that has been quiet for longest. mu is held.
func (b *connBook) makeRoom() {
	front := b.quiet.Front()
	if front == nil {
		return
	}
	b.quiet.Remove(front)
	conn, ok := front.Value.(net.Conn)
	if !ok {
		return
	}
	delete(b.conns, conn)
	if err := conn.Close(); err != nil {
		return // it is gone already
	}
}
