// Package link is how two agents talk: a Server stands beside a broker and reads
// its log, a Follower keeps a replica of it.
//
//	Follower                                            Server
//	   │ greeting ───────────────────────────► greeting    │ version, mode, nonces
//	   │ hello: who, how far, digests ───────────────────► │ group, key, epoch
//	   │ ◄─────── welcome: ends, verdict on each digest    │
//	   │ ask/answer, where they differ: from which message │
//	   │ start ──────────────────────────────────────────► │
//	   │ ◄──────────────────── transfer, transfer, ...     │ sendfile
//	   │ report ─────────────────────────────────────────► │ acks.Table
//
// Log and config files travel on connections of their own, so that neither waits
// for the other. The second one lives within the first: config files are only
// taken from a source whose log was found equal.
//
// The frames are drawn in wire/link, the rules for both sides are in
// docs/protocol.md.
package link
