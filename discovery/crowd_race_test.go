//go:build race

package discovery

// crowd is how many members a large ring has: the race detector makes each cost
// several times as much, and what a ring costs grows with the square of its size.
const crowd = 24
