// Package link is how two agents talk: one has a log, the other a replica.
package link
