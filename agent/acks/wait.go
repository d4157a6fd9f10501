package acks

import (
	"container/heap"
	"context"
	"math"

	"github.com/haagent/haagent/wire"
)

// Result is how a wait ended, in the words that producers know from brokers.
type Result string

// The results.
const (
	PutOK             Result = "PUT_OK"              // so many nodes hold it
	FlushSlaveTimeout Result = "FLUSH_SLAVE_TIMEOUT" // the context ended first
	SlaveNotAvailable Result = "SLAVE_NOT_AVAILABLE" // no node was in reach
	NotMaster         Result = "NOT_MASTER"          // the table was closed
)

// nobodyHolds is an offset that no log reaches.
const nobodyHolds = wire.PhyOffset(math.MaxInt64)

// A waiter is one call of Wait that could not be answered at once.
type waiter struct {
	offset wire.PhyOffset
	place  int         // in its queue; -1 once it was answered
	answer chan Result // one slot, for one answer
}

// Wait blocks until n nodes in reach have acked offset at the same time. It
// returns
//
//   - NotMaster where the table is closed, or as soon as it is;
//   - PutOK at once where n <= 0: nobody is asked for;
//   - SlaveNotAvailable where no node is in reach, or as soon as none is;
//   - PutOK where n of them hold it, or as soon as they do;
//   - FlushSlaveTimeout when ctx ends before any of these.
//
// With some nodes in reach and fewer than n it waits: they may come back. An
// offset below 0 is one that is not known, which nobody holds.
func (t *Table) Wait(ctx context.Context, offset wire.PhyOffset, n int) Result {
	if offset < 0 {
		offset = nobodyHolds
	}
	w, result := t.enter(offset, n)
	if w == nil {
		return result
	}
	select {
	case result = <-w.answer:
		return result
	case <-ctx.Done():
	}
	if t.abandon(w, n) {
		return FlushSlaveTimeout
	}
	return <-w.answer // which came just before
}

// enter returns the result where it is known at once, otherwise a waiter that
// stands in the queue for n.
func (t *Table) enter(offset wire.PhyOffset, n int) (*waiter, Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, NotMaster
	case n <= 0:
		return nil, PutOK
	case len(t.order) == 0:
		return nil, SlaveNotAvailable
	case t.rank(n) >= offset:
		return nil, PutOK
	}
	q := t.queues[n]
	if q == nil {
		q = &queue{}
		t.queues[n] = q
	}
	w := &waiter{offset: offset, answer: make(chan Result, 1)}
	heap.Push(q, w)
	return w, ""
}

// abandon takes a waiter out of its queue; false where it was answered before.
func (t *Table) abandon(w *waiter, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.place < 0 {
		return false
	}
	q := t.queues[n]
	heap.Remove(q, w.place)
	if q.Len() == 0 {
		delete(t.queues, n)
	}
	return true
}

// answer tells those who wait for n nodes that these have acked up to rank. t.mu
// is held.
func (t *Table) answer(n int, rank wire.PhyOffset) {
	q := t.queues[n]
	if q == nil {
		return
	}
	for q.Len() > 0 && (*q)[0].offset <= rank {
		w := (*q)[0]
		heap.Pop(q)
		w.answer <- PutOK
	}
	if q.Len() == 0 {
		delete(t.queues, n)
	}
}

// answerAll tells everybody the same. t.mu is held.
func (t *Table) answerAll(r Result) {
	for n, q := range t.queues {
		for _, w := range *q {
			w.place = -1
			w.answer <- r
		}
		delete(t.queues, n)
	}
}

// A queue is a heap of waiters for the same number of nodes, the smallest offset
// on top, for container/heap.
type queue []*waiter

// Len is part of heap.Interface.
func (q *queue) Len() int { return len(*q) }

// Less is part of heap.Interface.
func (q *queue) Less(i, j int) bool { return (*q)[i].offset < (*q)[j].offset }

// Swap is part of heap.Interface.
func (q *queue) Swap(i, j int) {
	s := *q
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push is part of heap.Interface; x is a *waiter.
func (q *queue) Push(x any) {
	w := x.(*waiter)
	w.place = len(*q)
	*q = append(*q, w)
}

// Pop is part of heap.Interface.
func (q *queue) Pop() any {
	s := *q
	w := s[len(s)-1]
	s[len(s)-1] = nil
	*q = s[:len(s)-1]
	w.place = -1
	return w
}
