//go:build !race

package discovery

// crowd is how many members a large ring has; all of them run in one process.
const crowd = 200
