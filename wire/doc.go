// Package wire holds the vocabulary that every room of haagent shares: what an
// offset is and what a size is. The codecs themselves live below it, one
// package per protocol: wire/ha (the stock HA stream) and wire/remoting
// (RemotingCommand).
//
// The package imports the standard library only, so that anything may import it.
package wire
