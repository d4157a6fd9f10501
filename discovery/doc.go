// Package discovery finds other agents by gossip: who is there, in which role,
// at which addresses, and who has gone.
//
// It is memberlist with the traps taken out:
//
//   - What others know about a member travels in its meta, at most 512 bytes,
//     checked when it is set. What cannot be read of another's meta shows as a
//     member without fields, never as a fault.
//   - memberlist calls back under its own lock. The callbacks here copy, leave
//     one wake-up, and return: a slow reader costs one slot, gossip never waits.
//   - memberlist tells nobody who is suspect, nor whether a member left or died.
//     Its table is read through a pipe, as another member would read it.
//   - Joining goes on for ever: while alone the seeds and all members seen before
//     are tried, later the seeds that are missing, so that split rings heal.
//   - Without a key only loopback is bound and only loopback is contacted, unless
//     that is asked for.
//
// Members are told apart by their node name. A name whose member is dead or has
// left may come back at another address; one that is claimed at two addresses
// by two live members is a conflict, and neither takes the other's place.
package discovery
