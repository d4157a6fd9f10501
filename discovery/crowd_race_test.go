//go:build race

package discovery

// crowd is how many members a large ring has: the race detector makes each cost
// several times as much, and all of them run in one process.
const crowd = 60
