//go:build !race

package discovery

// crowd is how many members a large ring has.
const crowd = 200
