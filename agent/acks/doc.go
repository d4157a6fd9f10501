// Package acks is the table of what replicas hold, and of those who wait for it.
//
// It is arithmetic: no clock, no socket, no log and no goroutine. Time comes in
// through the contexts of those who wait, acks through Report, whose caller has
// clamped them to what was proven.
//
//	node   level   memory   disk   acked              n   Rank(n)
//	c      memory    900     700     900 ─────────►   1     900
//	a      disk      900     800     800 ─────────►   2     800
//	b      memory    500     500     500 ─────────►   3     500
//	                                                  4      -1
//
// The rows are the nodes in reach, the largest ack first; so the n-th row is the
// largest offset that n nodes hold. An offset is an end: who acks it holds every
// byte below it.
//
// Acks count by node and not by connection (I4): the newest connection of a node
// takes the place of the one before it, which moves nothing from then on. It
// starts with nothing: a replica that lost its log does not keep an old ack.
//
// Those who wait for n nodes stand in a heap of their own, the smallest offset
// first. A report moves its row up past others, which changes the ranks between
// the two places and no other; in their heaps it touches only those that it
// answers.
package acks
